# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lookup tables and functional groups of DICOM files, as the standard has them and as writers do."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom import uid
from pydicom.pixels import apply_modality_lut, apply_voi_lut
from radiograph_files import GRAY12, load, metadata, refused, write_dicom

from monai_afire.transforms.radiograph_io.common import RadiographWarning

pytestmark = pytest.mark.filterwarnings(
    "error::monai_afire.transforms.radiograph_io.common.RadiographWarning"
)

CURVE = np.clip((np.arange(4096) - 400) / 3000, 0, 1)
LITTLE_ENDIAN = [uid.ImplicitVRLittleEndian, uid.ExplicitVRLittleEndian]


def table(
    entries: np.ndarray,
    bits: int,
    first: int = 0,
    vr: str = "US",
    data: bytes | list[int] | None = None,
) -> list[pydicom.Dataset]:
    """A sequence of one table; ``data`` are its entries as the file has them."""
    item = pydicom.Dataset()
    item.add_new("LUTDescriptor", vr, [len(entries) % 2**16, first, bits])
    written = entries.astype("<u2").tobytes() if data is None else data
    item.add_new("LUTData", "OW" if isinstance(written, bytes) else "US", written)
    item.ModalityLUTType = "US"
    return [item]


@pytest.mark.parametrize("keyword", ["ModalityLUTSequence", "VOILUTSequence"])
@pytest.mark.parametrize("count", [4096, 4001])
@pytest.mark.parametrize("vr", ["OW", "US"])
@pytest.mark.parametrize("syntax", LITTLE_ENDIAN)
def test_entries_of_8_bits_are_one_byte_each(
    tmp_path: Path, keyword: str, count: int, vr: str, syntax: str
) -> None:
    """PS3.3 C.11.1.1.1; one more byte makes an odd number even. (pydicom expects two bytes each.)"""
    entries = np.rint(CURVE[:count] * 255).astype(np.uint8)
    packed = entries.tobytes() + bytes(count % 2)
    data = packed if vr == "OW" else np.frombuffer(packed, "<u2").tolist()
    path = write_dicom(
        tmp_path / "a.dcm", GRAY12, syntax, bits=12, **{keyword: table(entries, 8, data=data)}
    )
    expected = entries[np.minimum(GRAY12, count - 1)]
    np.testing.assert_allclose(load(path), expected / 255, atol=1e-6)


@pytest.mark.parametrize("keyword", ["ModalityLUTSequence", "VOILUTSequence"])
@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize(("stated", "used"), [(16, 12), (16, 10), (12, 10), (16, 8)])
def test_bits_of_entries_are_those_that_they_use(
    tmp_path: Path, keyword: str, photometric: str, stated: int, used: int
) -> None:
    """Agfa states the size of an entry in memory: shown by it, the picture would be nearly black."""
    entries = np.rint(CURVE * (2**used - 1))
    elements = {"PhotometricInterpretation": photometric, keyword: table(entries, stated)}
    path = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, **elements)
    with pytest.warns(RadiographWarning, match=f"states {stated} bits"):
        found = load(path)
    shown = entries[GRAY12] / (2.0**used - 1)
    np.testing.assert_allclose(
        found, 1 - shown if photometric == "MONOCHROME1" else shown, atol=2e-6
    )


@pytest.mark.parametrize("syntax", LITTLE_ENDIAN)
@pytest.mark.parametrize(("first", "vr"), [(-1024, "SS"), (64512, "US")])
def test_tables_that_start_below_zero(tmp_path: Path, first: int, vr: str, syntax: str) -> None:
    """A negative intercept makes unsigned numbers negative, whatever VR the first one of the table has then."""
    entries = np.rint(CURVE * 4095)
    elements = {
        "RescaleSlope": 1,
        "RescaleIntercept": -1024,
        "VOILUTSequence": table(entries, 12, first, vr),
    }
    path = write_dicom(tmp_path / "a.dcm", GRAY12, syntax, bits=12, **elements)
    # the table's first entry is for -1024, which 0 has become
    np.testing.assert_allclose(load(path), entries[GRAY12] / 4095, atol=1e-6)
    np.testing.assert_allclose(metadata(path)["intensity_range"], (-1024, 3071))


@pytest.mark.parametrize(("first", "vr"), [(-2048, "SS"), (63488, "US")])
@pytest.mark.parametrize("keyword", ["ModalityLUTSequence", "VOILUTSequence"])
def test_tables_of_signed_numbers(tmp_path: Path, first: int, vr: str, keyword: str) -> None:
    entries = np.rint(CURVE * 4095)
    stored = GRAY12.astype(np.int16) - 2048
    path = write_dicom(
        tmp_path / "a.dcm", stored, bits=12, **{keyword: table(entries, 12, first, vr)}
    )
    np.testing.assert_allclose(load(path), entries[GRAY12] / 4095, atol=1e-6)


@pytest.mark.parametrize("first", [1000, 40000])
def test_tables_of_a_part_of_the_numbers(tmp_path: Path, first: int) -> None:
    """Numbers beyond have the first or last entry (C.11.2.1.1); a number above 32767 is not negative."""
    entries = np.rint(CURVE[:2000] * 65535)
    stored = GRAY12 + np.uint16(first - 500)
    for keyword, apply in (
        ("ModalityLUTSequence", apply_modality_lut),
        ("VOILUTSequence", apply_voi_lut),
    ):
        path = write_dicom(tmp_path / "a.dcm", stored, **{keyword: table(entries, 16, first)})
        np.testing.assert_array_equal(
            np.rint(load(path) * 65535), apply(stored, pydicom.dcmread(path))
        )


def group(**macros: dict[str, Any]) -> list[pydicom.Dataset]:
    """Functional groups with one item for each macro."""
    found = pydicom.Dataset()
    for name, elements in macros.items():
        item = pydicom.Dataset()
        for keyword, value in elements.items():
            setattr(item, keyword, value)
        setattr(found, name, [item])
    return [found]


WINDOW = {"WindowCenter": 1500, "WindowWidth": 1000}
NEGATIVE = {"RescaleSlope": -1, "RescaleIntercept": 4095, "RescaleType": "US"}


@pytest.mark.parametrize(
    "groups", ["SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"]
)
@pytest.mark.parametrize("shown", ["window", "sigmoid", "table", "nothing"])
def test_functional_groups_are_read_as_the_elements_on_top(
    tmp_path: Path, groups: str, shown: str
) -> None:
    """The picture is that of a file that has the same elements where plain objects have them."""
    display: dict[str, Any] = {
        "window": WINDOW,
        "sigmoid": {**WINDOW, "VOILUTFunction": "SIGMOID"},
        "table": {"VOILUTSequence": table(np.rint(CURVE * 4095), 12)},
        "nothing": {},
    }[shown]
    macros = {"FrameVOILUTSequence": display, "PixelValueTransformationSequence": NEGATIVE}
    macros["PixelMeasuresSequence"] = {"PixelSpacing": [0.2, 0.3]}
    enhanced = {
        "SOPClassUID": uid.EnhancedXRFImageStorage,
        "NumberOfFrames": 1,
        groups: group(**macros),
    }
    path = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, **enhanced)
    plain = write_dicom(
        tmp_path / "b.dcm", GRAY12, bits=12, PixelSpacing=[0.2, 0.3], **display, **NEGATIVE
    )
    np.testing.assert_array_equal(load(path), load(plain))
    assert metadata(path)["scaled_by"] == metadata(plain)["scaled_by"]
    assert metadata(path)["spacing"].tolist() == [0.2, 0.3]
    if shown == "window":  # PS3.3 C.11.2.1.2.1, by hand
        expected = np.clip((4095.0 - GRAY12 - 1499.5) / 999 + 0.5, 0, 1)
        np.testing.assert_allclose(load(path), expected, atol=1e-6)


def test_the_frame_comes_before_what_frames_share(tmp_path: Path) -> None:
    shared = group(FrameVOILUTSequence=WINDOW, PixelValueTransformationSequence=NEGATIVE)
    own = group(FrameVOILUTSequence={"WindowCenter": 900, "WindowWidth": 700})
    elements = {"SharedFunctionalGroupsSequence": shared, "PerFrameFunctionalGroupsSequence": own}
    path = write_dicom(
        tmp_path / "a.dcm", GRAY12, bits=12, WindowCenter=1, WindowWidth=1, **elements
    )
    expected = np.clip((4095.0 - GRAY12 - 899.5) / 699 + 0.5, 0, 1)
    np.testing.assert_allclose(load(path), expected, atol=1e-6)


@pytest.mark.parametrize(
    "text", [b"0,143\\0,143 ", b"0.143 ", b"0.143\\", b"-1\\-1", b"nan\\1 ", b"1\\2\\3 ", b"x\\"]
)
@pytest.mark.parametrize("keyword", ["PixelSpacing", "ImagerPixelSpacing"])
@pytest.mark.filterwarnings("ignore:Invalid value for VR DS")
@pytest.mark.filterwarnings("ignore:Value length")
def test_an_odd_spacing_does_not_cost_the_picture(
    tmp_path: Path, text: bytes, keyword: str
) -> None:
    path = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12)
    dataset = pydicom.dcmread(path)
    tag = pydicom.tag.Tag(keyword)
    dataset[tag] = pydicom.dataelem.RawDataElement(tag, "DS", len(text), text, 0, False, True)
    dataset.save_as(path)
    with pytest.warns(RadiographWarning, match=keyword):
        found = metadata(path)
    assert np.isnan(found["spacing"]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(load(path), GRAY12 / 4095, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Invalid value for VR DS")
@pytest.mark.parametrize("slope", [b"-1,0", b"nan ", b"-inf"])
def test_a_slope_that_is_no_number_is_no_positive_one(tmp_path: Path, slope: bytes) -> None:
    path = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12)
    dataset = pydicom.dcmread(path)
    tag = pydicom.tag.Tag("RescaleSlope")
    dataset[tag] = pydicom.dataelem.RawDataElement(tag, "DS", 4, slope, 0, False, True)
    dataset.save_as(path)
    assert "Rescale Slope" in refused(path)
