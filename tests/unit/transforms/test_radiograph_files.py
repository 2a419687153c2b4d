# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""PNG, JPEG, TIFF, BMP, NIfTI, MetaImage and NRRD files, and what is none of them."""

from __future__ import annotations

import gzip
import itertools
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from monai_afire.data import scan_radiographs
from monai_afire.transforms import RadiographWarning
from unit.transforms.radiograph_files import (
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

pytestmark = pytest.mark.filterwarnings("error::monai_afire.transforms.RadiographWarning")

COLORS = np.stack([GRAY8, GRAY8[::-1], 255 - GRAY8], axis=-1)

# ---- PNG, JPEG, TIFF, BMP


def writers() -> dict[str, Callable[[Path], None]]:
    """The one picture in as many kinds of files as there are; each must load as the same numbers."""
    gray = Image.fromarray(GRAY8)
    alpha = Image.fromarray(np.tile(np.linspace(0, 255, WIDTH).astype(np.uint8), (HEIGHT, 1)))
    order = np.random.default_rng(0).permutation(256)
    palette = Image.fromarray(np.argsort(order)[GRAY8].astype(np.uint8)).convert("P")
    palette.putdata(np.argsort(order)[GRAY8].ravel().tolist())
    palette.putpalette(np.repeat(order, 3).astype(np.uint8).tobytes())
    exif = Image.Exif()
    exif[274] = 6
    turned = Image.fromarray(np.ascontiguousarray(np.rot90(GRAY8)))
    white = {"photometric": "miniswhite"}
    tif: Any = tifffile.imwrite
    return {
        "l.png": gray.save,
        "l16.png": Image.fromarray(GRAY16).save,
        "rgb.png": gray.convert("RGB").save,
        "rgba.png": Image.merge("RGBA", (gray, gray, gray, alpha)).save,
        "la.png": Image.merge("LA", (gray, alpha)).save,
        "palette_transparent.png": lambda path: palette.save(path, transparency=bytes(range(256))),
        "turned.png": lambda path: turned.save(path, exif=exif),
        "l.bmp": gray.save,
        "l16_lzw.TIFF": lambda path: Image.fromarray(GRAY16).save(path, compression="tiff_lzw"),
        "rgba.tif": Image.merge("RGBA", (gray, gray, gray, alpha)).save,
        "turned_lzw.tif": lambda path: turned.save(path, tiffinfo={274: 6}, compression="tiff_lzw"),
        "rgb16.tif": lambda path: tif(path, np.stack([GRAY16] * 3, -1), photometric="rgb"),
        "white_is_zero_8.tif": lambda path: tif(path, 255 - GRAY8, **white),
    }


@pytest.mark.parametrize("name", writers())
def test_versions_of_one_picture_agree(tmp_path: Path, name: str) -> None:
    writers()[name](tmp_path / name)
    np.testing.assert_allclose(load(tmp_path / name), UNIT, atol=1e-6)


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpeg_modes_and_orientation(tmp_path: Path, mode: str) -> None:
    exif = Image.Exif()
    exif[274] = 6
    image = Image.fromarray(np.ascontiguousarray(np.rot90(GRAY8))).convert(mode)
    image.save(tmp_path / "a.jpg", quality=98, exif=exif)
    assert np.abs(load(tmp_path / "a.jpg") - UNIT).max() < 8 / 255


def test_color_picture_gives_a_warning(tmp_path: Path) -> None:
    Image.fromarray(COLORS).save(tmp_path / "a.png")
    with pytest.warns(RadiographWarning, match="color"):
        found = load(tmp_path / "a.png")
    np.testing.assert_allclose(found, COLORS @ [0.299, 0.587, 0.114] / 255, atol=1 / 255)


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


def write_tiff(path: Path, shown: np.ndarray, orientation: int, **options: Any) -> Path:
    tags = [(274, 3, 1, orientation, True)]
    tifffile.imwrite(path, stored(shown, orientation), extratags=tags, **options)
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


@pytest.mark.parametrize(
    ("kind", "orientation"),
    [*zip(["u1", "i2", "u2", "i4", "u4", "u8", "f2", "f4", "f8"], [*range(1, 9), 7], strict=True)],
)
def test_tiff_of_all_numbers_and_orientations(tmp_path: Path, kind: str, orientation: int) -> None:
    values, unit = of_kind(kind)
    ways = itertools.product("<>", (None, "zlib"), ("minisblack", "miniswhite"))
    for byteorder, compression, photometric in ways:
        if photometric == "miniswhite" and kind[0] == "i":
            continue
        options = {"byteorder": byteorder, "compression": compression, "photometric": photometric}
        path = write_tiff(tmp_path / "a.tif", values, orientation, **options)
        expected = unit if photometric == "minisblack" else 1 - unit
        tolerance = 2e-3 if kind == "f2" else 1e-5
        np.testing.assert_allclose(load(path), expected, atol=tolerance, err_msg=str(options))


def test_what_pillow_alone_reads_keeps_its_numbers(tmp_path: Path) -> None:
    """tifffile leaves LZW to a further package; Pillow reads 32 bits as if they had signs."""
    unsigned = (UNIT * (2**32 - 1)).astype(np.uint32)
    path = tmp_path / "a.tif"
    Image.fromarray(unsigned.view(np.int32)).save(path, compression="tiff_lzw")
    signed, without = (struct.pack("<HHIH", 339, 3, 1, sample_format) for sample_format in (2, 1))
    path.write_bytes(path.read_bytes().replace(signed, without))
    assert tifffile.TiffFile(path).pages[0].dtype == np.uint32
    np.testing.assert_allclose(load(path), UNIT, atol=1e-6)


# ---- NIfTI


@pytest.mark.parametrize("array", [GRAY16.T, GRAY16.T[:, :, None, None]], ids=["2-D", "4-D"])
def test_nifti_of_a_writer_that_knows_no_geometry_is_upright(
    tmp_path: Path, array: np.ndarray
) -> None:
    for extension, kind in ((".nii", nib.Nifti1Image), (".nii.gz", nib.Nifti2Image)):
        kind(array, np.eye(4)).to_filename(tmp_path / f"a{extension}")
        np.testing.assert_allclose(load(tmp_path / f"a{extension}"), UNIT, atol=1e-6)


@pytest.mark.parametrize("signs", list(itertools.product((-1, 1), repeat=3)), ids=str)
@pytest.mark.parametrize("axes", [(1, 0), (0, 1), (2, 0), (0, 2), (2, 1), (1, 2)], ids=str)
def test_nifti_of_all_signs_and_planes(
    tmp_path: Path, signs: tuple[int, ...], axes: tuple[int, int]
) -> None:
    """The picture is nibabel's canonical orientation (RAS+), seen as radiologists do, and its affine leads back.

    ``axes`` are the world axes of rows and columns: the higher one runs downwards.
    """
    lengths = dict(zip(axes, (0.3, 0.2), strict=True))
    matrix = np.zeros((4, 4))
    third = 3 - sum(axes)
    for place, world in enumerate((*axes, third)):
        matrix[world, place] = signs[place] * lengths.get(world, 1.0)
    matrix[:, 3] = 5, -7, 11, 1
    values = np.random.default_rng(0).integers(0, 2**15, (HEIGHT, WIDTH, 1)).astype(np.int16)
    path = tmp_path / "a.nii"
    nib.Nifti1Image(values, matrix).to_filename(path)
    canonical = nib.as_closest_canonical(nib.load(path))
    # axes in the order of the world, all of them ascending
    plane = np.squeeze(np.asarray(canonical.dataobj))
    np.testing.assert_allclose(load(path), plane[::-1, ::-1].T / (2.0**15 - 1), atol=1e-6)
    affine = np.asarray(metadata(path)["affine"])
    for row, column in ((0, 0), (3, 8)):
        place = [plane.shape[0] - 1 - column, plane.shape[1] - 1 - row]
        place.insert(third, 0)
        world = canonical.affine @ [*place, 1]
        np.testing.assert_allclose(affine @ [row, column, 0, 1], world, atol=1e-4)


@pytest.mark.parametrize(
    ("place", "value"), [((0, 0), np.nan), ((1, 1), 0.0), ((2, 2), 0.0), ((0, 3), np.nan)]
)
def test_a_geometry_that_is_none_does_not_cost_the_picture(
    tmp_path: Path, place: tuple[int, int], value: float
) -> None:
    affine = np.diag([-0.2, -0.3, 1, 1])
    content = bytearray(nib.Nifti1Image(GRAY16.T[:, :, None], affine).to_bytes())
    struct.pack_into("<f", content, 280 + 16 * place[0] + 4 * place[1], value)  # of srow_x to z
    (tmp_path / "a.nii").write_bytes(content)
    np.testing.assert_allclose(load(tmp_path / "a.nii"), UNIT, atol=1e-6)
    assert torch.as_tensor(metadata(tmp_path / "a.nii")["affine"]).isfinite().all()


def test_nifti_of_colors_and_slopes(tmp_path: Path) -> None:
    colors = np.zeros(GRAY8.T.shape, dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")])
    for name in "RGB":
        colors[name] = GRAY8.T
    nib.Nifti1Image(colors, np.eye(4)).to_filename(tmp_path / "a.nii")
    np.testing.assert_allclose(load(tmp_path / "a.nii"), UNIT, atol=1e-6)
    image = nib.Nifti1Image(GRAY8.T.astype(np.int16), np.eye(4))
    image.header.set_slope_inter(2.0, 5.0)
    image.to_filename(tmp_path / "b.nii")
    np.testing.assert_allclose(load(tmp_path / "b.nii", scaling="none"), 2.0 * GRAY8 + 5)


# ---- MetaImage, NRRD

META_TYPES = {"uint8": "UCHAR", "uint16": "USHORT", "int16": "SHORT", "float32": "FLOAT"}


def write_meta(
    path: Path, pixels: np.ndarray, data: str = "LOCAL", compressed: bool = False, **fields: str
) -> Path:
    """A MetaImage file; axes of the array are in the order of NumPy. Pixels that are not LOCAL are written beside."""
    content = zlib.compress(pixels.tobytes()) if compressed else pixels.tobytes()
    header = {
        "ObjectType": "Image",
        "NDims": str(pixels.ndim),
        "BinaryData": "True",
        "BinaryDataByteOrderMSB": "False",
        "CompressedData": str(compressed),
        "DimSize": " ".join(map(str, pixels.shape[::-1])),
        "ElementType": f"MET_{META_TYPES[pixels.dtype.name]}",
    }
    header |= {"CompressedDataSize": str(len(content))} if compressed else {}
    header |= fields | {"ElementDataFile": data}
    text = "".join(f"{key} = {value}\n" for key, value in header.items())
    path.write_bytes(text.encode() + (content if data == "LOCAL" else b""))
    if data != "LOCAL":
        (path.parent / data).write_bytes(content)
    return path


def write_nrrd(path: Path, pixels: np.ndarray, **fields: str) -> Path:
    """An NRRD file with raw pixels; underscores in the names of further fields are spaces."""
    header = {
        "type": "float" if pixels.dtype.kind == "f" else pixels.dtype.name,
        "dimension": str(pixels.ndim),
        "sizes": " ".join(map(str, pixels.shape[::-1])),
        "endian": "little",
        "encoding": "raw",
    } | {key.replace("_", " "): value for key, value in fields.items()}
    text = "".join(f"{key}: {value}\n" for key, value in header.items())
    path.write_bytes(f"NRRD0004\n# of a test\n{text}\n".encode() + pixels.tobytes())
    return path


@pytest.mark.parametrize(
    ("pixels", "divisor"),
    [(GRAY8, 255), (GRAY12, 4095), (GRAY12.astype(np.int16), 4095), (UNIT.astype(np.float32), 1)],
    ids=["uint8", "uint16", "int16", "float32"],
)
def test_metaimage_and_nrrd(tmp_path: Path, pixels: np.ndarray, divisor: float) -> None:
    paths = [
        write_meta(tmp_path / "a.mha", pixels),
        write_meta(tmp_path / "b.mha", pixels, compressed=True),
        write_meta(tmp_path / "c.mhd", pixels, data="c pixels.raw"),
        write_nrrd(tmp_path / "a.nrrd", pixels),
    ]
    for path in paths:
        np.testing.assert_allclose(load(path), pixels / divisor, atol=1e-6)
        assert metadata(path)["bits"] == 8 * pixels.dtype.itemsize
    assert scan_radiographs(tmp_path) == sorted(path.name for path in paths)


def test_geometry_of_itk_is_that_of_nifti(tmp_path: Path) -> None:
    """Signs turn the picture: in the plane of x and y, and in a coronal one, here with rows from foot to head."""
    flat = write_meta(tmp_path / "a.mha", GRAY16, ElementSpacing="0.2 0.3")
    np.testing.assert_allclose(metadata(flat)["spacing"], (0.3, 0.2))
    turned = write_meta(tmp_path / "b.mha", GRAY16[::-1, ::-1].copy(), TransformMatrix="-1 0 0 -1")
    coronal = GRAY16[::-1, None]
    lps = {"space": "left-posterior-superior", "space_directions": "(1,0,0) (0,1,0) (0,0,1)"}
    ras = {"space": "right-anterior-superior", "space_directions": "(-1,0,0) (0,-1,0) (0,0,1)"}
    others = [
        write_meta(tmp_path / "c.mha", coronal),
        write_nrrd(tmp_path / "c.nrrd", coronal, **lps, space_origin="(0,0,0)"),
        write_nrrd(tmp_path / "d.nrrd", coronal, **ras, space_origin="(0,0,0)"),
    ]
    for path in (flat, turned, *others):
        np.testing.assert_allclose(load(path), UNIT, atol=1e-6)


def test_odd_planes_are_refused(tmp_path: Path) -> None:
    volume = np.zeros((2, HEIGHT, WIDTH), np.uint8)
    nib.Nifti1Image(volume, np.eye(4)).to_filename(tmp_path / "a.nii.gz")
    paths = [
        tmp_path / "a.nii.gz",
        write_meta(tmp_path / "a.mha", volume),
        write_nrrd(tmp_path / "a.nrrd", volume),
        write_meta(tmp_path / "b.mha", GRAY8, DimSize="60000 60000"),
        write_nrrd(tmp_path / "b.nrrd", GRAY8, sizes="60000 60000"),
        write_meta(tmp_path / "c.mha", GRAY8, ElementNumberOfChannels="3"),
        write_nrrd(tmp_path / "c.nrrd", np.stack([GRAY8] * 3, -1), kinds="RGB-color domain domain"),
    ]
    for path in paths:
        refused(path)


@pytest.mark.parametrize("data", ["../secret.raw", "{secret}", "LIST", "absent.raw"])
def test_pixels_are_taken_from_no_other_place(tmp_path: Path, data: str) -> None:
    """A header may name any file of the machine."""
    secret = tmp_path / "secret.raw"
    secret.write_bytes(GRAY8.tobytes())
    (tmp_path / "sent").mkdir()
    path = write_meta(tmp_path / "sent" / "a.mhd", GRAY8)
    header = path.read_bytes().partition(b"ElementDataFile")[0].decode()
    path.write_text(f"{header}ElementDataFile = {data.format(secret=secret)}\n")
    refused(path)
    for name in ("data_file", "byte_skip"):
        refused(write_nrrd(tmp_path / "sent" / "a.nrrd", GRAY8, **{name: str(secret)}))
    # a header that is longer than what is searched
    long = write_nrrd(tmp_path / "sent" / "b.nrrd", GRAY8, content="x" * 2**17)
    refused(long)


# ---- what is no radiograph


def test_content_wins_over_the_extension(tmp_path: Path) -> None:
    Image.fromarray(GRAY8).save(tmp_path / "a.png")
    os.rename(tmp_path / "a.png", tmp_path / "a.dcm")
    with pytest.warns(RadiographWarning, match="PNG"):
        np.testing.assert_allclose(load(tmp_path / "a.dcm"), UNIT, atol=1e-6)
    os.rename(tmp_path / "a.dcm", tmp_path / "without extension")
    np.testing.assert_allclose(load(tmp_path / "without extension"), UNIT, atol=1e-6)
    os.rename(tmp_path / "without extension", tmp_path / "a.xyz")
    assert ".xyz" in refused(tmp_path / "a.xyz")


def test_several_pictures_and_complex_numbers_are_refused(tmp_path: Path) -> None:
    frames = [Image.fromarray(GRAY8), Image.fromarray(255 - GRAY8)]
    frames[0].save(tmp_path / "a.png", save_all=True, append_images=frames[1:])
    refused(tmp_path / "a.png")
    for pixels in (np.zeros((2, 40, 40), np.uint64), UNIT.astype(np.complex64)):
        tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="minisblack")
        refused(tmp_path / "a.tif")


@pytest.mark.parametrize(
    "content", [b"", b"<!DOCTYPE HTML><title>x</title>", bytes(128) + b"DICM", gzip.compress(b"x")]
)
def test_files_that_are_no_pictures(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a"
    refused(path)
    path.write_bytes(content)
    refused(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes on this system")
def test_pipes_devices_and_folders_are_refused_unopened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    os.symlink("/dev/zero", tmp_path / "zero.png")
    (tmp_path / "folder.png").mkdir()
    for name in ("pipe.png", "zero.png", "folder.png"):
        refused(tmp_path / name)


FILES: dict[str, Callable[[Path], Any]] = {
    "a.png": Image.fromarray(GRAY8).save,
    "a.jpg": Image.fromarray(GRAY8).save,
    "a.bmp": Image.fromarray(GRAY8).save,
    "a.tif": Image.fromarray(GRAY16).save,
    "b.tif": lambda path: tifffile.imwrite(path, UNIT, compression="zlib"),
    "a.nii": lambda path: nib.Nifti1Image(GRAY16.T, np.eye(4)).to_filename(path),
    "a.nii.gz": lambda path: nib.Nifti1Image(GRAY16.T, np.eye(4)).to_filename(path),
    "a.dcm": lambda path: write_dicom(path, GRAY12, bits=12),
    "a.mha": lambda path: write_meta(path, GRAY16),
    "b.mha": lambda path: write_meta(path, GRAY16, compressed=True),
    "a.nrrd": lambda path: write_nrrd(path, GRAY16),
}


@pytest.mark.parametrize("name", FILES)
def test_cut_files_are_refused(tmp_path: Path, name: str) -> None:
    FILES[name](tmp_path / name)
    content = (tmp_path / name).read_bytes()
    for part in (0.02, 0.3, 0.6):
        (tmp_path / name).write_bytes(content[: int(len(content) * part)])
        refused(tmp_path / name)


@pytest.mark.parametrize("kind", ["a.nii.gz", "a.mha", "a.mhd"])
def test_damaged_compressed_pixels_are_refused(tmp_path: Path, kind: str) -> None:
    """nibabel does not read as far as the checksum, and ITK returns what happened to be in memory."""
    path = written = tmp_path / kind
    if kind == "a.nii.gz":
        nib.Nifti1Image(GRAY8.T, np.eye(4)).to_filename(path)
    elif kind == "a.mha":
        write_meta(path, GRAY16, compressed=True)
    else:
        write_meta(path, GRAY16, "a.raw", compressed=True)
        written = tmp_path / "a.raw"
    content = bytearray(written.read_bytes())
    content[-8 if kind == "a.nii.gz" else -200] ^= 8
    written.write_bytes(content)
    refused(path)
