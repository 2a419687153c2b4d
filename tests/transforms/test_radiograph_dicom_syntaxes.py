# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Compressed DICOM files whose headers and frames disagree, and what each set of installed decoders makes of them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom import uid
from radiograph_files import GRAY8, GRAY12, HEIGHT, WIDTH, load, refused, write_dicom

pytestmark = pytest.mark.filterwarnings(
    "error::monai_afire.transforms.radiograph_io.common.RadiographWarning"
)

FRAMES = Path(__file__).parent / "compressed_frames"
DECODERS = ("JPEGBaseline8Bit", "JPEGLosslessSV1", "JPEGLSLossless", "JPEG2000Lossless")


def pictures() -> dict[str, tuple[uid.UID, np.ndarray, int, bytes]]:
    """Transfer syntax, numbers, bits and frame by codec."""
    Image.fromarray(GRAY8).save(jpeg := BytesIO(), "JPEG", quality=100)
    Image.fromarray(GRAY12).save(jpeg_2000 := BytesIO(), "JPEG2000", no_jp2=True)
    lossless, jpeg_ls = (FRAMES / name for name in ("lossless_sv1_12bit.jpg", "jpegls_12bit.jls"))
    return {
        "JPEG baseline": (uid.JPEGBaseline8Bit, GRAY8, 8, jpeg.getvalue()),
        "JPEG lossless": (uid.JPEGLosslessSV1, GRAY12, 12, lossless.read_bytes()),
        "JPEG-LS": (uid.JPEGLSLossless, GRAY12, 12, jpeg_ls.read_bytes()),
        "JPEG 2000": (uid.JPEG2000Lossless, GRAY12, 16, jpeg_2000.getvalue()),
    }


@pytest.fixture(params=["all decoders", "plain installation", "GDCM alone"])
def _installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoders that pydicom finds: all that are installed here, Pillow, or none."""
    kept = {"all decoders": None, "plain installation": ("pillow",), "GDCM alone": ()}[
        request.param
    ]
    for name in DECODERS if kept is not None else ():
        decoder = getattr(pydicom.pixels.decoders.base, f"{name}Decoder")
        left = {key: value for key, value in decoder._available.items() if key in (kept or ())}
        monkeypatch.setattr(decoder, "_available", left)


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("codec", pictures())
def test_a_frame_is_read_or_refused_whatever_is_installed(tmp_path: Path, codec: str) -> None:
    syntax, numbers, bits, frame = pictures()[codec]
    path = write_dicom(tmp_path / "a.dcm", numbers, syntax, bits=bits, frame=frame)
    np.testing.assert_allclose(
        load(path), numbers / (255 if bits == 8 else 4095), atol=2 / 255 if bits == 8 else 1e-6
    )
    turned = write_dicom(
        tmp_path / "b.dcm", numbers, syntax, bits=bits, frame=frame, Rows=WIDTH, Columns=HEIGHT
    )
    assert f"{HEIGHT} rows, {WIDTH} columns" in refused(turned)
    if bits > 8:
        byte = {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7}
        assert "bits, the header 8" in refused(
            write_dicom(tmp_path / "c.dcm", numbers, syntax, frame=frame, **byte)
        )
    refused(
        write_dicom(tmp_path / "d.dcm", numbers, syntax, bits=bits, frame=frame[: len(frame) // 2])
    )


@pytest.mark.usefixtures("_installed")
def test_a_stray_zero_before_the_end_of_jpeg_ls(tmp_path: Path) -> None:
    """CharLS #437: a file of DICOM's Working Group 4 has it; CharLS refuses it, GDCM does not."""
    syntax, numbers, bits, frame = pictures()["JPEG-LS"]
    frame = frame.rstrip(b"\0")[:-2] + b"\0\xff\xd9"
    path = write_dicom(tmp_path / "a.dcm", numbers, syntax, bits=bits, frame=frame)
    np.testing.assert_allclose(load(path), numbers / 4095, atol=1e-6)


@pytest.mark.parametrize("codec", pictures())
@pytest.mark.parametrize("stated", [uid.ExplicitVRLittleEndian, uid.ImplicitVRLittleEndian, ""])
def test_compressed_pixels_stated_as_uncompressed(tmp_path: Path, codec: str, stated: str) -> None:
    syntax, numbers, bits, frame = pictures()[codec]
    path = write_dicom(tmp_path / "a.dcm", numbers, syntax, bits=bits, frame=frame)
    message = refused(restated(path, syntax, stated))
    assert codec in message
    assert "uncompressed" in message
    assert (stated or uid.ExplicitVRLittleEndian) in message


def restated(path: Path, syntax: str, stated: str) -> Path:
    """The file, which states another transfer syntax, or none."""
    content = path.read_bytes()
    if not stated:
        dataset = pydicom.dcmread(path)
        del dataset.file_meta.TransferSyntaxUID
        dataset.save_as(path, enforce_file_format=False, implicit_vr=False, little_endian=True)
        return path
    even = len(syntax) + len(syntax) % 2
    path.write_bytes(
        content.replace(syntax.encode().ljust(even, b"\0"), stated.encode().ljust(even, b"\0"), 1)
    )
    return path


def test_small_compressed_pixels_are_not_read_as_noise(tmp_path: Path) -> None:
    """Fragments may be as long as the plain numbers would be: then their length does not show what they are."""
    frame = pictures()["JPEG-LS"][3]
    path = write_dicom(
        tmp_path / "a.dcm", GRAY8, uid.JPEGLSLossless, frame=frame + bytes(2 * GRAY8.size)
    )
    assert "uncompressed" in refused(restated(path, uid.JPEGLSLossless, uid.ExplicitVRLittleEndian))


def test_plain_numbers_stated_as_compressed(tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12)
    content = path.read_bytes()
    stated = uid.ExplicitVRLittleEndian.encode() + b"\0"
    length = len(stated).to_bytes(2, "little")
    longer = uid.JPEG2000Lossless.encode()
    place = content.index(length + stated)
    content = (
        content[:place]
        + len(longer).to_bytes(2, "little")
        + longer
        + content[place + 2 + len(stated) :]
    )
    path.write_bytes(content)
    message = refused(path)
    assert uid.JPEG2000Lossless in message
    assert "not encapsulated" in message


@pytest.mark.parametrize("stated", ["1.2.840.113845.1.2.1", "1.2.840.10008.1.2.4.99", "1.2.3"])
def test_unknown_transfer_syntaxes_are_named(tmp_path: Path, stated: str) -> None:
    path = write_dicom(tmp_path / "a.dcm", GRAY12, uid.JPEGBaseline8Bit, bits=12, frame=bytes(100))
    message = refused(restated(path, uid.JPEGBaseline8Bit, stated))
    assert f"transfer syntax {stated}" in message
    assert "cut or damaged" not in message


@pytest.mark.parametrize(
    "stated", [uid.JPEGLosslessSV1, uid.JPEG2000Lossless, uid.JPEGBaseline8Bit, uid.RLELossless]
)
def test_another_codec_than_the_stated_one_is_named(tmp_path: Path, stated: uid.UID) -> None:
    _, numbers, bits, frame = pictures()["JPEG-LS"]
    message = refused(write_dicom(tmp_path / "a.dcm", numbers, stated, bits=bits, frame=frame))
    assert stated in message
    assert "JPEG-LS" in message


def test_a_data_set_stated_as_deflated(tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", GRAY12, uid.JPEGBaseline8Bit, bits=12, frame=bytes(100))
    stated = uid.DeflatedExplicitVRLittleEndian
    assert stated in refused(restated(path, uid.JPEGBaseline8Bit, stated))
