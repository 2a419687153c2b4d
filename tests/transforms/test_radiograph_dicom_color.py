# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""DICOM pictures in color: every way of stating colors gives the picture's own, what is odd an error."""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from PIL import Image, features
from pydicom import uid
from transforms.radiograph_files import GRAY8, load, metadata, refused, write_dicom

from monai_afire.transforms.radiograph_io.common import RadiographWarning
from monai_afire.transforms.radiograph_io.gdcm import decode_with_gdcm
from monai_afire.transforms.radiograph_loading import LoadRadiograph

ROWS, COLUMNS = GRAY8.shape
# neither symmetric nor with two equal channels
RGB = np.stack([GRAY8, GRAY8[::-1], 255 - GRAY8], axis=-1)


def load_colors(path: Path, **arguments: Any) -> np.ndarray:
    """The picture as ``(H, W, 3)``, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = LoadRadiograph(channels=3, **arguments)(path)
    assert image.shape == (3, ROWS, COLUMNS)
    return np.moveaxis(np.asarray(image), 0, -1)


def to_ybr(rgb: np.ndarray) -> np.ndarray:
    """YBR_FULL of DICOM PS3.3 C.7.6.3.1.2."""
    matrix = np.array(
        [[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]]
    )
    return np.clip(np.rint(rgb @ matrix.T + [0, 128, 128]), 0, 255).astype(np.uint8)


def luma(rgb: np.ndarray) -> np.ndarray:
    return rgb @ np.array([0.299, 0.587, 0.114])


@pytest.mark.parametrize("planar", [0, 1])
@pytest.mark.parametrize("syntax", [uid.ExplicitVRLittleEndian, uid.ImplicitVRLittleEndian])
@pytest.mark.parametrize("photometric", ["RGB", "YBR_FULL"])
def test_colors_are_kept(tmp_path: Path, photometric: str, syntax: str, planar: int) -> None:
    stored = RGB if photometric == "RGB" else to_ybr(RGB)
    written = np.moveaxis(stored, -1, 0) if planar else stored
    elements = {"Rows": ROWS, "Columns": COLUMNS, "PlanarConfiguration": planar}
    path = write_dicom(
        tmp_path / "a.dcm", written, syntax, PhotometricInterpretation=photometric, **elements
    )
    tolerance = 1e-6 if photometric == "RGB" else 2.01 / 255
    np.testing.assert_allclose(load_colors(path), RGB / 255.0, atol=tolerance)
    assert metadata(path, channels=3)["photometric"] == photometric
    with pytest.warns(
        RadiographWarning,
        match=rf"color picture \({photometric}\), reduced to gray \(channels 3 keeps",
    ):
        np.testing.assert_allclose(load(path), luma(RGB) / 255, atol=2 / 255)


def test_halved_chroma_is_spread(tmp_path: Path) -> None:
    """YBR_FULL_422 stores Y1 Y2 B R of every two pixels."""
    ybr = to_ybr(RGB)
    ybr[:, 1::2, 1:] = ybr[:, ::2, 1:]
    pairs = np.stack([ybr[:, ::2, 0], ybr[:, 1::2, 0], ybr[:, ::2, 1], ybr[:, ::2, 2]], axis=-1)
    elements = {"SamplesPerPixel": 3, "PlanarConfiguration": 0, "Rows": ROWS, "Columns": COLUMNS}
    flat = pairs.reshape(ROWS, -1)
    path = write_dicom(
        tmp_path / "a.dcm", flat, PhotometricInterpretation="YBR_FULL_422", **elements
    )
    y, b, r = np.moveaxis(ybr.astype(float), -1, 0)
    expected = np.stack(
        [
            y + 1.402 * (r - 128),
            y - 0.344136 * (b - 128) - 0.714136 * (r - 128),
            y + 1.772 * (b - 128),
        ]
    )
    np.testing.assert_allclose(
        load_colors(path), np.moveaxis(expected.clip(0, 255), 0, -1) / 255, atol=1.01 / 255
    )


@pytest.mark.parametrize(("bits", "stored_bits"), [(16, 16), (16, 12)])
def test_deep_colors_are_fractions_of_what_could_be_stored(
    tmp_path: Path, bits: int, stored_bits: int
) -> None:
    deep = RGB.astype(np.uint16) * 8  # at most 2040, of the 12 or 16 bits that the file has
    path = write_dicom(tmp_path / "a.dcm", deep, bits=stored_bits, PhotometricInterpretation="RGB")
    np.testing.assert_allclose(load_colors(path), deep / (2.0**stored_bits - 1), atol=1e-6)


def write_palette(
    path: Path, indices: np.ndarray, table: np.ndarray, first: int = 0, **elements: Any
) -> Path:
    """A picture of indices; ``table`` has a row of red, green and blue for each."""
    bits = elements.pop("depth", table.dtype.itemsize * 8)
    lut: dict[str, Any] = {"PhotometricInterpretation": "PALETTE COLOR"}
    for channel, name in enumerate(("Red", "Green", "Blue")):
        lut[f"{name}PaletteColorLookupTableDescriptor"] = [len(table) % 2**16, first, bits]
        lut[f"{name}PaletteColorLookupTableData"] = table[:, channel].tobytes()
    return write_dicom(path, indices, **(lut | elements))


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_palettes_are_looked_up(tmp_path: Path, dtype: type, first: int) -> None:
    table = np.random.default_rng(0).integers(0, np.iinfo(dtype).max // 3, (64, 3)).astype(dtype)
    # up to 85: beyond the table's end the last entry counts
    indices = (GRAY8 // 3).astype(np.uint8)
    path = write_palette(tmp_path / "a.dcm", indices, table, first)
    expected = table[np.clip(indices.astype(int) - first, 0, 63)] / np.iinfo(dtype).max
    np.testing.assert_allclose(load_colors(path), expected, atol=1e-6)
    with pytest.warns(RadiographWarning, match=r"color picture \(PALETTE COLOR\)"):
        assert load(path).shape == GRAY8.shape


def test_indices_beyond_a_palette_of_256_do_not_come_round(tmp_path: Path) -> None:
    table = np.random.default_rng(1).integers(0, 256, (256, 3)).astype(np.uint8)
    indices = GRAY8.astype(np.uint16) * 2
    assert indices.max() > 300
    expected = table[np.minimum(indices, 255)] / 255
    np.testing.assert_allclose(
        load_colors(write_palette(tmp_path / "a.dcm", indices, table)), expected, atol=1e-6
    )


@pytest.mark.parametrize("shift", [0, 8])
def test_entries_of_8_bits_in_16(tmp_path: Path, shift: int) -> None:
    table = np.random.default_rng(2).integers(0, 256, (256, 3)).astype(np.uint16)
    path = write_palette(tmp_path / "a.dcm", GRAY8, table << shift, depth=8)
    np.testing.assert_allclose(load_colors(path), table[GRAY8] / 255, atol=1.01 / 255)


def test_compressed_colors(tmp_path: Path) -> None:
    smooth = np.asarray(
        Image.fromarray(RGB).resize((8, 6)).resize((COLUMNS, ROWS), Image.Resampling.BICUBIC)
    )
    kinds: list[tuple[str, str, dict[str, Any], float]] = [
        (
            uid.JPEGBaseline8Bit,
            "YBR_FULL_422",
            {"format": "JPEG", "quality": 98, "subsampling": "4:2:2"},
            6,
        ),
        (
            uid.JPEGBaseline8Bit,
            "YBR_FULL",
            {"format": "JPEG", "quality": 98, "subsampling": "4:4:4"},
            4,
        ),
    ]
    if features.check("jpg_2000"):
        plain = {"format": "JPEG2000", "no_jp2": True, "mct": 1}
        kinds.append((uid.JPEG2000Lossless, "YBR_RCT", {**plain, "irreversible": False}, 0.01))
        rates = {"irreversible": True, "quality_mode": "dB", "quality_layers": [60]}
        kinds.append((uid.JPEG2000, "YBR_ICT", {**plain, **rates}, 3))
    for syntax, photometric, settings, tolerance in kinds:
        stream = io.BytesIO()
        Image.fromarray(smooth).save(stream, **settings)
        frame = stream.getvalue()
        path = write_dicom(
            tmp_path / "a.dcm", smooth, syntax, frame=frame, PhotometricInterpretation=photometric
        )
        np.testing.assert_allclose(
            load_colors(path), smooth / 255.0, atol=tolerance / 255, err_msg=photometric
        )


@pytest.mark.parametrize("photometric", ["RGB", "YBR_FULL"])
def test_run_lengths_are_decoded(tmp_path: Path, photometric: str) -> None:
    stored = RGB if photometric == "RGB" else to_ybr(RGB)
    dataset = pydicom.dcmread(
        write_dicom(tmp_path / "a.dcm", stored, PhotometricInterpretation=photometric)
    )
    dataset.compress(uid.RLELossless, generate_instance_uid=False)
    dataset.save_as(tmp_path / "b.dcm")
    np.testing.assert_allclose(load_colors(tmp_path / "b.dcm"), RGB / 255.0, atol=2.01 / 255)


def test_gray_is_repeated(tmp_path: Path) -> None:
    window = {"WindowCenter": 100, "WindowWidth": 80}
    path = write_dicom(tmp_path / "a.dcm", GRAY8, PhotometricInterpretation="MONOCHROME1", **window)
    colors = load_colors(path)
    assert np.array_equal(colors, np.repeat(load(path)[..., None], 3, axis=-1))


def test_labels_are_not_colored(tmp_path: Path) -> None:
    """Label maps are one channel of numbers, whatever was asked for."""
    path = write_dicom(tmp_path / "a.dcm", GRAY8)
    assert np.array_equal(np.asarray(LoadRadiograph(scaling="none", channels=3)(path))[0], GRAY8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("pixels", "elements", "reason"),
    [
        (RGB, {"PhotometricInterpretation": "HSV"}, "states its colors as HSV"),
        (
            RGB,
            {"PhotometricInterpretation": "YBR_PARTIAL_422"},
            "states its colors as YBR_PARTIAL_422",
        ),
        (RGB, {"PhotometricInterpretation": "YBR_RCT"}, "JPEG 2000 alone"),
        (
            RGB,
            {"PhotometricInterpretation": "MONOCHROME2"},
            "3 samples per pixel where .* MONOCHROME2 needs 1",
        ),
        (GRAY8, {"PhotometricInterpretation": "RGB"}, "1 samples per pixel where .* RGB needs 3"),
        (RGB, {"PhotometricInterpretation": "RGB", "SamplesPerPixel": 4}, "4 samples"),
        (RGB.astype(np.int16), {"PhotometricInterpretation": "RGB"}, "signed"),
        (RGB.astype(np.uint16), {"PhotometricInterpretation": "YBR_FULL"}, "of 16 bits, not of 8"),
        (GRAY8, {"PhotometricInterpretation": "PALETTE COLOR"}, "no usable palette"),
        (RGB[:-1], {"PhotometricInterpretation": "RGB", "Rows": ROWS}, "cut or damaged"),
    ],
)
def test_odd_colors_are_refused(
    tmp_path: Path, pixels: np.ndarray, elements: dict[str, Any], reason: str, channels: int
) -> None:

    assert re.search(
        reason, refused(write_dicom(tmp_path / "a.dcm", pixels, **elements), channels=channels)
    )


def test_damaged_palettes_are_refused(tmp_path: Path) -> None:
    table = np.zeros((256, 3), np.uint8)
    short = write_palette(
        tmp_path / "a.dcm", GRAY8, table, GreenPaletteColorLookupTableData=b"\0" * 10
    )
    assert "no usable palette" in refused(short, channels=3)
    long = write_palette(tmp_path / "b.dcm", GRAY8, np.zeros((512, 3), np.uint8))
    assert "512 entries of 8 bits" in refused(long, channels=3)


@pytest.mark.parametrize("interleave", [0, 1, 2])
@pytest.mark.parametrize("planar", [0, 1])
@pytest.mark.parametrize("photometric", ["RGB", "YBR_FULL"])
def test_colors_of_jpeg_ls_without_its_own_decoder(
    tmp_path: Path, photometric: str, planar: int, interleave: int
) -> None:
    """GDCM, which comes with ITK, gives what CharLS was given; PS3.5 A.4.3 allows all interleave modes."""
    jpeg_ls = pytest.importorskip("jpeg_ls")
    stored = RGB if photometric == "RGB" else to_ybr(RGB)
    planes = stored if interleave else np.ascontiguousarray(np.moveaxis(stored, -1, 0))
    frame = bytes(jpeg_ls.encode_array(planes, interleave_mode=interleave))
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = uid.JPEGLSLossless
    dataset.Rows, dataset.Columns, dataset.SamplesPerPixel = ROWS, COLUMNS, 3
    dataset.PhotometricInterpretation, dataset.PlanarConfiguration = photometric, planar
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 8, 8, 7
    dataset.PixelRepresentation = 0
    dataset.PixelData = pydicom.encaps.encapsulate([frame])
    decoded = decode_with_gdcm("a.dcm", dataset)
    tolerance = 0 if photometric == "RGB" else 2
    assert np.abs(decoded.astype(int) - RGB).max() <= tolerance
