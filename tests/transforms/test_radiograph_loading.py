# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loading of radiographs from NIfTI files, their intensities, and the transforms themselves."""

from __future__ import annotations

import gzip
import itertools
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import tifffile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from monai.data import DataLoader, Dataset, set_track_meta
from monai.transforms import Compose, EnsureChannelFirstd, Resize, Resized, SaveImage
from PIL import Image
from radiograph_files import (
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

from monai_afire.transforms.radiograph_io.common import (
    RadiographError,
    RadiographPixels,
    RadiographWarning,
    planar_affine,
    rgb_to_gray,
)
from monai_afire.transforms.radiograph_io.intensity import depth_range, scale_to_unit
from monai_afire.transforms.radiograph_loading import (
    LoadRadiograph,
    LoadRadiographD,
    LoadRadiographd,
    LoadRadiographDict,
)

pytestmark = pytest.mark.filterwarnings(
    "error::monai_afire.transforms.radiograph_io.common.RadiographWarning"
)


# ---- NIfTI


@pytest.mark.parametrize(
    ("array", "affine"),
    [
        (GRAY16.T, np.diag([-1.0, -1, 1, 1])),
        (GRAY16.T, np.eye(4)),  # of a writer that knows no geometry
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
def test_nifti_is_upright(
    tmp_path: Path, array: np.ndarray, affine: np.ndarray, extension: str, kind: Any
) -> None:
    path = tmp_path / f"a{extension}"
    kind(array, affine).to_filename(path)
    np.testing.assert_allclose(load(path), UNIT, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "tolerance"),
    [
        (UNIT, 1e-6),
        (GRAY8.astype(np.float32), 1e-6),
        (GRAY12.astype(np.int16), 1e-3),
        (GRAY12 * 1.0, 1e-3),
    ],
)
def test_nifti_numbers(tmp_path: Path, values: np.ndarray, tolerance: float) -> None:
    nib.Nifti1Image(values.T, np.eye(4)).to_filename(tmp_path / "a.nii")
    np.testing.assert_allclose(load(tmp_path / "a.nii"), UNIT, atol=5 * tolerance)


def test_nifti_rgb_and_slope(tmp_path: Path) -> None:
    colors = np.zeros(GRAY8.T.shape, dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")])
    for name in "RGB":
        colors[name] = GRAY8.T
    nib.Nifti1Image(colors, np.eye(4)).to_filename(tmp_path / "a.nii")
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


def bombs() -> dict[str, Callable[[bytearray], None]]:
    """Headers, changed in place, that announce far more than their picture needs."""
    return {
        "offset": lambda header: struct.pack_into("<f", header, 108, 1.5e9),
        "negative offset": lambda header: struct.pack_into("<f", header, 108, -352.0),
        "no offset": lambda header: struct.pack_into("<f", header, 108, float("nan")),
        "extension": lambda header: header.__setitem__(
            slice(348, 360), struct.pack("<4Bii", 1, 0, 0, 0, 2**31 - 8, 6)
        ),
        "whole rest": lambda header: header.__setitem__(
            slice(348, 360), struct.pack("<4Bii", 1, 0, 0, 0, 0, 6)
        ),
        "shape": lambda header: struct.pack_into("<8h", header, 40, 2, 32767, 32767, 1, 1, 1, 1, 1),
    }


@pytest.mark.parametrize("name", bombs())
def test_compressed_nifti_inflates_to_what_its_picture_needs(tmp_path: Path, name: str) -> None:
    content = bytearray(nib.Nifti1Image(GRAY8.T, np.eye(4)).to_bytes())
    if name in ("extension", "whole rest"):
        struct.pack_into("<f", content, 108, 384.0)
    bombs()[name](content)
    (tmp_path / "a.nii.gz").write_bytes(
        gzip.compress(bytes(content) + bytes(2**26), compresslevel=1)
    )
    tracemalloc.start()
    try:
        message = refused(tmp_path / "a.nii.gz")
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    assert (
        "has its first pixel at byte" in message
        or not name.endswith("offset")
        or name == "no offset"
    )


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


@pytest.mark.parametrize(("dtype", "extreme"), [("f4", 3.4e38), ("f8", 1e308), ("f8", 1e20)])
@pytest.mark.parametrize("scaling", ["depth", "range", "none"])
@pytest.mark.parametrize("signs", [(-1, 1), (0, 1), (-1, 0)])
def test_extreme_numbers_are_refused(
    tmp_path: Path, dtype: str, extreme: float, scaling: str, signs: tuple[int, int]
) -> None:
    """Their difference is infinite, and the picture was NaN, which a detector called normal."""
    values = np.linspace(signs[0], signs[1], UNIT.size).reshape(UNIT.shape) * extreme
    nib.Nifti1Image(values.astype(dtype), np.eye(4)).to_filename(tmp_path / "a.nii")
    tifffile.imwrite(tmp_path / "a.tif", values.astype(dtype))
    for name in ("a.nii", "a.tif"):
        assert "which no detector gives" in refused(tmp_path / name, scaling=scaling)


@pytest.mark.filterwarnings("ignore::monai_afire.transforms.radiograph_io.common.RadiographWarning")
def test_infinite_slope_of_a_label_map_is_refused(tmp_path: Path) -> None:
    path = write_dicom(
        tmp_path / "a.dcm", GRAY12, bits=12, RescaleSlope="1e200", RescaleIntercept="1"
    )
    assert "which no detector gives" in refused(path, scaling="none")


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


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["depth", "range"]),
    st.booleans(),
    st.sampled_from("uif"),
)
def test_scaling_is_monotone_and_reports_its_range(
    seed: int, scaling: str, inverted: bool, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    low, high = np.sort(
        rng.integers(0 if kind == "u" else -3000, 60000 if kind == "u" else 30000, 2)
    )
    values = rng.integers(low, high + 1, (8, 9)).astype(
        np.dtype(f"{kind}{4 if kind == 'f' else 2}")
    )
    pixels = RadiographPixels(
        values, "PNG", "L", 16, planar_affine(), inverted=inverted, slope=(2.0, 5.0)
    )
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
        tmp_path / "a.dcm",
        GRAY12,
        bits=12,
        RescaleSlope=2,
        RescaleIntercept=-7,
        WindowCenter=9,
        WindowWidth=9,
    )
    np.testing.assert_allclose(load(path, scaling="none"), 2.0 * GRAY12 - 7)


def test_rgb_to_gray_is_exact_for_gray() -> None:
    for kind in (np.uint8, np.uint16):
        levels = np.arange(np.iinfo(kind).max + 1).astype(kind)[None]
        np.testing.assert_array_equal(rgb_to_gray(np.stack([levels] * 3, axis=-1)), levels)


# ---- the transforms


@pytest.mark.parametrize(
    "arguments", [{"scaling": "auto"}, {"min_size": 0}, {"max_pixels": 0}, {"max_aspect": 0.5}]
)
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
    item: dict[Any, Any] = {
        "image": str(tmp_path / "a.png"),
        "prior": str(tmp_path / "a.png"),
        "label": 1,
    }
    before = dict(item)
    loaded = LoadRadiographd(
        keys=("image", "prior", "none"), allow_missing_keys=True, scaling="range"
    )(item)
    assert item == before
    assert loaded["label"] == 1
    np.testing.assert_array_equal(
        loaded["image"], LoadRadiograph(scaling="range")(tmp_path / "a.png")
    )
    np.testing.assert_array_equal(loaded["image"], loaded["prior"])
    with pytest.raises(KeyError):
        LoadRadiographd(keys="none")(item)


def test_batch_of_different_formats_in_workers(tmp_path: Path) -> None:
    Image.fromarray(GRAY8).save(tmp_path / "a.png")
    write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, PixelSpacing=[0.2, 0.1])
    nib.Nifti1Image(GRAY16.T, np.eye(4)).to_filename(tmp_path / "a.nii.gz")
    names = ["a.png", "a.dcm", "a.nii.gz"]
    steps = Compose(
        [LoadRadiographd("image"), EnsureChannelFirstd("image"), Resized("image", (32, 48))]
    )
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


# ---- geometry


@pytest.mark.parametrize("signs", list(itertools.product((-1, 1), repeat=3)), ids=str)
@pytest.mark.parametrize("axes", [(1, 0), (0, 1), (2, 0), (0, 2), (2, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("code", ["sform", "qform"])
def test_nifti_of_all_signs_and_planes(
    tmp_path: Path, signs: tuple[int, ...], axes: tuple[int, int], code: str
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
    image = nib.Nifti1Image(values, matrix if code == "sform" else None)
    if code == "qform":
        image.set_qform(matrix)
    image.to_filename(tmp_path / "a.nii")
    canonical = nib.as_closest_canonical(nib.load(tmp_path / "a.nii"))
    # axes in the order of the world, all of them ascending
    plane = np.squeeze(np.asarray(canonical.dataobj))
    expected = plane[::-1, ::-1].T / (2.0**15 - 1)
    np.testing.assert_allclose(load(tmp_path / "a.nii"), expected, atol=1e-6)
    affine = np.asarray(metadata(tmp_path / "a.nii")["affine"])
    for row, column in ((0, 0), (3, 8)):
        place = [plane.shape[0] - 1 - column, plane.shape[1] - 1 - row]
        place.insert(third, 0)
        np.testing.assert_allclose(
            affine @ [row, column, 0, 1], canonical.affine @ [*place, 1], atol=1e-4
        )


def test_nifti_that_dcm2niix_writes(tmp_path: Path) -> None:
    """It writes rows from the bottom, with +y in the affine: the picture is that of the DICOM file."""
    affine = np.diag([-0.2, 0.3, 1, 1])
    nib.Nifti1Image(GRAY12[::-1].T[..., None].astype(np.int16), affine).to_filename(
        tmp_path / "a.nii"
    )
    dicom = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, PixelSpacing=[0.3, 0.2])
    np.testing.assert_allclose(load(tmp_path / "a.nii"), load(dicom), atol=1e-6)
    np.testing.assert_allclose(metadata(tmp_path / "a.nii")["spacing"], (0.3, 0.2), atol=1e-6)


@pytest.mark.parametrize("place", [(0, 0), (1, 1), (2, 2), (0, 3)])
@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_a_geometry_that_is_none_does_not_cost_the_picture(
    tmp_path: Path, place: tuple[int, int], value: float
) -> None:
    content = bytearray(
        nib.Nifti1Image(GRAY16.T[:, :, None], np.diag([-0.2, -0.3, 1, 1])).to_bytes()
    )
    # srow_x, srow_y, srow_z
    struct.pack_into("<f", content, 280 + 16 * place[0] + 4 * place[1], value)
    (tmp_path / "a.nii").write_bytes(content)
    np.testing.assert_allclose(load(tmp_path / "a.nii"), UNIT, atol=1e-6)
    assert torch.as_tensor(metadata(tmp_path / "a.nii")["affine"]).isfinite().all()


# ---- maps saved in the geometry of the input


@pytest.mark.parametrize("name", ["a.png", "a.dcm", "a.nii.gz"])
def test_saved_map_lies_on_the_input(tmp_path: Path, name: str) -> None:
    if name == "a.png":
        Image.fromarray(GRAY8).save(tmp_path / name)
    elif name == "a.dcm":
        write_dicom(tmp_path / name, GRAY12, bits=12, ImagerPixelSpacing=[0.3, 0.2])
    else:
        nib.Nifti1Image(GRAY16.T[:, :, None], np.diag([-0.2, -0.3, 1, 1])).to_filename(
            tmp_path / name
        )
    image = LoadRadiograph()(tmp_path / name)
    small = Resize((HEIGHT // 2, WIDTH // 2))(image)
    options: dict[str, Any] = {
        "output_dir": tmp_path,
        "separate_folder": False,
        "print_log": False,
        "resample": True,
    }
    SaveImage(output_ext=".nii.gz", output_postfix="map", **options)(small.clone())
    saved = LoadRadiograph()(tmp_path / "a_map.nii.gz")
    assert saved.shape == image.shape
    assert float((saved - image).abs().mean()) < 0.03
    np.testing.assert_allclose(
        metadata(tmp_path / "a_map.nii.gz")["affine"],
        metadata(tmp_path / name)["affine"],
        atol=1e-6,
    )
    if name == "a.nii.gz":  # the corner pixels lie where those of the input lie
        source, target = (
            nib.Nifti1Image.from_filename(tmp_path / file).affine for file in (name, "a_map.nii.gz")
        )
        np.testing.assert_allclose(target @ [3, 7, 0, 1], source @ [7, 3, 0, 1], atol=1e-5)
    writer = SaveImage(output_ext=".png", output_postfix="map", scale=255, **options)
    writer.set_options(write_kwargs={"reverse_indexing": False})(small.clone())
    assert float((LoadRadiograph()(tmp_path / "a_map.png") - image).abs().mean()) < 0.03


def test_numbers_of_the_other_byte_order_are_kept(tmp_path: Path) -> None:
    values = np.arange(12 * 16, dtype=">i2").reshape(12, 16)
    nib.Nifti1Image(values, np.eye(4), nib.Nifti1Header(endianness=">")).to_filename(
        tmp_path / "a.nii"
    )
    nib.Nifti1Image(values.astype("<i2"), np.eye(4)).to_filename(tmp_path / "b.nii")
    first, second = (
        LoadRadiograph(scaling="none", min_size=1)(tmp_path / name) for name in ("a.nii", "b.nii")
    )
    assert len(torch.as_tensor(first).unique()) == 12 * 16
    torch.testing.assert_close(torch.as_tensor(first), torch.as_tensor(second))


def test_the_name_of_the_file_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    path = str(tmp_path / "a.png")
    Image.fromarray(GRAY8).save(path)
    item = LoadRadiographd("image", file_key="file")({"image": path})
    assert item["file"] == path
    assert item["image"].shape == (1, HEIGHT, WIDTH)
    assert "file" not in LoadRadiographd("image")({"image": path})
