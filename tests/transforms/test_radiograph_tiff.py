# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""TIFF files of all kinds of numbers, orders of bytes, planes and orientations."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image
from radiograph_files import GRAY8, GRAY16, UNIT, load, refused

from monai_afire.transforms.radiograph_loading import LoadRadiograph

pytestmark = pytest.mark.filterwarnings(
    "error::monai_afire.transforms.radiograph_io.common.RadiographWarning"
)

KINDS = ["u1", "i2", "u2", "i4", "u4", "u8", "f2", "f4", "f8"]


def stored(shown: np.ndarray, orientation: int) -> np.ndarray:
    """What a file has whose orientation turns it into the picture shown (TIFF 6.0, page 36)."""
    # the sides of the picture that the file's first row and first column are
    first_row, first_column = {
        1: ("top", "left"),
        2: ("top", "right"),
        3: ("bottom", "right"),
        4: ("bottom", "left"),
        5: ("left", "top"),
        6: ("right", "top"),
        7: ("right", "bottom"),
        8: ("left", "bottom"),
    }[orientation]
    if "right" in (first_row, first_column):
        shown = shown[:, ::-1]
    if "bottom" in (first_row, first_column):
        shown = shown[::-1]
    return np.ascontiguousarray(shown.swapaxes(0, 1) if first_row in ("left", "right") else shown)


def write(path: Path, shown: np.ndarray, orientation: int, **settings: Any) -> Path:
    values = stored(shown, orientation)
    if settings.get("planarconfig") == "separate":
        values = np.moveaxis(values, -1, 0)
    tifffile.imwrite(path, values, extratags=[(274, 3, 1, orientation, True)], **settings)
    return path


def of_kind(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of a type over its whole range, and the picture in [0, 1] that they mean."""
    if kind[0] == "f":
        values = UNIT.astype(kind)
        return values, values.astype(float)
    largest = float(np.iinfo(kind).max)
    values = np.minimum(UNIT / UNIT.max() * largest, largest * (1 - 1e-12)).astype(kind)
    bits = np.iinfo(kind).bits - (kind[0] == "i")
    return values, values / (2.0**bits - 1)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_of_the_file_whatever_way_it_is_turned(
    tmp_path: Path, kind: str, orientation: int
) -> None:
    values, unit = of_kind(kind)
    ways = itertools.product("<>", (None, "zlib"), (False, True), ("minisblack", "miniswhite"))
    for byteorder, compression, bigtiff, photometric in ways:
        settings = {"byteorder": byteorder, "compression": compression, "bigtiff": bigtiff}
        if photometric == "miniswhite" and kind[0] == "i":
            continue
        path = write(tmp_path / "a.tif", values, orientation, photometric=photometric, **settings)
        expected = unit if photometric == "minisblack" else 1 - unit
        np.testing.assert_allclose(
            load(path), expected, atol=2e-3 if kind == "f2" else 1e-5, err_msg=str(settings)
        )


@pytest.mark.parametrize("orientation", [1, 2, 6, 7])
@pytest.mark.parametrize("kind", ["u1", "u2"])
def test_colors_in_one_plane_or_in_three(tmp_path: Path, kind: str, orientation: int) -> None:
    largest = np.iinfo(kind).max
    colors = np.stack([GRAY8, GRAY8[::-1], 255 - GRAY8], axis=-1).astype(kind) * (largest // 255)
    for byteorder, compression, planes in itertools.product(
        "<>", (None, "zlib"), ("contig", "separate")
    ):
        settings = {
            "byteorder": byteorder,
            "compression": compression,
            "planarconfig": planes,
            "photometric": "rgb",
        }
        path = write(tmp_path / "a.tif", colors, orientation, **settings)
        found = np.moveaxis(np.asarray(LoadRadiograph(channels=3)(path)), 0, -1)
        np.testing.assert_allclose(found, colors / largest, atol=1e-6, err_msg=str(settings))


def test_what_pillow_alone_reads_keeps_its_numbers(tmp_path: Path) -> None:
    """tifffile leaves LZW to a further package; Pillow reads 32 bits as if they had signs."""
    unsigned = (UNIT * (2**32 - 1)).astype(np.uint32)
    path = tmp_path / "a.tif"
    Image.fromarray(unsigned.view(np.int32)).save(path, compression="tiff_lzw")
    signed, without = (struct.pack("<HHIH", 339, 3, 1, sample_format) for sample_format in (2, 1))
    path.write_bytes(path.read_bytes().replace(signed, without))
    assert tifffile.TiffFile(path).pages[0].dtype == np.uint32
    np.testing.assert_allclose(load(tmp_path / "a.tif"), UNIT, atol=1e-6)
    Image.fromarray(GRAY16).save(tmp_path / "b.tif", compression="tiff_lzw")
    np.testing.assert_allclose(load(tmp_path / "b.tif"), UNIT, atol=1e-6)


def test_signed_bytes_keep_their_signs(tmp_path: Path) -> None:
    values = (GRAY8.astype(np.int16) - 128).astype(np.int8)
    tifffile.imwrite(tmp_path / "a.tif", values)
    np.testing.assert_array_equal(load(tmp_path / "a.tif", scaling="none"), values)


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("kind", ["u2", "u4", "f8"])
@pytest.mark.parametrize("part", [0.1, 0.6, 0.95])
def test_cut_files_of_deep_numbers_are_refused(
    tmp_path: Path, kind: str, compression: str | None, part: float
) -> None:
    values = (np.random.default_rng(0).random((64, 64)) * 60000).astype(kind)
    tifffile.imwrite(tmp_path / "a.tif", values, compression=compression, rowsperstrip=8)
    content = (tmp_path / "a.tif").read_bytes()
    (tmp_path / "a.tif").write_bytes(content[: int(len(content) * part)])
    refused(tmp_path / "a.tif")
