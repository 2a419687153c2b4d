# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""DICOM files in the JPEG families that pydicom leaves to further packages, decoded by ITK's GDCM.

The frames in ``compressed_frames`` are the picture of ``radiograph_files`` as encoders other than GDCM's wrote it:
CharLS (``.jls``), libjpeg and a JPEG lossless encoder of its own (``.jpg``).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom import uid
from radiograph_files import (
    GRAY8,
    GRAY12,
    GRAY16,
    HEIGHT,
    UNIT,
    WIDTH,
    load,
    metadata,
    refused,
    write_dicom,
)

from monai_afire.transforms.radiograph_io.common import (
    RadiographError,
    RadiographWarning,
    SizeLimits,
)
from monai_afire.transforms.radiograph_io.dicom import read_dicom
from monai_afire.transforms.radiograph_io.gdcm import decode_frame, decode_with_gdcm

pytestmark = pytest.mark.filterwarnings(
    "error::monai_afire.transforms.radiograph_io.common.RadiographWarning"
)

FRAMES = Path(__file__).parent / "compressed_frames"
SIGNED12 = GRAY12.astype(np.int16) - 2048
SIGNED16 = (GRAY16.astype(np.int32) - 2**15).astype(np.int16)
# Frame, transfer syntax, stored numbers, bits of them, largest error
SAMPLES = [
    ("jpegls_8bit.jls", uid.JPEGLSLossless, GRAY8, 8, 0),
    ("jpegls_12bit.jls", uid.JPEGLSLossless, GRAY12, 12, 0),
    ("jpegls_12bit_signed.jls", uid.JPEGLSLossless, SIGNED12, 12, 0),
    ("jpegls_near2_12bit.jls", uid.JPEGLSNearLossless, GRAY12, 12, 2),
    ("lossless_process14_12bit.jpg", uid.JPEGLossless, GRAY12, 12, 0),
    ("lossless_process14_16bit_signed.jpg", uid.JPEGLossless, SIGNED16, 16, 0),
    ("lossless_sv1_12bit.jpg", uid.JPEGLosslessSV1, GRAY12, 12, 0),
    ("extended_12bit.jpg", uid.JPEGExtended12Bit, GRAY12, 12, 16),
]


def frame(name: str) -> bytes:
    return (FRAMES / name).read_bytes()


@pytest.fixture(autouse=True)
def _without_further_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a plain installation, whatever else is installed where the tests run."""
    for name in (
        "JPEGLossless",
        "JPEGLosslessSV1",
        "JPEGLSLossless",
        "JPEGLSNearLossless",
        "JPEGExtended12Bit",
    ):
        decoder = getattr(pydicom.pixels.decoders.base, f"{name}Decoder")
        pillow_only = {key: value for key, value in decoder._available.items() if key == "pillow"}
        monkeypatch.setattr(decoder, "_available", pillow_only)


@pytest.mark.parametrize(
    ("name", "syntax", "stored", "bits", "error"), SAMPLES, ids=[row[0] for row in SAMPLES]
)
def test_each_syntax_gives_the_stored_numbers(
    tmp_path: Path, name: str, syntax: str, stored: np.ndarray, bits: int, error: int
) -> None:
    rescale = (
        {"RescaleSlope": 1, "RescaleIntercept": 2 ** (bits - 1)} if stored.dtype.kind == "i" else {}
    )
    path = write_dicom(tmp_path / "a.dcm", stored, syntax, bits=bits, frame=frame(name), **rescale)
    decoded = decode_with_gdcm(str(path), pydicom.dcmread(path))
    assert decoded.dtype == stored.dtype
    assert np.abs(decoded.astype(int) - stored).max() <= error
    np.testing.assert_allclose(
        load(path), UNIT * ((2**bits - 1) // 255 * 255) / (2**bits - 1), atol=1e-2
    )
    plain = write_dicom(tmp_path / "b.dcm", decoded, bits=bits, **rescale)
    np.testing.assert_array_equal(load(path), load(plain))


@pytest.mark.parametrize(
    "elements",
    [
        {"PhotometricInterpretation": "MONOCHROME1"},
        {"PhotometricInterpretation": "MONOCHROME1", "WindowCenter": 1500, "WindowWidth": 900},
        {"RescaleSlope": "-0.5", "RescaleIntercept": 100, "WindowCenter": -700, "WindowWidth": 500},
        {"PixelPaddingValue": int(GRAY12[0, 0])},
        {
            "PixelPaddingValue": int(GRAY12[0, 0]),
            "PixelPaddingRangeLimit": 400,
            "RescaleIntercept": -50,
        },
        {"SOPClassUID": uid.CTImageStorage, "RescaleSlope": 2, "RescaleIntercept": -1024},
    ],
)
def test_the_rules_are_those_of_the_uncompressed_twin(
    tmp_path: Path, elements: dict[str, Any]
) -> None:
    compressed, plain = (
        write_dicom(tmp_path / f"{syntax}.dcm", GRAY12, syntax, bits=12, frame=data, **elements)
        for syntax, data in (
            (uid.JPEGLSLossless, frame("jpegls_12bit.jls")),
            (uid.ExplicitVRLittleEndian, None),
        )
    )
    np.testing.assert_array_equal(load(compressed), load(plain))
    for key in ("scaled_by", "photometric", "bits"):
        assert metadata(compressed)[key] == metadata(plain)[key]
    np.testing.assert_array_equal(
        metadata(compressed)["intensity_range"], metadata(plain)["intensity_range"]
    )


def test_gdcm_and_pydicom_agree_on_what_both_decode(tmp_path: Path) -> None:
    jpeg, jpeg2000 = BytesIO(), BytesIO()
    Image.fromarray(GRAY8).save(jpeg, "JPEG")
    Image.fromarray(GRAY16).save(jpeg2000, "JPEG2000")
    rle = pydicom.dcmread(write_dicom(tmp_path / "a.dcm", GRAY12, bits=12))
    rle.compress(uid.RLELossless)
    for syntax, pixels, bits, data in (
        (uid.JPEGBaseline8Bit, GRAY8, 8, jpeg.getvalue()),
        (uid.JPEG2000Lossless, GRAY16, 16, jpeg2000.getvalue()),
        (
            uid.RLELossless,
            GRAY12,
            12,
            pydicom.encaps.get_frame(rle.PixelData, 0, number_of_frames=1),
        ),
    ):
        path = write_dicom(tmp_path / "a.dcm", pixels, syntax, bits=bits, frame=data)
        expected = pydicom.dcmread(path).pixel_array
        np.testing.assert_array_equal(decode_frame(data, syntax, HEIGHT, WIDTH, bits), expected)


def test_fragments_and_a_wider_frame(tmp_path: Path) -> None:
    """A frame may be cut into fragments, and numbers of 12 bits be compressed as 16."""
    path = write_dicom(
        tmp_path / "a.dcm", GRAY12, uid.JPEGLSLossless, bits=12, frame=frame("jpegls_12bit.jls")
    )
    dataset = pydicom.dcmread(path)
    dataset.PixelData = pydicom.encaps.encapsulate(
        [frame("jpegls_12bit.jls")], fragments_per_frame=3
    )
    dataset.save_as(path)
    np.testing.assert_array_equal(read_dicom(str(path), SizeLimits()).values, GRAY12)
    wide = frame("lossless_process14_16bit_signed.jpg")
    path = write_dicom(tmp_path / "b.dcm", SIGNED16, uid.JPEGLossless, bits=12, frame=wide)
    np.testing.assert_array_equal(decode_with_gdcm(str(path), pydicom.dcmread(path)), SIGNED16)
    with pytest.warns(RadiographWarning, match="states 12 bits and has numbers of 16"):
        load(path)


def _resized(data: bytes) -> bytes:
    """The same frame, which says that it has 60000 rows and columns."""
    at = data.index(b"\xff\xf7") + 5
    return data[:at] + (60000).to_bytes(2, "big") * 2 + data[at + 4 :]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:500], "the frame has no end"),
        (lambda data: data[:-2] + b"\0\0", "the frame has no end"),
        (lambda data: data[:500] + data[-2:], "cannot be decoded"),
        (lambda data: data[:8], "the frame has no header"),
        (lambda data: bytes(100), "the frame has no header"),
        (_resized, "the frame has 60000 rows, 60000 columns and 1 samples"),
    ],
)
def test_damaged_frames_are_refused(
    tmp_path: Path, change: Callable[[bytes], bytes], reason: str
) -> None:
    data = change(frame("jpegls_12bit.jls"))
    message = refused(
        write_dicom(tmp_path / "a.dcm", GRAY12, uid.JPEGLSLossless, bits=12, frame=data)
    )
    assert "is cut or damaged" in message
    assert reason in message
    assert "ITK" not in message


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ({"NumberOfFrames": 2}, "holds 2 frames"),
        (
            {"SamplesPerPixel": 3, "PlanarConfiguration": 0, "PhotometricInterpretation": "RGB"},
            "and 1 samples, the header",
        ),
        (
            {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7},
            "the frame has 12 bits, the header 8",
        ),
        ({"Rows": 60000, "Columns": 60000}, "max_pixels"),
        ({"Rows": HEIGHT + 1}, "cut or damaged"),
    ],
)
def test_headers_are_refused_as_of_other_files(
    tmp_path: Path, elements: dict[str, Any], reason: str
) -> None:
    data = frame("jpegls_12bit.jls")
    path = write_dicom(
        tmp_path / "a.dcm", GRAY12, uid.JPEGLSLossless, bits=12, frame=data, **elements
    )
    assert reason in refused(path)


def test_random_damage_is_refused_or_read(tmp_path: Path) -> None:
    """Whatever is changed behind the header of a frame: a picture of the right size or our error, and no crash."""
    rng = np.random.default_rng(0)
    for name, syntax, stored, bits, _ in SAMPLES:
        for _ in range(4):
            data = np.frombuffer(frame(name), np.uint8).copy()
            data[rng.integers(60, len(data) - 2, 3)] = rng.integers(0, 256, 3)
            path = write_dicom(tmp_path / "a.dcm", stored, syntax, bits=bits, frame=data.tobytes())
            with contextlib.suppress(RadiographError):
                assert decode_with_gdcm(str(path), pydicom.dcmread(path)).shape == stored.shape


@pytest.mark.slow
def test_itk_is_loaded_for_what_needs_it_only(tmp_path: Path) -> None:
    """MONAI imports the package itself, which is quick; its libraries take seconds."""
    Image.fromarray(GRAY8).save(tmp_path / "a.png")
    write_dicom(tmp_path / "a.dcm", GRAY12, bits=12)
    # JPEG-LS is decoded without ITK where pyjpegls is installed
    write_dicom(
        tmp_path / "b.dcm",
        GRAY12,
        uid.JPEGLosslessSV1,
        bits=12,
        frame=frame("lossless_sv1_12bit.jpg"),
    )
    code = f"""
import sys
import monai_afire
from monai_afire.transforms import LoadRadiograph
loaded = []
for name in ("a.png", "a.dcm", "b.dcm"):
    LoadRadiograph()({str(tmp_path)!r} + "/" + name)
    loaded.append(any(module.startswith("itk.") and module.endswith("Python") for module in sys.modules))
print(loaded)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[False, False, True]"
