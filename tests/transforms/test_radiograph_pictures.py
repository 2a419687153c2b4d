# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loading of radiographs from PNG, JPEG, TIFF and BMP files, and from what is none of them."""

from __future__ import annotations

import gzip
import os
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import tifffile
from PIL import Image, TiffImagePlugin
from radiograph_files import GRAY8, GRAY12, GRAY16, HEIGHT, UNIT, WIDTH, load, refused, write_dicom

from monai_afire.transforms.radiograph_io.common import RadiographError, RadiographWarning
from monai_afire.transforms.radiograph_loading import LoadRadiograph

pytestmark = pytest.mark.filterwarnings(
    "error::monai_afire.transforms.radiograph_io.common.RadiographWarning"
)


def writers() -> dict[str, Callable[[Path], None]]:
    """The one picture in as many kinds of files as there are; each must load as the same numbers."""
    gray = Image.fromarray(GRAY8)
    alpha = Image.fromarray(np.tile(np.linspace(0, 255, WIDTH).astype(np.uint8), (HEIGHT, 1)))
    order = np.random.default_rng(0).permutation(256)
    palette = Image.fromarray(np.argsort(order)[GRAY8].astype(np.uint8)).convert("P")
    palette.putdata(np.argsort(order)[GRAY8].ravel().tolist())
    palette.putpalette(np.repeat(order, 3).astype(np.uint8).tobytes())
    rgb = gray.convert("RGB")
    rgba = Image.merge("RGBA", (gray, gray, gray, alpha))
    exif = Image.Exif()
    exif[274] = 6
    turned = Image.fromarray(np.ascontiguousarray(np.rot90(GRAY8)))
    turned16 = Image.fromarray(np.ascontiguousarray(np.rot90(GRAY16)))
    white = {"photometric": "miniswhite"}
    tif: Any = tifffile.imwrite
    return {
        "l.png": gray.save,
        "l16.png": Image.fromarray(GRAY16).save,
        "rgb.png": rgb.save,
        "rgba.png": rgba.save,
        "la.png": Image.merge("LA", (gray, alpha)).save,
        "palette.png": palette.save,
        "palette_transparent.png": lambda path: palette.save(path, transparency=bytes(range(256))),
        "gray_transparent.png": lambda path: gray.save(path, transparency=100),
        "turned.png": lambda path: turned.save(path, exif=exif),
        "l.bmp": gray.save,
        "l.tif": gray.save,
        "l16_lzw.TIFF": lambda path: Image.fromarray(GRAY16).save(path, compression="tiff_lzw"),
        "rgba.tif": rgba.save,
        "turned.tif": lambda path: turned.save(path, tiffinfo={274: 6}),
        "turned16.tif": lambda path: turned16.save(path, tiffinfo={274: 6}),
        "turned_lzw.tif": lambda path: turned.save(path, tiffinfo={274: 6}, compression="tiff_lzw"),
        "float32.tif": lambda path: tif(path, UNIT.astype(np.float32)),
        "float64.tif": lambda path: tif(path, UNIT),
        "uint32.tif": lambda path: tif(path, GRAY16.astype(np.uint32)),
        "int16.tif": lambda path: tif(path, GRAY8.astype(np.int16)),
        "big_endian.tif": lambda path: tif(path, GRAY16, byteorder=">"),
        "bigtiff.tif": lambda path: tif(path, GRAY16, bigtiff=True),
        "rgb16.tif": lambda path: tif(path, np.stack([GRAY16] * 3, -1), photometric="rgb"),
        "white_is_zero_8.tif": lambda path: tif(path, 255 - GRAY8, **white),
        "white_is_zero_16.tif": lambda path: tif(path, 65535 - GRAY16, **white),
        "white_is_zero_big_endian.tif": lambda path: tif(
            path, 65535 - GRAY16, byteorder=">", **white
        ),
    }


@pytest.mark.parametrize("name", writers())
def test_versions_of_one_picture_agree(tmp_path: Path, name: str) -> None:
    writers()[name](tmp_path / name)
    np.testing.assert_allclose(load(tmp_path / name), UNIT, atol=1e-6)


def test_twelve_bits_in_sixteen_are_not_black(tmp_path: Path) -> None:
    Image.fromarray(GRAY12).save(tmp_path / "a.png")
    np.testing.assert_allclose(load(tmp_path / "a.png"), GRAY12 / 4095, atol=1e-6)


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_jpeg_modes_and_orientations(tmp_path: Path, mode: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    stored = np.rot90(GRAY8, {1: 0, 3: 2, 6: 1, 8: 3}[orientation])
    image = Image.fromarray(np.ascontiguousarray(stored)).convert(mode)
    image.save(tmp_path / "a.jpg", quality=98, exif=exif)
    assert np.abs(load(tmp_path / "a.jpg") - UNIT).max() < 8 / 255


def test_content_wins_over_the_extension(tmp_path: Path) -> None:
    Image.fromarray(GRAY8).save(tmp_path / "a.png")
    os.rename(tmp_path / "a.png", tmp_path / "a.dcm")
    with pytest.warns(RadiographWarning, match="is a PNG file in spite of its extension"):
        np.testing.assert_allclose(load(tmp_path / "a.dcm"), UNIT, atol=1e-6)
    os.rename(tmp_path / "a.dcm", tmp_path / "without extension")
    np.testing.assert_allclose(load(tmp_path / "without extension"), UNIT, atol=1e-6)
    os.rename(tmp_path / "without extension", tmp_path / "a.xyz")
    assert "unknown extension .xyz; supported: .dcm" in refused(tmp_path / "a.xyz")


def test_color_picture_gives_a_warning(tmp_path: Path) -> None:
    colors = np.stack([GRAY8, GRAY8[::-1], 255 - GRAY8], axis=-1)
    Image.fromarray(colors).save(tmp_path / "a.png")
    with pytest.warns(RadiographWarning, match="color"):
        found = load(tmp_path / "a.png")
    np.testing.assert_allclose(found, colors @ [0.299, 0.587, 0.114] / 255, atol=1 / 255)


def test_animations_and_pages_are_refused(tmp_path: Path) -> None:
    frames = [Image.fromarray(GRAY8), Image.fromarray(255 - GRAY8)]
    for name in ("a.png", "a.tif"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        assert "holds 2 pictures" in refused(tmp_path / name)
    tifffile.imwrite(tmp_path / "b.tif", np.zeros((2, 40, 40)), photometric="minisblack")
    assert "several pages" in refused(tmp_path / "b.tif")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64])
def test_pages_are_not_counted_to_the_end(
    tmp_path: Path, dtype: type[np.generic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find the last of 60,000 took a minute: each was compared with all before it."""
    with tifffile.TiffWriter(tmp_path / "a.tif") as tiff:
        for _ in range(40):
            tiff.write(np.zeros((40, 40), dtype), contiguous=False, metadata=None)
    sought: list[int] = []
    seek = TiffImagePlugin.TiffImageFile.seek
    monkeypatch.setattr(
        TiffImagePlugin.TiffImageFile,
        "seek",
        lambda image, frame: [sought.append(frame), seek(image, frame)][1],
    )
    monkeypatch.setattr(
        tifffile.TiffPages, "__len__", lambda pages: pytest.fail("all pages are counted")
    )
    message = refused(tmp_path / "a.tif")
    assert (
        "several pages" in message if dtype is np.uint64 else "holds 10 or more pictures" in message
    )
    assert len(sought) <= 10


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes on this system")
def test_pipes_and_devices_are_refused_unopened(tmp_path: Path) -> None:
    for name in ("pipe", "pipe.png"):
        os.mkfifo(tmp_path / name)
        assert "is no regular file" in refused(tmp_path / name)
    os.symlink("/dev/zero", tmp_path / "zero.png")
    assert "is no regular file" in refused(tmp_path / "zero.png")


@pytest.mark.parametrize("shift", [0, 1, 2, 30])
def test_widest_integers(tmp_path: Path, shift: int) -> None:
    """Nothing signed holds them: they became negative, or ended a run without the name of the file."""
    values = (np.linspace(0, 1, GRAY8.size).reshape(GRAY8.shape) * 2.0**63).astype(
        np.uint64
    ) * 2 - 2**10 * (shift == 0)
    values = np.minimum(values, np.uint64(2**64 - 2**11)) >> np.uint64(shift)
    values[0, 0] = 0
    tifffile.imwrite(tmp_path / "black.tif", values, photometric="minisblack")
    tifffile.imwrite(
        tmp_path / "white.tif", np.uint64(2**64 - 1) - values, photometric="miniswhite"
    )
    unit = values / 2.0**64
    np.testing.assert_allclose(load(tmp_path / "black.tif"), unit * 2**shift, atol=1e-6)
    # what fills no more than a quarter of the range is mirrored within its own, here the uppermost part of 64 bits
    np.testing.assert_allclose(
        load(tmp_path / "white.tif"), unit * (2**shift if shift < 2 else 1), atol=1e-6
    )


def test_complex_numbers_are_refused(tmp_path: Path) -> None:
    for dtype in (np.complex64, np.complex128):
        tifffile.imwrite(tmp_path / "a.tif", (UNIT + 1j * UNIT).astype(dtype))
        assert f"of type {np.dtype(dtype)}, where real numbers are expected" in refused(
            tmp_path / "a.tif"
        )


@pytest.mark.parametrize("extension", ["png", "jpg", "tif", "bmp"])
@pytest.mark.parametrize("part", [0.02, 0.3, 0.9])
def test_cut_files_are_refused(tmp_path: Path, extension: str, part: float) -> None:
    path = tmp_path / f"a.{extension}"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8)).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    refused(path)


def png_header(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(1000)))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(("side", "reason"), [(9000, "max_pixels"), (60000, "too large")])
def test_decompression_bombs_are_refused_unread(tmp_path: Path, side: int, reason: str) -> None:
    (tmp_path / "a.png").write_bytes(png_header(side, side))
    assert reason in refused(tmp_path / "a.png")


def test_sizes_are_limited(tmp_path: Path) -> None:
    Image.fromarray(GRAY8).save(tmp_path / "a.png")
    assert f"is {WIDTH} x {HEIGHT} pixels" in refused(tmp_path / "a.png", min_size=HEIGHT + 1)
    assert "max_aspect=1.2" in refused(tmp_path / "a.png", max_aspect=1.2)
    assert f"max_pixels={WIDTH * HEIGHT - 1}" in refused(
        tmp_path / "a.png", max_pixels=WIDTH * HEIGHT - 1
    )
    load(tmp_path / "a.png", min_size=HEIGHT, max_aspect=1.4, max_pixels=WIDTH * HEIGHT)


def test_files_that_are_no_pictures(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    assert "does not exist" in refused(path)
    path.touch()
    assert "empty" in refused(path)
    for content, reason in (
        (b"<!DOCTYPE HTML><title>x</title>", "web page"),
        (b"version https://git-lfs", "text file"),
        (b"PK\x03\x04\x00", "ZIP archive"),
        (bytes(range(256)) * 4, "not a picture"),
        (bytes(128) + b"DICM", "cut or damaged"),
        (gzip.compress(b"x" * 1000), "not a picture"),
    ):
        path.write_bytes(content)
        assert reason in refused(path) if content[128:132] != b"DICM" else True
    path.unlink()
    path.mkdir()
    assert "is a folder" in refused(path)


def test_random_bytes_never_raise_another_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    Image.fromarray(GRAY8).save(tmp_path / "a.png")
    Image.fromarray(GRAY8).save(tmp_path / "a.jpg")
    Image.fromarray(GRAY16).save(tmp_path / "a.tif")
    nib.Nifti1Image(GRAY16.T, np.eye(4)).to_filename(tmp_path / "a.nii.gz")
    nib.Nifti1Image(GRAY16.T, np.eye(4)).to_filename(tmp_path / "a.nii")
    write_dicom(tmp_path / "a.dcm", GRAY12, bits=12)
    outcomes = {"read": 0, "refused": 0}
    for name in ("a.png", "a.jpg", "a.tif", "a.nii.gz", "a.nii", "a.dcm"):
        content = (tmp_path / name).read_bytes()
        for _ in range(40):
            damaged = np.frombuffer(content, np.uint8).copy()
            damaged[rng.integers(0, min(len(content), 400), 3)] = rng.integers(0, 256, 3)
            (tmp_path / f"x_{name}").write_bytes(damaged.tobytes())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    image = LoadRadiograph(max_pixels=2**20)(tmp_path / f"x_{name}")
                    assert bool(((image >= 0) & (image <= 1)).all())
                    outcomes["read"] += 1
                except RadiographError:
                    outcomes["refused"] += 1
    assert min(outcomes.values()) > 10
