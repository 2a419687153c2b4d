# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tests of radiograph loading on small files written here."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import warnings
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pydicom
import pytest
import tifffile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from monai.data import DataLoader, Dataset, MetaTensor, set_track_meta
from monai.transforms import Compose, EnsureChannelFirstd, Resize, Resized, SaveImage
from PIL import Image
from pydicom import uid
from pydicom.pixels import apply_modality_lut, apply_windowing

from monai_afire.transforms.radiograph_io.common import RadiographPixels, planar_affine, rgb_to_gray
from monai_afire.transforms.radiograph_io.intensity import depth_range, scale_to_unit, window_to_unit
from monai_afire.transforms.radiograph_loading import (
    LoadRadiograph,
    LoadRadiographD,
    LoadRadiographd,
    LoadRadiographDict,
    RadiographError,
    RadiographWarning,
    find_unreadable,
)

HEIGHT, WIDTH = 40, 56


def picture() -> np.ndarray:
    """An 8-bit picture without any symmetry, so that a turned or mirrored one differs."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    return (3 * rows + 2 * columns + 20 * (rows // 7 % 2)).astype(np.uint8)


GRAY8 = picture()
GRAY12 = GRAY8.astype(np.uint16) * 16
GRAY16 = GRAY8.astype(np.uint16) * 257
UNIT = GRAY8 / 255.0


@pytest.fixture(autouse=True)
def warnings_are_errors() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RadiographWarning)
        yield


def load(path: Path, **arguments: Any) -> np.ndarray:
    image = LoadRadiograph(**arguments)(path)
    assert isinstance(image, MetaTensor)
    assert image.shape[0] == 1
    return np.asarray(image)[0]


def metadata(name: Any, **arguments: Any) -> dict[str, Any]:
    image = LoadRadiograph(**arguments)(name)
    assert isinstance(image, MetaTensor)
    return image.meta


def refused(path: Path, **arguments: Any) -> str:
    with pytest.raises(RadiographError) as caught:
        LoadRadiograph(**arguments)(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def write_dicom(
    path: Path,
    pixels: np.ndarray,
    syntax: str = uid.ExplicitVRLittleEndian,
    bits: int | None = None,
    frame: bytes | None = None,
    **elements: Any,
) -> Path:
    """A minimal DICOM file of these stored numbers; ``frame`` replaces them by compressed bytes."""
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = uid.UID(syntax)
    dataset.SOPClassUID, dataset.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.1", "1.2.3"
    dataset.Rows, dataset.Columns = pixels.shape[:2]
    dataset.SamplesPerPixel = 1 if pixels.ndim == 2 else 3
    if pixels.ndim == 3:
        dataset.PlanarConfiguration = 0
    dataset.BitsAllocated = pixels.dtype.itemsize * 8
    dataset.BitsStored = bits or dataset.BitsAllocated
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = int(pixels.dtype.kind == "i")
    dataset.PhotometricInterpretation = "MONOCHROME2"
    for keyword, value in elements.items():
        setattr(dataset, keyword, value)
    if frame is None:
        order: Any = "<" if dataset.file_meta.TransferSyntaxUID.is_little_endian else ">"
        dataset.PixelData = pixels.astype(pixels.dtype.newbyteorder(order)).tobytes()
        dataset["PixelData"].VR = "OW"
    else:
        dataset.PixelData = pydicom.encaps.encapsulate([frame])
        dataset["PixelData"].VR = "OB"
    dataset.save_as(path, enforce_file_format=True)
    return path


# ---- PNG, JPEG, TIFF, BMP


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
        "white_is_zero_big_endian.tif": lambda path: tif(path, 65535 - GRAY16, byteorder=">", **white),
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


def test_colour_picture_gives_a_warning(tmp_path: Path) -> None:
    colours = np.stack([GRAY8, GRAY8[::-1], 255 - GRAY8], axis=-1)
    Image.fromarray(colours).save(tmp_path / "a.png")
    with pytest.warns(RadiographWarning, match="colour"):
        found = load(tmp_path / "a.png")
    np.testing.assert_allclose(found, colours @ [0.299, 0.587, 0.114] / 255, atol=1 / 255)


def test_animations_and_pages_are_refused(tmp_path: Path) -> None:
    frames = [Image.fromarray(GRAY8), Image.fromarray(255 - GRAY8)]
    for name in ("a.png", "a.tif"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        assert "holds 2 pictures" in refused(tmp_path / name)
    tifffile.imwrite(tmp_path / "b.tif", np.zeros((2, 40, 40)), photometric="minisblack")
    assert "2 pages" in refused(tmp_path / "b.tif")


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
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(("side", "reason"), [(9000, "max_pixels"), (60000, "too large")])
def test_decompression_bombs_are_refused_unread(tmp_path: Path, side: int, reason: str) -> None:
    (tmp_path / "a.png").write_bytes(png_header(side, side))
    assert reason in refused(tmp_path / "a.png")


def test_sizes_are_limited(tmp_path: Path) -> None:
    Image.fromarray(GRAY8).save(tmp_path / "a.png")
    assert f"is {WIDTH} x {HEIGHT} pixels" in refused(tmp_path / "a.png", min_size=HEIGHT + 1)
    assert "max_aspect=1.2" in refused(tmp_path / "a.png", max_aspect=1.2)
    assert f"max_pixels={WIDTH * HEIGHT - 1}" in refused(tmp_path / "a.png", max_pixels=WIDTH * HEIGHT - 1)
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


# ---- DICOM

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
        (GRAY12, 12, {"RescaleSlope": -1, "RescaleIntercept": 0, "PhotometricInterpretation": "MONOCHROME1"}),
        (GRAY12, 12, {"RescaleSlope": "0.37", "RescaleIntercept": "-1024"}),
        (GRAY12.astype(np.int16) - 2048, 12, {"RescaleSlope": 1, "RescaleIntercept": 2048}),
        (GRAY12.astype(np.int16) - 2048, 12, {"RescaleSlope": 2, "RescaleIntercept": 4096}),
        (
            2047 - GRAY12.astype(np.int16),
            12,
            {"RescaleSlope": 1, "RescaleIntercept": 2048, "PhotometricInterpretation": "MONOCHROME1"},
        ),
    ],
)
def test_dicom_without_window_shows_the_same_picture(
    tmp_path: Path, pixels: np.ndarray, bits: int, elements: dict[str, Any]
) -> None:
    path = write_dicom(tmp_path / "a.dcm", pixels, bits=bits, **elements)
    np.testing.assert_allclose(load(path), GRAY12 / 4095, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(10, 16), st.booleans(), st.booleans())
def test_monochrome1_equals_its_twin(seed: int, bits: int, signed: bool, window: bool) -> None:
    import tempfile

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
            if window:  # the mirrored LINEAR window has its centre one further: it is open on one side
                middle = center if photometric == "MONOCHROME2" else top - center + 1
                shift = intercept - offset
                elements |= {"WindowCenter": middle + shift, "WindowWidth": width}
            path = write_dicom(Path(folder) / "a.dcm", (stored - offset).astype(kind), bits=bits, **elements)
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
    for arguments in ((2.0, 0.0), (2.0, -1.0), (2.0, 0.5), (float("nan"), 5.0), (2.0, 5.0, "CUBIC")):
        with pytest.raises(ValueError, match=r"window|function"):
            window_to_unit(x, *arguments)


@pytest.mark.parametrize("window", [(0, 0), (10**6, 10), (2000, -5)])
def test_useless_windows_are_replaced(tmp_path: Path, window: tuple[int, int]) -> None:
    path = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, WindowCenter=window[0], WindowWidth=window[1])
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
        tmp_path / "a.dcm", GRAY12, bits=12, VOILUTSequence=[item], PhotometricInterpretation=photometric
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
        tmp_path / "a.dcm", pixels, bits=16, PixelPaddingValue=value, PhotometricInterpretation=photometric
    )
    expected = np.zeros(GRAY12.shape)
    expected[9:] = inside / 4095
    np.testing.assert_allclose(load(path), expected, atol=1e-6)


@pytest.mark.parametrize(("photometric", "mode"), [("RGB", "RGB"), ("YBR_FULL", "YCbCr")])
def test_colour_dicom_is_reduced_with_a_warning(tmp_path: Path, photometric: str, mode: str) -> None:
    pixels = np.asarray(Image.fromarray(GRAY8).convert("RGB").convert(mode))
    path = write_dicom(tmp_path / "a.dcm", pixels, PhotometricInterpretation=photometric)
    with pytest.warns(RadiographWarning, match=rf"colour picture \({photometric}\)"):
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
    ("syntax", "package"), [(uid.JPEGLSLossless, "pyjpegls"), (uid.JPEGExtended12Bit, "pylibjpeg-libjpeg")]
)
def test_missing_decoder_is_named(tmp_path: Path, syntax: str, package: str) -> None:
    if package == "pyjpegls":
        from pydicom.pixels.decoders import JPEGLSLosslessDecoder

        if JPEGLSLosslessDecoder.is_available:
            pytest.skip("a decoder is installed")
    path = write_dicom(tmp_path / "a.dcm", GRAY12, syntax, bits=12, frame=bytes(100))
    assert f"pip install {package}" in refused(path).replace("pylibjpeg pylibjpeg", "pylibjpeg")


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


def test_deflate_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_dicom(tmp_path / "a.dcm", GRAY12, uid.DeflatedExplicitVRLittleEndian, bits=12)
    monkeypatch.setattr("monai_afire.transforms.radiograph_io.dicom._MAX_INFLATED_BYTES", 1000)
    assert "inflates to more than 1000 bytes" in refused(path)


def test_not_upright_by_its_tag_gives_a_warning(tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, PatientOrientation=["L", "H"])
    with pytest.warns(RadiographWarning, match="not upright"):
        load(path)
    load(write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, PatientOrientation=["L", "F"]))


# ---- NIfTI


@pytest.mark.parametrize(
    ("array", "affine"),
    [
        (GRAY16.T, np.diag([-1.0, -1, 1, 1])),
        (GRAY16.T, np.eye(4)),  # the x-y plane is a stand-in: its signs do not turn the picture
        (GRAY16.T[:, :, None], np.diag([-1.0, -1, 1, 1])),
        (GRAY16.T[:, :, None, None], np.eye(4)),
        (GRAY16, planar_affine()),  # as SaveImage writes it: rows along y
        (GRAY16.T[:, None, ::-1], np.diag([-1.0, 1, 1, 1])),  # coronal: z runs upwards
        (GRAY16.T[::-1, None, ::-1], np.eye(4)),
        (GRAY16.T[None, :, ::-1], np.diag([1.0, -1, 1, 1])),  # sagittal
    ],
)
@pytest.mark.parametrize("extension", [".nii", ".nii.gz"])
@pytest.mark.parametrize("kind", [nib.Nifti1Image, nib.Nifti2Image])
def test_nifti_is_upright(tmp_path: Path, array: np.ndarray, affine: np.ndarray, extension: str, kind: Any) -> None:
    path = tmp_path / f"a{extension}"
    kind(array, affine).to_filename(path)
    np.testing.assert_allclose(load(path), UNIT, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "tolerance"),
    [(UNIT, 1e-6), (GRAY8.astype(np.float32), 1e-6), (GRAY12.astype(np.int16), 1e-3), (GRAY12 * 1.0, 1e-3)],
)
def test_nifti_numbers(tmp_path: Path, values: np.ndarray, tolerance: float) -> None:
    nib.Nifti1Image(values.T, np.eye(4)).to_filename(tmp_path / "a.nii")
    np.testing.assert_allclose(load(tmp_path / "a.nii"), UNIT, atol=5 * tolerance)


def test_nifti_rgb_and_slope(tmp_path: Path) -> None:
    colours = np.zeros(GRAY8.T.shape, dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")])
    for name in "RGB":
        colours[name] = GRAY8.T
    nib.Nifti1Image(colours, np.eye(4)).to_filename(tmp_path / "a.nii")
    np.testing.assert_allclose(load(tmp_path / "a.nii"), UNIT, atol=1e-6)
    image = nib.Nifti1Image(GRAY8.T.astype(np.int16), np.eye(4))
    image.header.set_slope_inter(2.0, 0.0)
    image.to_filename(tmp_path / "b.nii")
    np.testing.assert_allclose(load(tmp_path / "b.nii"), load(tmp_path / "a.nii"), atol=5e-3)


@pytest.mark.parametrize("shape", [(40, 40, 2), (40, 40, 1, 3), (2, 40, 40), (40, 40, 3)])
def test_volumes_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    nib.Nifti1Image(np.zeros(shape, np.float32), np.eye(4)).to_filename(tmp_path / "a.nii.gz")
    assert " x ".join(map(str, shape)) in refused(tmp_path / "a.nii.gz")


@pytest.mark.parametrize("extension", [".nii", ".nii.gz"])
def test_cut_nifti_is_refused(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"a{extension}"
    values = np.random.default_rng(0).random((64, 64)).astype(np.float32)
    nib.Nifti1Image(values, np.eye(4)).to_filename(path)
    path.write_bytes(path.read_bytes()[:9000])
    assert "cut or damaged" in refused(path)


def test_bad_pixels_are_repaired_and_counted(tmp_path: Path) -> None:
    values = 0.2 + 0.5 * UNIT
    bad = values.copy()
    bad[0, :3], bad[5, 5], bad[6, 6] = np.nan, np.inf, -np.inf
    nib.Nifti1Image(bad.T, np.eye(4)).to_filename(tmp_path / "a.nii")
    with pytest.warns(RadiographWarning, match="has 5 pixels"):
        found = load(tmp_path / "a.nii")
    finite = np.isfinite(bad)
    np.testing.assert_allclose(found[finite], values[finite], atol=1e-6)
    assert found[5, 5] == pytest.approx(values[finite].max(), abs=1e-6)
    assert found[6, 6] == found[0, 0] == pytest.approx(values[finite].min(), abs=1e-6)
    nib.Nifti1Image(np.full((40, 40), np.inf), np.eye(4)).to_filename(tmp_path / "b.nii")
    assert "all 1600" in refused(tmp_path / "b.nii")


# ---- intensities


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 0], (0, 255)),
        ([0, 256], (0, 511)),
        ([0, 4095], (0, 4095)),
        ([0, 4096], (0, 8191)),
        ([0, 65535], (0, 65535)),
        ([-1000, 2000], (-1000, 3095)),
        ([0.0, 1.0], (0, 1)),
        ([-0.004, 1.0], (0, 1)),
        ([0.0, 1.5], (0, 1.5)),
        ([-2.0, 2.5], (-2, 2.5)),
        ([0.0, 3.0], (0, 255)),  # whole numbers: 8 bits
        ([0.0, 200.5], (0, 255)),
        ([0.0, 4096.5], (0, 4095)),  # overshoot of an interpolation
    ],
)
def test_depth_range(values: list[float], expected: tuple[float, float]) -> None:
    assert depth_range(np.array(values)) == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["depth", "range"]), st.booleans(), st.sampled_from("uif"))
def test_scaling_is_monotone_and_reports_its_range(seed: int, scaling: str, inverted: bool, kind: str) -> None:
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.integers(0 if kind == "u" else -3000, 60000 if kind == "u" else 30000, 2))
    values = rng.integers(low, high + 1, (8, 9)).astype(np.dtype(f"{kind}{4 if kind == 'f' else 2}"))
    pixels = RadiographPixels(values, "PNG", "L", 16, planar_affine(), inverted=inverted, slope=(2.0, 5.0))
    before = values.copy()
    unit, (black, white) = scale_to_unit(pixels, scaling)
    assert unit.dtype == np.float32
    assert unit.min() >= 0
    assert unit.max() <= 1
    np.testing.assert_array_equal(values, before)
    expected = (values.astype(float) * 2 + 5 - black) / (white - black or 1)
    if values.min() != values.max():
        np.testing.assert_allclose(unit, np.clip(expected, 0, 1), atol=1e-5)
    if scaling == "range" and values.min() != values.max():
        assert (unit.min(), unit.max()) == (0, 1)


def test_blank_picture_gives_a_warning(tmp_path: Path) -> None:
    Image.new("L", (40, 40), 51).save(tmp_path / "a.png")
    for scaling, level in (("depth", 0.2), ("range", 0.0)):
        with pytest.warns(RadiographWarning, match="blank: every pixel is 51"):
            np.testing.assert_allclose(load(tmp_path / "a.png", scaling=scaling), level, atol=1e-6)


def test_label_maps_keep_their_numbers(tmp_path: Path) -> None:
    labels = (GRAY8 // 60).astype(np.uint8)
    palette = Image.fromarray(labels).convert("P")
    palette.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255] + [0] * 756)
    palette.putdata(labels.ravel().tolist())
    palette.save(tmp_path / "palette.png")
    Image.fromarray(labels).save(tmp_path / "gray.png")
    nib.Nifti1Image(labels.T, np.eye(4)).to_filename(tmp_path / "a.nii")
    for name in ("palette.png", "gray.png", "a.nii"):
        found = LoadRadiograph(scaling="none", dtype=torch.uint8)(tmp_path / name)
        assert found.dtype == torch.uint8
        np.testing.assert_array_equal(np.asarray(found)[0], labels)
    path = write_dicom(
        tmp_path / "a.dcm", GRAY12, bits=12, RescaleSlope=2, RescaleIntercept=-7, WindowCenter=9, WindowWidth=9
    )
    np.testing.assert_allclose(load(path, scaling="none"), 2.0 * GRAY12 - 7)


def test_rgb_to_gray_is_exact_for_gray() -> None:
    for kind in (np.uint8, np.uint16):
        levels = np.arange(np.iinfo(kind).max + 1).astype(kind)[None]
        np.testing.assert_array_equal(rgb_to_gray(np.stack([levels] * 3, axis=-1)), levels)


# ---- the transforms


@pytest.mark.parametrize("arguments", [{"scaling": "auto"}, {"min_size": 0}, {"max_pixels": 0}, {"max_aspect": 0.5}])
def test_wrong_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        LoadRadiograph(**arguments)


def test_paths_of_all_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(GRAY8).save(path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (path, str(path), [str(path)], (path,), "~/a.png"):
        assert metadata(name)["filename_or_obj"] == str(path)
    for wrong in ([path, path], [], 3, None, torch.zeros(1, 4, 4)):
        with pytest.raises(RadiographError, match=r"files for one picture|a file name is expected"):
            LoadRadiograph()(wrong)  # type: ignore[arg-type]
    with pytest.raises(RadiographError, match="cannot be opened"):
        LoadRadiograph()("a\0b.png")


def test_output_type(tmp_path: Path) -> None:
    Image.fromarray(GRAY8).save(tmp_path / "a.png")
    image = LoadRadiograph()(tmp_path / "a.png")
    assert image.dtype == torch.float32
    assert image.is_contiguous()
    meta = metadata(tmp_path / "a.png")
    assert meta["original_channel_dim"] == 0
    np.testing.assert_array_equal(meta["spatial_shape"], (HEIGHT, WIDTH))
    assert LoadRadiograph(dtype=np.float64)(tmp_path / "a.png").dtype == torch.float64
    set_track_meta(False)
    try:
        assert type(LoadRadiograph()(tmp_path / "a.png")) is torch.Tensor
    finally:
        set_track_meta(True)


def test_dictionary_version(tmp_path: Path) -> None:
    assert LoadRadiographD is LoadRadiographDict is LoadRadiographd
    Image.fromarray(GRAY8).save(tmp_path / "a.png")
    item: dict[Any, Any] = {"image": str(tmp_path / "a.png"), "prior": str(tmp_path / "a.png"), "label": 1}
    before = dict(item)
    loaded = LoadRadiographd(keys=("image", "prior", "none"), allow_missing_keys=True, scaling="range")(item)
    assert item == before
    assert loaded["label"] == 1
    np.testing.assert_array_equal(loaded["image"], LoadRadiograph(scaling="range")(tmp_path / "a.png"))
    np.testing.assert_array_equal(loaded["image"], loaded["prior"])
    with pytest.raises(KeyError):
        LoadRadiographd(keys="none")(item)


def test_batch_of_different_formats_in_workers(tmp_path: Path) -> None:
    Image.fromarray(GRAY8).save(tmp_path / "a.png")
    write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, PixelSpacing=[0.2, 0.1])
    nib.Nifti1Image(GRAY16.T, np.eye(4)).to_filename(tmp_path / "a.nii.gz")
    names = ["a.png", "a.dcm", "a.nii.gz"]
    steps = Compose([LoadRadiographd("image"), EnsureChannelFirstd("image"), Resized("image", (32, 48))])
    dataset = Dataset([{"image": str(tmp_path / name)} for name in names], steps)
    [batch] = DataLoader(dataset, batch_size=3, num_workers=1)
    assert batch["image"].shape == (3, 1, 32, 48)
    np.testing.assert_allclose(batch["image"].meta["spacing"][1], (0.2, 0.1))


def test_error_passes_between_processes() -> None:
    error = RadiographError("a.png: is empty.")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is RadiographError
    assert str(again) == str(error)
    assert isinstance(error, ValueError)


def test_find_unreadable(tmp_path: Path) -> None:
    Image.fromarray(GRAY8).save(tmp_path / "a.png")
    (tmp_path / "b.png").touch()
    items = [{"image": str(tmp_path / name), "x": 1} for name in ("a.png", "b.png", "c.png")]
    readable, failures = find_unreadable(items)
    assert readable == items[:1]
    assert [number for number, _ in failures] == [1, 2]
    assert find_unreadable(items[:1], keys=("image",), loader=LoadRadiograph(min_size=100))[0] == []


# ---- maps saved in the geometry of the input


@pytest.mark.parametrize("name", ["a.png", "a.dcm", "a.nii.gz"])
def test_saved_map_lies_on_the_input(tmp_path: Path, name: str) -> None:
    if name == "a.png":
        Image.fromarray(GRAY8).save(tmp_path / name)
    elif name == "a.dcm":
        write_dicom(tmp_path / name, GRAY12, bits=12, ImagerPixelSpacing=[0.3, 0.2])
    else:
        nib.Nifti1Image(GRAY16.T[:, :, None], np.diag([-0.2, -0.3, 1, 1])).to_filename(tmp_path / name)
    image = LoadRadiograph()(tmp_path / name)
    small = Resize((HEIGHT // 2, WIDTH // 2))(image)
    options: dict[str, Any] = {"output_dir": tmp_path, "separate_folder": False, "print_log": False, "resample": True}
    SaveImage(output_ext=".nii.gz", output_postfix="map", **options)(small.clone())
    saved = LoadRadiograph()(tmp_path / "a_map.nii.gz")
    assert saved.shape == image.shape
    assert float((saved - image).abs().mean()) < 0.03
    np.testing.assert_allclose(
        metadata(tmp_path / "a_map.nii.gz")["affine"], metadata(tmp_path / name)["affine"], atol=1e-6
    )
    if name == "a.nii.gz":  # the corner pixels lie where those of the input lie
        source, target = (nib.Nifti1Image.from_filename(tmp_path / file).affine for file in (name, "a_map.nii.gz"))
        np.testing.assert_allclose(target @ [3, 7, 0, 1], source @ [7, 3, 0, 1], atol=1e-5)
    writer = SaveImage(output_ext=".png", output_postfix="map", scale=255, **options)
    writer.set_options(write_kwargs={"reverse_indexing": False})(small.clone())
    assert float((LoadRadiograph()(tmp_path / "a_map.png") - image).abs().mean()) < 0.03
