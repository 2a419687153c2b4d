# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""DICOM files: windows, tables, stored bits, overlays, padding, colors, and every codec with and without decoders.

The frames in ``compressed_frames`` are the picture of ``radiograph_files`` as encoders other than GDCM's wrote it:
CharLS (``.jls``), libjpeg and a JPEG lossless encoder of its own (``.jpg``).
"""

from __future__ import annotations

import contextlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom import uid
from pydicom.pixels import apply_modality_lut, apply_voi_lut

from monai_afire.transforms import LoadRadiograph, RadiographWarning
from unit.transforms.radiograph_files import (
    GRAY8,
    GRAY12,
    GRAY16,
    HEIGHT,
    WIDTH,
    load,
    metadata,
    refused,
    write_dicom,
)

pytestmark = pytest.mark.filterwarnings("error::monai_afire.transforms.RadiographWarning")

FRAMES = Path(__file__).parent / "compressed_frames"
PLAIN = [
    uid.ImplicitVRLittleEndian,
    uid.ExplicitVRLittleEndian,
    uid.ExplicitVRBigEndian,
    uid.DeflatedExplicitVRLittleEndian,
]
MONO1: dict[str, Any] = {"PhotometricInterpretation": "MONOCHROME1"}
SIGNED12 = GRAY12.astype(np.int16) - 2048
SIGNED16 = (GRAY16.astype(np.int32) - 2**15).astype(np.int16)


def edited(path: Path, elements: dict[int, tuple[str, Any]]) -> Path:
    """The file with further elements."""
    dataset = pydicom.dcmread(path)
    for tag, (vr, value) in elements.items():
        dataset.add_new(tag, vr, value)
    dataset.save_as(path)
    return path


def with_raw(path: Path, keyword: str, text: bytes) -> Path:
    """The file with an element of this text, whatever its VR allows."""
    dataset, tag = pydicom.dcmread(path), pydicom.tag.Tag(keyword)
    dataset[tag] = pydicom.dataelem.RawDataElement(tag, "DS", len(text), text, 0, False, True)
    dataset.save_as(path)
    return path


# ---- intensities


@pytest.mark.parametrize(
    ("pixels", "bits", "elements"),
    [
        (GRAY12, 12, {}),
        (4095 - GRAY12, 12, {"PresentationLUTShape": "INVERSE"}),
        (4095 - GRAY12, 16, MONO1),  # 12 bits declared as 16
        (4095 - GRAY12, 12, {"RescaleSlope": -1, "RescaleIntercept": 4095}),
        (GRAY12, 12, {"RescaleSlope": -1, "RescaleIntercept": 0, **MONO1}),
        (GRAY12, 12, {"RescaleSlope": "0.37", "RescaleIntercept": "-1024"}),
        (SIGNED12, 12, {"RescaleSlope": 2, "RescaleIntercept": 4096}),
        (-1 - SIGNED12, 12, {"RescaleSlope": 1, "RescaleIntercept": 2048, **MONO1}),
        (-1 - SIGNED12, 12, {"RescaleSlope": -1, "RescaleIntercept": 2047}),
    ],
)
def test_the_same_picture_without_a_window(
    tmp_path: Path, pixels: np.ndarray, bits: int, elements: dict[str, Any]
) -> None:
    for syntax in PLAIN:
        path = write_dicom(tmp_path / "a.dcm", pixels, syntax, bits=bits, **elements)
        np.testing.assert_allclose(load(path), GRAY12 / 4095, atol=1e-6)


@pytest.mark.parametrize(
    ("center", "width", "function", "shown"),
    [
        (2.5, 3, "LINEAR", [0, 0, 0.5, 1, 1]),
        (2.5, 1, "LINEAR", [0, 0, 0, 1, 1]),
        (2, 4, "LINEAR_EXACT", [0, 0.25, 0.5, 0.75, 1]),
        (2, 4, "SIGMOID", 1 / (1 + np.exp(2.0 - np.arange(5)))),
    ],
)
def test_windows_by_hand(
    tmp_path: Path, center: float, width: float, function: str, shown: Any
) -> None:
    """PS3.3 C.11.2.1.2 of the numbers 0 to 4, which are 100 to 108 after the modality transformation."""
    numbers = np.tile(np.arange(5, dtype=np.uint16), (32, 8))
    window: dict[str, Any] = {"WindowCenter": [center, 3], "WindowWidth": [width, 4]}
    window["VOILUTFunction"] = function
    path = write_dicom(tmp_path / "a.dcm", numbers, **window)
    np.testing.assert_allclose(load(path)[0, :5], shown, atol=1e-6)
    assert metadata(path)["intensity_range"].tolist() == [center - width / 2, center + width / 2]
    assert metadata(path, apply_voi_lut=False)["scaled_by"] == "depth"
    white = write_dicom(tmp_path / "b.dcm", numbers, **window, **MONO1)
    np.testing.assert_allclose(load(white)[0, :5], 1 - np.asarray(shown), atol=1e-6)
    if function != "LINEAR":  # in which one is subtracted from the width
        window |= {"WindowCenter": 2 * center + 100, "WindowWidth": 2 * width}
        window |= {"RescaleSlope": 2, "RescaleIntercept": 100}
        path = write_dicom(tmp_path / "c.dcm", numbers, **window)
        np.testing.assert_allclose(load(path)[0, :5], shown, atol=1e-6)


@pytest.mark.parametrize(("width", "function"), [(4, "LINEAR"), (500, "CUBIC")])
def test_useless_windows_are_replaced(tmp_path: Path, width: float, function: str) -> None:
    window = {"WindowCenter": 10**6, "WindowWidth": width, "VOILUTFunction": function}
    path = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, **window)
    with pytest.warns(RadiographWarning, match="window"):
        np.testing.assert_allclose(load(path), GRAY12 / 4095, atol=1e-6)


# ---- lookup tables

CURVE = np.clip((np.arange(4096) - 400) / 3000, 0, 1)
TABLES = ["ModalityLUTSequence", "VOILUTSequence"]


def table(
    entries: np.ndarray, bits: int, first: int = 0, vr: str = "US", data: Any = None
) -> list[pydicom.Dataset]:
    """A sequence of one table; ``data`` are its entries as the file has them."""
    item = pydicom.Dataset()
    item.add_new("LUTDescriptor", vr, [len(entries) % 2**16, first, bits])
    written = entries.astype("<u2").tobytes() if data is None else data
    item.add_new("LUTData", "OW" if isinstance(written, bytes) else "US", written)
    item.ModalityLUTType = "US"
    return [item]


@pytest.mark.parametrize("keyword", TABLES)
@pytest.mark.parametrize(("count", "vr"), [(4096, "OW"), (4001, "US")])
def test_entries_of_8_bits_are_one_byte_each(
    tmp_path: Path, keyword: str, count: int, vr: str
) -> None:
    """PS3.3 C.11.1.1.1; one more byte makes an odd number even. (pydicom expects two bytes each.)"""
    entries = np.rint(CURVE[:count] * 255).astype(np.uint8)
    packed = entries.tobytes() + bytes(count % 2)
    data = packed if vr == "OW" else np.frombuffer(packed, "<u2").tolist()
    sequence = {keyword: table(entries, 8, data=data)}
    path = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, **sequence)
    expected = entries[np.minimum(GRAY12, count - 1)]
    np.testing.assert_allclose(load(path), expected / 255, atol=1e-6)


@pytest.mark.parametrize("keyword", TABLES)
@pytest.mark.parametrize(("stated", "used"), [(12, 12), (16, 12)])
def test_bits_of_entries_are_those_that_they_use(
    tmp_path: Path, keyword: str, stated: int, used: int
) -> None:
    """Agfa states the size of an entry in memory: shown by it, the picture would be nearly black."""
    entries = np.rint(CURVE * (2**used - 1))
    path = write_dicom(
        tmp_path / "a.dcm", GRAY12, bits=12, **MONO1, **{keyword: table(entries, stated)}
    )
    is_odd = pytest.warns(RadiographWarning, match=f"states {stated} bits")
    with contextlib.nullcontext() if stated == used else is_odd:
        found = load(path)
    np.testing.assert_allclose(found, 1 - entries[GRAY12] / (2.0**used - 1), atol=2e-6)


@pytest.mark.parametrize(("vr", "syntax"), [("SS", PLAIN[0]), ("US", PLAIN[1])])
@pytest.mark.parametrize("kind", ["unsigned", *TABLES])
def test_tables_that_start_below_zero(tmp_path: Path, kind: str, vr: str, syntax: str) -> None:
    """A negative intercept makes unsigned numbers negative, whatever VR the first one of the table has then."""
    entries, lowest = np.rint(CURVE * 4095), -1024 if kind == "unsigned" else -2048
    keyword = "VOILUTSequence" if kind == "unsigned" else kind
    elements: dict[str, Any] = {
        keyword: table(entries, 12, lowest if vr == "SS" else lowest + 2**16, vr)
    }
    if kind == "unsigned":
        elements |= {"RescaleSlope": 1, "RescaleIntercept": lowest}
    stored = GRAY12 if kind == "unsigned" else SIGNED12
    path = write_dicom(tmp_path / "a.dcm", stored, syntax, bits=12, **elements)
    np.testing.assert_allclose(load(path), entries[GRAY12] / 4095, atol=1e-6)
    if keyword == "VOILUTSequence":
        assert metadata(path)["scaled_by"] == "voi_lut"
        np.testing.assert_allclose(metadata(path)["intensity_range"], (lowest, lowest + 4095))


@pytest.mark.parametrize("first", [1000, 40000])
def test_tables_of_a_part_of_the_numbers(tmp_path: Path, first: int) -> None:
    """Numbers beyond have the first or last entry (C.11.2.1.1); a number above 32767 is not negative."""
    entries = np.rint(CURVE[:2000] * 65535)
    stored = GRAY12 + np.uint16(first - 500)
    for keyword, apply in zip(TABLES, (apply_modality_lut, apply_voi_lut), strict=True):
        path = write_dicom(tmp_path / "a.dcm", stored, **{keyword: table(entries, 16, first)})
        expected = apply(stored, pydicom.dcmread(path))
        np.testing.assert_array_equal(np.rint(load(path) * 65535), expected)


# ---- functional groups, spacing


def group(**macros: dict[str, Any]) -> list[pydicom.Dataset]:
    """Functional groups with one item for each macro."""
    found = pydicom.Dataset()
    for name, elements in macros.items():
        item = pydicom.Dataset()
        for keyword, value in elements.items():
            setattr(item, keyword, value)
        setattr(found, name, [item])
    return [found]


NEGATIVE = {"RescaleSlope": -1, "RescaleIntercept": 4095, "RescaleType": "US"}


@pytest.mark.parametrize("name", ["Shared", "PerFrame"])
def test_functional_groups_are_read_as_the_elements_on_top(tmp_path: Path, name: str) -> None:
    display = {"VOILUTSequence": table(np.rint(CURVE * 4095), 12)}
    spacing = {"PixelSpacing": [0.2, 0.3]}
    groups = group(
        FrameVOILUTSequence=display,
        PixelValueTransformationSequence=NEGATIVE,
        PixelMeasuresSequence=spacing,
    )
    enhanced: dict[str, Any] = {f"{name}FunctionalGroupsSequence": groups}
    path = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, **enhanced)
    top: dict[str, Any] = {**spacing, **display, **NEGATIVE}
    np.testing.assert_array_equal(
        load(path), load(write_dicom(tmp_path / "b.dcm", GRAY12, bits=12, **top))
    )
    assert metadata(path)["spacing"].tolist() == [0.2, 0.3]


def test_the_frame_comes_before_what_frames_share(tmp_path: Path) -> None:
    window = {"WindowCenter": 1500, "WindowWidth": 1000, "VOILUTFunction": "SIGMOID"}
    shared = group(FrameVOILUTSequence=window, PixelValueTransformationSequence=NEGATIVE)
    own = group(FrameVOILUTSequence={"WindowCenter": 900, "WindowWidth": 700})
    elements = {"SharedFunctionalGroupsSequence": shared, "PerFrameFunctionalGroupsSequence": own}
    path = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, **elements)
    expected = np.clip((4095.0 - GRAY12 - 899.5) / 699 + 0.5, 0, 1)
    np.testing.assert_allclose(load(path), expected, atol=1e-6)


# ---- stored bits, overlays, padding


def test_numbers_in_the_upper_bits_are_those_of_the_lower(tmp_path: Path) -> None:
    upper = write_dicom(tmp_path / "upper.dcm", GRAY12 << 4, bits=12, HighBit=15)
    np.testing.assert_allclose(load(upper), GRAY12 / 4095, atol=1e-6)
    values = GRAY12 | 1  # here the statement alone is wrong
    said = write_dicom(tmp_path / "said.dcm", values, bits=12, HighBit=15)
    np.testing.assert_allclose(load(said), values / 4095, atol=1e-6)


def test_numbers_beyond_the_stated_bits_are_not_cut(tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "ten.dcm", GRAY12, bits=10)
    with pytest.warns(RadiographWarning, match="states 10 bits and has numbers of 12"):
        np.testing.assert_allclose(load(path), GRAY12 / 4095, atol=1e-6)


OVERLAY = np.zeros(GRAY12.shape, np.uint16)
OVERLAY[5:9, 3:50] = 1


def compressed(path: Path, syntax: str) -> Path:
    """The file with all bits of its cells compressed, whatever it states of them."""
    dataset = pydicom.dcmread(path)
    keywords = ("BitsStored", "HighBit", "PixelRepresentation")
    stated = {keyword: dataset[keyword].value for keyword in keywords}
    dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 15, 0
    dataset.compress(syntax, generate_instance_uid=False)
    for keyword, value in stated.items():
        setattr(dataset, keyword, value)
    dataset.save_as(path)
    return path


def overlay_at(place: int, group: int = 0x6000) -> dict[int, tuple[str, Any]]:
    return {group << 16 | 0x0100: ("US", 16), group << 16 | 0x0102: ("US", place)}


@pytest.mark.parametrize("syntax", ["", uid.JPEGLSLossless])
@pytest.mark.parametrize(("place", "shift", "signed"), [(12, 0, 0), (3, 4, 0), (15, 0, 1)])
def test_embedded_overlays_are_left_out(
    tmp_path: Path, syntax: str, place: int, shift: int, signed: int
) -> None:
    """At any position above or below the numbers (PS3.5 8.1.1), or beside their sign; the frame has all 16 bits."""
    numbers = SIGNED12.view(np.uint16) & 0x0FFF if signed else GRAY12
    cells = (numbers << shift) | (OVERLAY << place)
    elements = {"HighBit": 11 + shift, "PixelRepresentation": signed}
    path = write_dicom(tmp_path / "a.dcm", cells, bits=12, **elements)
    edited(compressed(path, syntax) if syntax else path, overlay_at(place))
    np.testing.assert_allclose(load(path), GRAY12 / 4095, atol=1e-6)


def test_an_overlay_of_its_own_takes_no_bit(tmp_path: Path) -> None:
    """It states position 0 and one bit (C.9.2): the lowest bit of the numbers stays."""
    cells = GRAY12 | 1
    path = write_dicom(tmp_path / "a.dcm", cells, bits=12)
    data = {0x60000100: ("US", 1), 0x60003000: ("OW", bytes(GRAY12.size // 8))}
    path = edited(path, {**overlay_at(0), **data})
    np.testing.assert_allclose(load(path), cells / 4095, atol=1e-6)


def padded(inside: np.ndarray, value: int) -> np.ndarray:
    """Numbers whose first rows are padding."""
    cells = inside.copy()
    cells[:9] = value
    return cells


@pytest.mark.parametrize(("value", "limit"), [(0, 0), (65530, 65535), (3, 0)])
def test_padding_is_black_and_does_not_count(tmp_path: Path, value: int, limit: int) -> None:
    inside = GRAY12 + 100
    elements: dict[str, Any] = {"PixelPaddingValue": value, "PixelPaddingRangeLimit": limit}
    for cell in (value, limit):
        for pixels, color in ((inside, {}), (4095 - inside, MONO1)):
            path = write_dicom(tmp_path / "a.dcm", padded(pixels, cell), **elements, **color)
            np.testing.assert_allclose(load(path), padded(inside, 0) / 4095, atol=1e-6)


@pytest.mark.parametrize(
    ("signed", "bits", "cell", "vr", "value"),
    [
        (True, 12, -32768, "US", 32768),  # outside of the 12 bits
        (True, 12, -2048, "US", 2048),  # as 12 bits show it without a sign
        (False, 16, 63536, "SS", -2000),
        (False, 12, 4095, "SS", -1),
    ],
)
def test_padding_of_another_sign(
    tmp_path: Path, signed: bool, bits: int, cell: int, vr: str, value: int
) -> None:
    """The VR of the padding value follows the numbers' sign (C.7.5.1.1.2), where writers know it."""
    inside = GRAY12 // 2 + 100
    numbers = padded(inside.astype(np.int32) - 1024 * signed, cell)
    stored = numbers.astype(np.int16 if signed else np.uint16)
    offset = {"RescaleSlope": 1, "RescaleIntercept": 1024} if signed else {}
    path = write_dicom(tmp_path / "a.dcm", stored, bits=bits, **offset)
    found = load(edited(path, {0x00280120: (vr, value)}))
    assert not found[:9].any()
    np.testing.assert_allclose(found[9:], inside[9:] / 4095, atol=1e-6)


def test_floating_point_numbers_and_their_padding(tmp_path: Path) -> None:
    values = padded((GRAY12 + 100).astype(np.float32), -9999)
    path = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12)
    dataset = pydicom.dcmread(path)
    del dataset.PixelData, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation
    dataset.BitsAllocated, dataset.FloatPixelPaddingValue = 32, -9999.0
    dataset.FloatPixelData = values.tobytes()
    dataset.save_as(path)
    np.testing.assert_allclose(load(path), padded(values, 0) / 4095, atol=1e-6)


# ---- compressed pixels


def encoded(kind: str, pixels: np.ndarray, **options: Any) -> bytes:
    Image.fromarray(pixels).save(stream := BytesIO(), kind, **options)
    return stream.getvalue()


def frame(name: str) -> bytes:
    return (FRAMES / name).read_bytes()


# transfer syntax, frame, stored numbers, bits, largest error
CODECS = {
    "baseline": (uid.JPEGBaseline8Bit, encoded("JPEG", GRAY8, quality=100), GRAY8, 8, 2),
    "2000": (uid.JPEG2000Lossless, encoded("JPEG2000", GRAY16, no_jp2=True), GRAY16, 16, 0),
    "2000 in a file": (uid.JPEG2000Lossless, encoded("JPEG2000", GRAY16), GRAY16, 16, 0),
    "LS 12": (uid.JPEGLSLossless, frame("jpegls_12bit.jls"), GRAY12, 12, 0),
    "LS signed": (uid.JPEGLSLossless, frame("jpegls_12bit_signed.jls"), SIGNED12, 12, 0),
    "signed": (uid.JPEGLossless, frame("lossless_process14_16bit_signed.jpg"), SIGNED16, 16, 0),
    "lossless": (uid.JPEGLosslessSV1, frame("lossless_sv1_12bit.jpg"), GRAY12, 12, 0),
    "extended": (uid.JPEGExtended12Bit, frame("extended_12bit.jpg"), GRAY12, 12, 16),
}


@pytest.fixture(params=["all decoders", "none"])
def _installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoders that pydicom finds: all that are installed here, or none, so that GDCM decodes."""
    for name in dir(pydicom.pixels.decoders.base) if request.param == "none" else ():
        if name.startswith("JPEG") and name.endswith("Decoder"):
            monkeypatch.setattr(getattr(pydicom.pixels.decoders.base, name), "_available", {})


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_gives_the_stored_numbers(tmp_path: Path, codec: str) -> None:
    syntax, data, stored, bits, error = CODECS[codec]
    path = write_dicom(tmp_path / "a.dcm", stored, syntax, bits=bits, frame=data)
    found = load(path, scaling="none").astype(int)
    assert np.abs(found - stored).max() <= error
    window = {"WindowCenter": int(-found.mean() / 2), "WindowWidth": int(np.ptp(found) / 4)}
    elements: dict[str, Any] = {**MONO1, "RescaleSlope": "-0.5", **window}
    plain = write_dicom(tmp_path / "b.dcm", found.astype(stored.dtype), bits=bits, **elements)
    path = write_dicom(tmp_path / "a.dcm", stored, syntax, bits, data, **elements)
    np.testing.assert_array_equal(load(path), load(plain))


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("codec", ["2000", "LS 12", "lossless"])
@pytest.mark.parametrize(
    "contradiction",
    [
        {"Rows": WIDTH, "Columns": HEIGHT},  # a turned picture of the same area would be noise
        {"SamplesPerPixel": 3, "PlanarConfiguration": 0, "PhotometricInterpretation": "RGB"},
        {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7},
    ],
)
def test_frames_that_contradict_their_header_are_refused(
    tmp_path: Path, codec: str, contradiction: dict[str, Any]
) -> None:
    syntax, data, stored, bits, _ = CODECS[codec]
    stated: dict[str, Any] = {"bits": bits, "frame": data, **contradiction}
    refused(write_dicom(tmp_path / "a.dcm", stored, syntax, **stated))


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("codec", ["2000", "lossless"])
def test_frames_that_are_cut_are_refused(tmp_path: Path, codec: str) -> None:
    syntax, data, stored, bits, _ = CODECS[codec]
    refused(write_dicom(tmp_path / "a.dcm", stored, syntax, bits, data[: len(data) // 2]))


def test_a_frame_that_claims_a_huge_size_is_refused_undecoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syntax, data, numbers, bits, _ = CODECS["2000"]
    start = data.index(b"\xff\x51") + 6  # behind marker, length and capabilities: the size
    huge = data[:start] + (12_000).to_bytes(4, "big") * 2 + data[start + 8 :]
    path = write_dicom(tmp_path / "bomb.dcm", numbers, syntax, bits=bits, frame=huge)
    undecoded = property(lambda self: pytest.fail("decoded"))
    monkeypatch.setattr(pydicom.Dataset, "pixel_array", undecoded)
    assert "12000" in refused(path)


@pytest.mark.parametrize("stated", [PLAIN[1], "1.2.840.113845.1.2.1"])
def test_pixels_of_another_syntax_are_refused_by_its_name(tmp_path: Path, stated: str) -> None:
    syntax, data, numbers, bits, _ = CODECS["LS 12"]
    # longer than plain numbers, whose length would show that they are not plain
    longer = data + bytes(2 * numbers.nbytes)
    path = write_dicom(tmp_path / "a.dcm", numbers, syntax, bits=bits, frame=longer)
    even = len(syntax) + len(syntax) % 2
    old, new = (text.encode().ljust(even, b"\0") for text in (syntax, stated))
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    assert stated in refused(path)


# ---- colors

# neither symmetric nor with two equal channels
RGB = np.stack([GRAY8, GRAY8[::-1], 255 - GRAY8], axis=-1)
SIZE = {"Rows": HEIGHT, "Columns": WIDTH}


def load_colors(path: Path) -> np.ndarray:
    """The picture as ``(H, W, 3)``."""
    image = LoadRadiograph(channels=3)(path)
    return np.moveaxis(np.asarray(image), 0, -1)


def to_ybr(rgb: np.ndarray) -> np.ndarray:
    """YBR_FULL of DICOM PS3.3 C.7.6.3.1.2."""
    matrix = [[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]]
    return np.clip(np.rint(rgb @ np.array(matrix).T + [0, 128, 128]), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("planar", [0, 1])
@pytest.mark.parametrize("photometric", ["RGB", "YBR_FULL"])
def test_colors_are_kept_or_reduced_to_luma(tmp_path: Path, photometric: str, planar: int) -> None:
    stored = RGB if photometric == "RGB" else to_ybr(RGB)
    written = np.moveaxis(stored, -1, 0) if planar else stored
    elements = {"PhotometricInterpretation": photometric, "PlanarConfiguration": planar, **SIZE}
    path = write_dicom(tmp_path / "a.dcm", written, **elements)
    tolerance = 1e-6 if photometric == "RGB" else 2.01 / 255
    np.testing.assert_allclose(load_colors(path), RGB / 255.0, atol=tolerance)
    with pytest.warns(RadiographWarning, match=rf"color picture \({photometric}\)"):
        np.testing.assert_allclose(load(path), RGB @ [0.299, 0.587, 0.114] / 255, atol=2 / 255)


def write_palette(
    path: Path, indices: np.ndarray, colors: np.ndarray, first: int = 0, **elements: Any
) -> Path:
    """A picture of indices; ``colors`` has a row of red, green and blue for each."""
    bits = elements.pop("depth", colors.dtype.itemsize * 8)
    lut: dict[str, Any] = {"PhotometricInterpretation": "PALETTE COLOR"}
    for channel, name in enumerate(("Red", "Green", "Blue")):
        lut[f"{name}PaletteColorLookupTableDescriptor"] = [len(colors) % 2**16, first, bits]
        lut[f"{name}PaletteColorLookupTableData"] = colors[:, channel].tobytes()
    return write_dicom(path, indices, **(lut | elements))


@pytest.mark.parametrize(("first", "dtype"), [(0, np.uint8), (5, np.uint16)])
@pytest.mark.parametrize("indices", [GRAY8 // 3, GRAY8.astype(np.uint16) * 2], ids=["8", "16"])
def test_palettes_are_looked_up(
    tmp_path: Path, dtype: type, first: int, indices: np.ndarray
) -> None:
    """Beyond the table's end the last entry counts, and an index above 255 does not come round."""
    colors = np.random.default_rng(0).integers(0, np.iinfo(dtype).max // 3, (64, 3)).astype(dtype)
    path = write_palette(tmp_path / "a.dcm", indices, colors, first)
    expected = colors[np.clip(indices.astype(int) - first, 0, 63)] / np.iinfo(dtype).max
    np.testing.assert_allclose(load_colors(path), expected, atol=1e-6)
    with pytest.warns(RadiographWarning, match="color picture"):
        assert load(path).shape == GRAY8.shape


# ---- refusals


@pytest.mark.parametrize(
    ("pixels", "elements"),
    [
        (RGB, {"PhotometricInterpretation": "YBR_RCT"}),  # of JPEG 2000 alone
        (RGB, {"PhotometricInterpretation": "MONOCHROME2"}),
        (RGB.astype(np.int16), {"PhotometricInterpretation": "RGB"}),  # black is not known
        (GRAY12, {"Rows": 60000, "Columns": 60000}),
        (GRAY12, {"NumberOfFrames": 3}),
        (GRAY12, {"SecondaryCaptureDeviceManufacturer": "monai_afire"}),  # a heat map of ours
    ],
)
def test_what_is_no_radiograph_is_refused(
    tmp_path: Path, pixels: np.ndarray, elements: dict[str, Any]
) -> None:
    refused(write_dicom(tmp_path / "a.dcm", pixels, **elements))


@pytest.mark.filterwarnings("ignore:Invalid value for VR DS")
@pytest.mark.parametrize("slope", [b"-1,0", b"nan "])
def test_a_slope_that_is_no_number_is_refused(tmp_path: Path, slope: bytes) -> None:
    """Its sign says what is dark."""
    refused(with_raw(write_dicom(tmp_path / "a.dcm", GRAY12), "RescaleSlope", slope))
