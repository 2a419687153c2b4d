# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Overlays beside the numbers of a DICOM picture, and padding around it, of whatever sign, by whatever decoder."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom import uid
from radiograph_files import GRAY12, load, write_dicom

pytestmark = pytest.mark.filterwarnings(
    "error::monai_afire.transforms.radiograph_io.common.RadiographWarning"
)

OVERLAY = np.zeros(GRAY12.shape, bool)
OVERLAY[5:9, 3:50] = True
SYNTAXES = ["plain", "RLE", "JPEG 2000", "JPEG-LS"]


def compressed(cells: np.ndarray, syntax: str) -> dict[str, Any]:
    """Transfer syntax and frame of all bits of cells."""
    unsigned = cells.view(np.uint16)
    if syntax == "plain":
        return {"syntax": uid.ExplicitVRLittleEndian}
    if syntax == "JPEG 2000":
        Image.fromarray(unsigned).save(stream := BytesIO(), "JPEG2000", no_jp2=True)
        return {"syntax": uid.JPEG2000Lossless, "frame": stream.getvalue()}
    kind = uid.JPEGLSLossless if syntax == "JPEG-LS" else uid.RLELossless
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
    dataset.set_pixel_data(unsigned, "MONOCHROME2", 16)
    dataset.compress(kind, generate_instance_uid=False)
    return {
        "syntax": kind,
        "frame": pydicom.encaps.get_frame(dataset.PixelData, 0, number_of_frames=1),
    }


def overlay_at(place: int, group: int = 0x6000) -> dict[int, tuple[str, int]]:
    return {group << 16 | 0x0100: ("US", 16), group << 16 | 0x0102: ("US", place)}


def add_elements(path: Path, elements: dict[int, tuple[str, Any]]) -> Path:
    dataset = pydicom.dcmread(path)
    for tag, (vr, value) in elements.items():
        dataset.add_new(tag, vr, value)
    dataset.save_as(path)
    return path


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize(("place", "shift"), [(12, 0), (15, 0), (0, 4), (3, 4), (0, 1), (13, 1)])
def test_embedded_overlays_are_left_out(
    tmp_path: Path, syntax: str, place: int, shift: int
) -> None:
    """At any position above or below the numbers (PS3.5 8.1.1); the frame has all 16 bits."""
    cells = (GRAY12 << shift) | (OVERLAY.astype(np.uint16) << place)
    path = write_dicom(
        tmp_path / "a.dcm", cells, bits=12, HighBit=11 + shift, **compressed(cells, syntax)
    )
    add_elements(path, overlay_at(place))
    np.testing.assert_allclose(load(path), GRAY12 / 4095, atol=1e-6)


@pytest.mark.parametrize("extended", [True, False])
@pytest.mark.parametrize("syntax", ["plain", "RLE", "JPEG-LS"])
def test_embedded_overlays_of_signed_numbers(tmp_path: Path, syntax: str, extended: bool) -> None:
    """The bits above the numbers repeat the sign, or are zero, beside the overlay."""
    numbers = GRAY12.astype(np.int16) - 2048
    cells = numbers.view(np.uint16) if extended else numbers.view(np.uint16) & 0x0FFF
    cells = ((cells & ~np.uint16(2**13)) | (OVERLAY.astype(np.uint16) << 13)).view(np.int16)
    offset = {"RescaleSlope": 1, "RescaleIntercept": 2048}
    path = write_dicom(tmp_path / "a.dcm", cells, bits=12, **offset, **compressed(cells, syntax))
    add_elements(path, overlay_at(13, group=0x6002))
    np.testing.assert_allclose(load(path), GRAY12 / 4095, atol=1e-6)


def test_an_overlay_of_its_own_takes_no_bit(tmp_path: Path) -> None:
    """It states position 0 and one bit (C.9.2): the lowest bit of the numbers stays."""
    cells = GRAY12 | 1
    path = write_dicom(tmp_path / "a.dcm", cells, bits=12)
    with_data = {
        **overlay_at(0),
        0x60000100: ("US", 1),
        0x60003000: ("OW", bytes(GRAY12.size // 8)),
    }
    np.testing.assert_allclose(load(add_elements(path, with_data)), cells / 4095, atol=1e-6)


def padded(inside: np.ndarray, value: int) -> np.ndarray:
    """Numbers whose first rows are padding."""
    cells = inside.copy()
    cells[:9] = value
    return cells


@pytest.mark.parametrize("syntax", [uid.ImplicitVRLittleEndian, uid.ExplicitVRLittleEndian])
@pytest.mark.parametrize(
    ("signed", "bits", "cell", "vr", "value"),
    [
        (True, 16, -2000, "US", 63536),
        (True, 12, -2000, "US", 63536),
        (True, 12, -32768, "SS", -32768),  # outside of the 12 bits
        (True, 12, -32768, "US", 32768),
        (True, 12, -2048, "US", 2048),  # as 12 bits show it without a sign
        (False, 16, 65535, "SS", -1),
        (False, 16, 63536, "SS", -2000),
        (False, 12, 63536, "SS", -2000),
        (False, 12, 63536, "US", 63536),
        (False, 12, 4095, "SS", -1),
    ],
)
def test_padding_of_another_sign(
    tmp_path: Path, syntax: str, signed: bool, bits: int, cell: int, vr: str, value: int
) -> None:
    """The VR of the padding value follows the numbers' sign (C.7.5.1.1.2), where writers know it."""
    inside = GRAY12 // 2 + 100
    numbers = padded(inside.astype(np.int32) - 1024 * signed, cell)
    stored = numbers.astype(np.int16 if signed else np.uint16)
    offset = {"RescaleSlope": 1, "RescaleIntercept": 1024} if signed else {}
    path = write_dicom(tmp_path / "a.dcm", stored, syntax, bits=bits, **offset)
    add_elements(path, {0x00280120: (vr, value)})
    found = load(path)
    assert not found[:9].any()
    expected = load(write_dicom(tmp_path / "b.dcm", padded(inside, 0), bits=12))[9:]
    if signed and bits == 16:
        # the picture's range is that of its numbers, which are as many as 12 bits hold
        expected = inside[9:] / inside[9:].max() * found[9:].max()
    np.testing.assert_allclose(found[9:], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("value", "limit", "black"), [(0, 3, range(4)), (3, 0, range(4)), (-4, 2, range(3))]
)
def test_ranges_of_padding(tmp_path: Path, value: int, limit: int, black: range) -> None:
    numbers = GRAY12 // 2 + 100
    numbers[:6] = np.arange(6)[:, None]
    path = add_elements(
        write_dicom(tmp_path / "a.dcm", numbers, bits=12),
        {0x00280120: ("SS", value), 0x00280121: ("SS", limit)},
    )
    found = load(path)
    assert not found[list(black)].any()
    assert found[len(black) : 6].min() > 0 or black.stop == 0


def test_padding_of_floating_point_numbers(tmp_path: Path) -> None:
    values = padded((GRAY12 + 100).astype(np.float32), -9999)
    path = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12)
    dataset = pydicom.dcmread(path)
    del dataset.PixelData, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation
    dataset.BitsAllocated, dataset.FloatPixelPaddingValue = 32, -9999.0
    dataset.FloatPixelData = values.tobytes()
    dataset.save_as(path)
    found = load(path)
    assert not found[:9].any()
    np.testing.assert_allclose(found[9:], values[9:] / 4095, atol=1e-6)
