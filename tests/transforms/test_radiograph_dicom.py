# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loading of radiographs from DICOM files."""

from __future__ import annotations

import tempfile
import warnings
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pydicom import uid
from pydicom.pixels import apply_modality_lut, apply_windowing
from radiograph_files import (
    GRAY8,
    GRAY12,
    GRAY16,
    HEIGHT,
    UNIT,
    load,
    metadata,
    refused,
    write_dicom,
)

from monai_afire.transforms.radiograph_io.common import RadiographWarning
from monai_afire.transforms.radiograph_io.intensity import window_to_unit

pytestmark = pytest.mark.filterwarnings(
    "error::monai_afire.transforms.radiograph_io.common.RadiographWarning"
)

SYNTAXES = [
    uid.ImplicitVRLittleEndian,
    uid.ExplicitVRLittleEndian,
    uid.ExplicitVRBigEndian,
    uid.DeflatedExplicitVRLittleEndian,
]


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_dicom_syntaxes(tmp_path: Path, syntax: str) -> None:
    path = write_dicom(tmp_path / "a.dcm", GRAY12, syntax, bits=12)
    np.testing.assert_allclose(load(path), GRAY12 / 4095, atol=1e-6)


@pytest.mark.parametrize(
    ("pixels", "bits", "elements"),
    [
        (4095 - GRAY12, 12, {"PhotometricInterpretation": "MONOCHROME1"}),
        (4095 - GRAY12, 16, {"PhotometricInterpretation": "MONOCHROME1"}),  # 12 bits declared as 16
        (4095 - GRAY12, 12, {"RescaleSlope": -1, "RescaleIntercept": 4095}),
        (
            GRAY12,
            12,
            {"RescaleSlope": -1, "RescaleIntercept": 0, "PhotometricInterpretation": "MONOCHROME1"},
        ),
        (GRAY12, 12, {"RescaleSlope": "0.37", "RescaleIntercept": "-1024"}),
        (GRAY12.astype(np.int16) - 2048, 12, {"RescaleSlope": 1, "RescaleIntercept": 2048}),
        (GRAY12.astype(np.int16) - 2048, 12, {"RescaleSlope": 2, "RescaleIntercept": 4096}),
        (
            2047 - GRAY12.astype(np.int16),
            12,
            {
                "RescaleSlope": 1,
                "RescaleIntercept": 2048,
                "PhotometricInterpretation": "MONOCHROME1",
            },
        ),
    ],
)
def test_dicom_without_window_shows_the_same_picture(
    tmp_path: Path, pixels: np.ndarray, bits: int, elements: dict[str, Any]
) -> None:
    path = write_dicom(tmp_path / "a.dcm", pixels, bits=bits, **elements)
    np.testing.assert_allclose(load(path), GRAY12 / 4095, atol=1e-6)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(10, 16), st.booleans(), st.booleans())
def test_monochrome1_equals_its_twin(seed: int, bits: int, signed: bool, window: bool) -> None:
    rng = np.random.default_rng(seed)
    top = 2**bits - 1
    low, high = np.sort(rng.integers(0, top, 2))
    span = max(int(high - low), top // 3)
    pixels = np.clip(rng.integers(low, low + span + 1, (32, 33)), 0, top)
    pixels[0, :2] = 0, min(top, span)
    offset = 2 ** (bits - 1) if signed else 0
    kind = np.int16 if signed else np.uint16
    center, width = float(rng.integers(1, top)), float(rng.integers(2, top))
    intercept = -float(rng.integers(0, 2000)) + offset
    with tempfile.TemporaryDirectory() as folder:
        pictures = []
        for photometric, stored in (("MONOCHROME2", pixels), ("MONOCHROME1", top - pixels)):
            elements: dict[str, Any] = {"PhotometricInterpretation": photometric, "RescaleSlope": 1}
            elements["RescaleIntercept"] = intercept
            if window:
                # the mirrored LINEAR window has its center one further: it is open on one side
                middle = center if photometric == "MONOCHROME2" else top - center + 1
                shift = intercept - offset
                elements |= {"WindowCenter": middle + shift, "WindowWidth": width}
            path = write_dicom(
                Path(folder) / "a.dcm", (stored - offset).astype(kind), bits=bits, **elements
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                pictures.append(load(path))
    np.testing.assert_allclose(pictures[0], pictures[1], atol=2e-6)


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
def test_window_agrees_with_pydicom(tmp_path: Path, function: str) -> None:
    path = write_dicom(
        tmp_path / "a.dcm",
        GRAY12,
        bits=12,
        RescaleSlope=2,
        RescaleIntercept=-100,
        WindowCenter=[1500, 3],
        WindowWidth=[2000, 4],
        VOILUTFunction=function,
    )
    dataset = pydicom.dcmread(path)
    shown = apply_windowing(apply_modality_lut(dataset.pixel_array, dataset), dataset)
    lowest, highest = -100.0, 2 * 4095 - 100.0
    np.testing.assert_allclose(load(path), (shown - lowest) / (highest - lowest), atol=1e-6)
    meta = metadata(path)
    assert meta["scaled_by"] == "window"
    np.testing.assert_allclose(meta["intensity_range"], (500, 2500))
    assert metadata(path, use_window=False)["scaled_by"] == "depth"


def test_window_formulas() -> None:
    x = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(window_to_unit(x, 2.5, 3), [0, 0, 0.5, 1, 1])
    np.testing.assert_allclose(window_to_unit(x, 2, 4, "LINEAR_EXACT"), [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(window_to_unit(x, 2.5, 1), [0, 0, 0, 1, 1])
    np.testing.assert_allclose(window_to_unit(x, 2, 4, "SIGMOID")[2:4], [0.5, 1 / (1 + np.exp(-1))])
    for arguments in (
        (2.0, 0.0),
        (2.0, -1.0),
        (2.0, 0.5),
        (float("nan"), 5.0),
        (2.0, 5.0, "CUBIC"),
    ):
        with pytest.raises(ValueError, match=r"window|function"):
            window_to_unit(x, *arguments)


@pytest.mark.parametrize("window", [(0, 0), (10**6, 10), (2000, -5)])
def test_useless_windows_are_replaced(tmp_path: Path, window: tuple[int, int]) -> None:
    path = write_dicom(
        tmp_path / "a.dcm", GRAY12, bits=12, WindowCenter=window[0], WindowWidth=window[1]
    )
    with pytest.warns(RadiographWarning, match="window"):
        np.testing.assert_allclose(load(path), GRAY12 / 4095, atol=1e-6)


@pytest.mark.parametrize("bits", [8, 12])
@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
def test_voi_lut(tmp_path: Path, bits: int, photometric: str) -> None:
    table = (np.linspace(0, 1, 3000) ** 2 * (2**bits - 1)).astype("<u2")
    item = pydicom.Dataset()
    item.LUTDescriptor = [len(table), 500, bits]
    item.LUTData = table.tobytes()
    item["LUTData"].VR = "OW"
    path = write_dicom(
        tmp_path / "a.dcm",
        GRAY12,
        bits=12,
        VOILUTSequence=[item],
        PhotometricInterpretation=photometric,
    )
    shown = table[np.clip(GRAY12.astype(int) - 500, 0, len(table) - 1)] / (2.0**bits - 1)
    expected = 1 - shown if photometric == "MONOCHROME1" else shown
    np.testing.assert_allclose(load(path), expected, atol=1e-6)


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize("value", [0, 65535])
def test_padding_is_black_and_does_not_count(tmp_path: Path, photometric: str, value: int) -> None:
    inside = GRAY12[9:] + 100
    pixels = np.full(GRAY12.shape, value, np.uint16)
    pixels[9:] = 4095 - inside if photometric == "MONOCHROME1" else inside
    path = write_dicom(
        tmp_path / "a.dcm",
        pixels,
        bits=16,
        PixelPaddingValue=value,
        PhotometricInterpretation=photometric,
    )
    expected = np.zeros(GRAY12.shape)
    expected[9:] = inside / 4095
    np.testing.assert_allclose(load(path), expected, atol=1e-6)


@pytest.mark.parametrize(("photometric", "mode"), [("RGB", "RGB"), ("YBR_FULL", "YCbCr")])
def test_color_dicom_is_reduced_with_a_warning(tmp_path: Path, photometric: str, mode: str) -> None:
    pixels = np.asarray(Image.fromarray(GRAY8).convert("RGB").convert(mode))
    path = write_dicom(tmp_path / "a.dcm", pixels, PhotometricInterpretation=photometric)
    with pytest.warns(RadiographWarning, match=rf"color picture \({photometric}\)"):
        np.testing.assert_allclose(load(path), UNIT, atol=1.5 / 255)


def test_compressed_dicom(tmp_path: Path) -> None:
    for kind, syntax, pixels, tolerance in (
        ("JPEG2000", uid.JPEG2000Lossless, GRAY16, 1e-6),
        ("JPEG", uid.JPEGBaseline8Bit, GRAY8, 8 / 255),
    ):
        stream = BytesIO()
        Image.fromarray(pixels).save(stream, kind)
        path = write_dicom(tmp_path / "a.dcm", pixels, syntax, frame=stream.getvalue())
        np.testing.assert_allclose(load(path), UNIT, atol=tolerance)
        path = write_dicom(tmp_path / "a.dcm", pixels, syntax, frame=stream.getvalue()[:300])
        assert "cut or damaged" in refused(path)
    dataset = pydicom.dcmread(write_dicom(tmp_path / "a.dcm", GRAY12, bits=12))
    dataset.compress(uid.RLELossless)
    dataset.save_as(tmp_path / "b.dcm")
    np.testing.assert_allclose(load(tmp_path / "b.dcm"), GRAY12 / 4095, atol=1e-6)
    content = (tmp_path / "b.dcm").read_bytes()
    (tmp_path / "b.dcm").write_bytes(content[:-200])
    with pytest.warns(UserWarning, match="End of file"):
        assert "cut or damaged" in refused(tmp_path / "b.dcm")


@pytest.mark.parametrize(
    ("syntax", "remedy"),
    [
        (uid.HTJ2KLossless, "pip install pylibjpeg pylibjpeg-openjpeg"),
        (uid.MPEG2MPML, "export it uncompressed"),
    ],
)
def test_what_nothing_decodes_is_named(tmp_path: Path, syntax: uid.UID, remedy: str) -> None:
    path = write_dicom(tmp_path / "a.dcm", GRAY12, syntax, bits=12, frame=bytes(100))
    message = refused(path)
    assert f"is compressed as {syntax.name}, which neither pydicom nor ITK decodes" in message
    assert remedy in message


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ({"NumberOfFrames": 3}, "holds 3 frames"),
        ({"PhotometricInterpretation": ""}, "without PhotometricInterpretation"),
        ({"Rows": HEIGHT + 1}, "cut or damaged"),
        ({"Rows": 60000, "Columns": 60000}, "max_pixels"),
    ],
)
def test_refused_dicom(tmp_path: Path, elements: dict[str, Any], reason: str) -> None:
    assert reason in refused(write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, **elements))


@pytest.mark.parametrize("way", ["plain", "long header", "no preamble"])
def test_deflate_bomb_is_refused_uninflated(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However its header is written, a few kilobytes cannot become more than the largest accepted picture."""
    path = write_dicom(tmp_path / "a.dcm", GRAY12, uid.DeflatedExplicitVRLittleEndian, bits=12)
    dataset = pydicom.dcmread(path)
    if way == "long header":
        dataset.file_meta.PrivateInformationCreatorUID = "1.2.3"
        dataset.file_meta.PrivateInformation = bytes(4000)
    dataset.add_new((0x7FE1, 0x1001), "OB", bytes(2**25))
    dataset.save_as(path, enforce_file_format=True)
    if way == "no preamble":
        path.write_bytes(path.read_bytes()[132:])
    assert path.stat().st_size < 2**17
    inflated = []
    monkeypatch.setattr(
        zlib, "decompress", lambda *arguments, **options: inflated.append(arguments)
    )
    maximum = 4 * GRAY12.size + 2**24
    assert f"inflates to more than {maximum} bytes" in refused(path, max_pixels=GRAY12.size)
    assert not inflated


def test_not_upright_by_its_tag_gives_a_warning(tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, PatientOrientation=["L", "H"])
    with pytest.warns(RadiographWarning, match="not upright"):
        load(path)
    load(write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, PatientOrientation=["L", "F"]))


# ---- headers that do not fit their pixels


def pictured(path: Path) -> np.ndarray:
    return load(path)


def test_numbers_in_the_upper_bits_are_those_of_the_lower(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 2**12, (32, 32)).astype(np.uint16)
    plain = write_dicom(tmp_path / "plain.dcm", values, bits=12)
    upper = write_dicom(tmp_path / "upper.dcm", values << 4, bits=12, HighBit=15)
    np.testing.assert_array_equal(pictured(upper), pictured(plain))
    # the statement alone is wrong
    said = write_dicom(tmp_path / "said.dcm", values, bits=12, HighBit=15)
    np.testing.assert_array_equal(pictured(said), pictured(plain))


def test_numbers_beyond_the_stated_bits_are_not_cut(tmp_path: Path) -> None:
    values = np.linspace(0, 2**12 - 1, 1024).reshape(32, 32).astype(np.uint16)
    stated = write_dicom(tmp_path / "ten.dcm", values, bits=10)
    with pytest.warns(RadiographWarning, match="states 10 bits and has numbers of 12"):
        found = pictured(stated)
    np.testing.assert_array_equal(
        found, pictured(write_dicom(tmp_path / "twelve.dcm", values, bits=12))
    )


def test_an_overlay_above_the_numbers_is_left_out(tmp_path: Path) -> None:
    values = np.linspace(0, 2**12 - 1, 1024).reshape(32, 32).astype(np.uint16)
    plain = write_dicom(tmp_path / "plain.dcm", values, bits=12)
    with_overlay = write_dicom(tmp_path / "overlay.dcm", values | np.uint16(2**15), bits=12)
    dataset = pydicom.dcmread(with_overlay)
    dataset.add_new((0x6000, 0x0102), "US", 15)
    dataset.save_as(with_overlay)
    np.testing.assert_array_equal(pictured(with_overlay), pictured(plain))


@pytest.mark.parametrize("window", [{}, {"WindowCenter": 1000, "WindowWidth": 1000}])
def test_an_inverse_presentation_table_turns_the_picture(
    tmp_path: Path, window: dict[str, int]
) -> None:
    values = np.linspace(0, 2**12 - 1, 1024).reshape(32, 32).astype(np.uint16)
    plain = write_dicom(tmp_path / "plain.dcm", values, bits=12, **window)
    inverse = write_dicom(
        tmp_path / "inverse.dcm", values, bits=12, PresentationLUTShape="INVERSE", **window
    )
    np.testing.assert_allclose(pictured(inverse), 1 - pictured(plain), atol=1e-6)
    both = {"PhotometricInterpretation": "MONOCHROME1", "PresentationLUTShape": "INVERSE", **window}
    np.testing.assert_array_equal(
        pictured(write_dicom(tmp_path / "both.dcm", values, bits=12, **both)), pictured(inverse)
    )


def test_a_modality_table_of_12_bits_is_read(tmp_path: Path) -> None:
    values = (np.arange(1024) // 4).reshape(32, 32).astype(np.uint8)
    table = pydicom.Dataset()
    table.LUTDescriptor, table.ModalityLUTType = [256, 0, 12], "US"
    table.LUTData = np.linspace(0, 4095, 256).round().astype("<u2").tobytes()
    table["LUTData"].VR = "OW"
    path = write_dicom(tmp_path / "table.dcm", values, ModalityLUTSequence=[table])
    np.testing.assert_allclose(pictured(path), values / 255, atol=1e-3)


def test_a_compressed_picture_of_another_size_is_refused_undecoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = BytesIO()
    Image.fromarray(np.zeros((64, 64), np.uint8)).save(stream, format="JPEG2000", no_jp2=True)
    frame = bytearray(stream.getvalue())
    # behind marker, length and capabilities: the size, the rest unchanged
    start = frame.index(b"\xff\x51") + 6
    frame[start : start + 8] = (12_000).to_bytes(4, "big") * 2
    values = np.zeros((64, 64), np.uint8)
    path = write_dicom(tmp_path / "bomb.dcm", values, uid.JPEG2000Lossless, frame=bytes(frame))
    monkeypatch.setattr(
        pydicom.Dataset, "pixel_array", property(lambda self: pytest.fail("decoded"))
    )
    assert "12000 rows, 12000 columns and 1 samples, the header 64, 64 and 1" in refused(path)
