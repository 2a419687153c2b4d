# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Overlay, map and embedding of one image: the right file, the right size, the right place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import torch
from PIL import Image

from monai_afire.apps.worklist.anomaly_result import (
    AnomalyResult,
    save_embedding,
    save_map,
    save_overlay,
)
from monai_afire.apps.worklist.normal_images import Judgment
from monai_afire.transforms.radiograph import LoadRadiographd
from monai_afire.transforms.radiograph_description import DescribeRadiographd

Saver = Callable[[AnomalyResult, Path], Path]
SAVERS: dict[str, Saver] = {".jpg": save_overlay, ".nii.gz": save_map, ".npz": save_embedding}
SPACED = np.array(
    [[0.0, -0.2, 0.0, 7.0], [-0.3, 0.0, 0.0, -5.0], [0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 0.0, 1.0]]
)


def result(**changes: Any) -> AnomalyResult:
    """Of a file of 60 rows and 90 columns that a network saw as 24 x 24, with one hot cell of 3 x 3."""
    heat = np.zeros((24, 24), np.float32)
    heat[3:6, 18:21] = 4.0
    facts: dict[str, Any] = {
        "source": "/data/day 1/a.dcm",
        "root": "/data",
        "heat": heat,
        "tokens": np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32),
        "picture": np.linspace(0, 255, 48 * 48).reshape(48, 48).astype(np.uint8),
        "spatial_shape": (60, 90),
        "affine": SPACED,
        "heat_range": (1.0, 3.0),
        "score": 2.5,
        "judgment": Judgment(threshold=2.0),
    }
    return AnomalyResult(**(facts | changes))


def hottest(plane: np.ndarray) -> tuple[float, float]:
    """Center of the hot pixels as fractions of rows and columns."""
    places = np.argwhere(plane > plane.max() / 2) + 0.5
    row, column = places.mean(axis=0) / plane.shape
    return float(row), float(column)


def load_map(path: Path) -> nib.Nifti1Image:
    image = nib.load(path)
    assert isinstance(image, nib.Nifti1Image)
    return image


HOT_SPOT = (4.5 / 24, 19.5 / 24)


# ---- any kind


@pytest.mark.parametrize("suffix", SAVERS)
@pytest.mark.parametrize(
    "source",
    [
        "/data/../../etc/passwd",
        "/data/\udcff\n:*?.dcm",
    ],
)
def test_files_stay_in_the_folder_whatever_the_name(
    tmp_path: Path, suffix: str, source: str
) -> None:
    out = tmp_path / "out"
    path = SAVERS[suffix](result(source=source), out)
    assert path.resolve().is_relative_to(out.resolve())
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [path]


@pytest.mark.parametrize("suffix", SAVERS)
def test_a_second_run_writes_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    first = SAVERS[suffix](result(), tmp_path).read_bytes()
    assert SAVERS[suffix](result(), tmp_path).read_bytes() == first


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((60, 90), (32, 48)), ((90, 60), (48, 32)), ((3000, 4), (48, 1))],
)
def test_both_halves_have_the_proportions_of_the_original(
    shape: tuple[int, int], expected: tuple[int, int]
) -> None:
    """Radiograph and overlay stand below the title, half a letter apart: the only light pixels of a white picture."""
    given = result(
        spatial_shape=shape,
        picture=np.full((48, 48), 255, np.uint8),
        heat=np.zeros((24, 24), np.float32),
    )
    picture = given.picture_with_heat()
    rows, columns = expected
    assert (picture[20 : 20 + rows, :columns] == 255).all()
    assert (picture[20 : 20 + rows, columns : columns + 5] == 0).all()
    assert (picture[20 : 20 + rows, columns + 5 : 2 * columns + 5] == 255).all()


@pytest.mark.parametrize("shape", [(60, 90), (90, 60)])
def test_overlay_has_the_hot_spot_in_place(shape: tuple[int, int]) -> None:
    rows, columns = (32, 48) if shape == (60, 90) else (48, 32)
    right = (
        result(spatial_shape=shape)
        .picture_with_heat()[20 : 20 + rows, columns + 5 : 2 * columns + 5]
        .astype(int)
    )
    assert hottest(right.max(axis=2) - right.min(axis=2)) == pytest.approx(HOT_SPOT, abs=0.02)


# ---- map


@pytest.mark.parametrize("shape", [(60, 90), (90, 60), (24, 24)])
def test_map_has_size_and_geometry_of_the_original(tmp_path: Path, shape: tuple[int, int]) -> None:
    image = load_map(save_map(result(spatial_shape=shape), tmp_path))
    assert image.shape == shape
    assert image.get_data_dtype() == np.float32
    np.testing.assert_allclose(image.affine, SPACED, atol=1e-6)
    assert hottest(np.asarray(image.dataobj)) == pytest.approx(HOT_SPOT, abs=0.02)


AFFINES = {
    "RAS": np.diag([0.5, 0.25, 1.0, 1.0]),
    "LPS": np.diag([-0.5, -0.25, 1.0, 1.0]),
    "turned": np.array([[0, 0.25, 0, 3.0], [-0.5, 0, 0, 4.0], [0, 0, 1.0, 5.0], [0, 0, 0, 1.0]]),
}


@pytest.mark.parametrize("name", AFFINES)
def test_map_lies_on_a_nifti_file(tmp_path: Path, name: str) -> None:
    """The brightest place of the file and the hottest of its map are one point of the patient."""
    pixels = np.zeros((64, 40), np.float32)
    pixels[50:53, 7:10] = 1.0
    nib.Nifti1Image(pixels[..., None], AFFINES[name]).to_filename(tmp_path / "a.nii.gz")
    place = written_place(tmp_path, "a.nii.gz")
    np.testing.assert_allclose(place, (AFFINES[name] @ [51, 8, 0, 1])[:3], atol=1e-4)


def test_map_lies_on_a_picture_file(tmp_path: Path) -> None:
    """A viewer puts row r and column c of a picture without geometry at (c, r) of the left-posterior plane."""
    pixels = np.zeros((40, 64), np.uint8)
    pixels[7:10, 50:53] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    np.testing.assert_allclose(written_place(tmp_path, "a.png"), (-51, -8, 0), atol=1e-4)


def written_place(folder: Path, name: str) -> np.ndarray:
    """Where in space the map of a file is hottest whose heat is the file's own brightness."""
    item = DescribeRadiographd("image", picture_size=16)(
        LoadRadiographd("image")({"image": str(folder / name)})
    )
    image = torch.as_tensor(item["image"])[0].numpy()
    shape, affine, picture = (
        np.asarray(item[key]) for key in ("spatial_shape", "affine", "picture")
    )
    given = result(
        source=str(folder / name),
        root=str(folder),
        heat=image,
        picture=picture[0],
        spatial_shape=tuple(shape.tolist()),
        affine=affine,
    )
    written = load_map(save_map(given, folder / "maps"))
    heat = np.asarray(written.dataobj)
    row, column = np.argwhere(heat > heat.max() / 2).mean(axis=0)
    return (written.affine @ [row, column, 0, 1])[:3]


# ---- embedding


def test_embedding_holds_the_tokens_and_their_mean(tmp_path: Path) -> None:
    given = result()
    with np.load(save_embedding(given, tmp_path), allow_pickle=False) as content:
        assert sorted(content) == ["embedding", "tokens"]
        np.testing.assert_array_equal(content["tokens"], given.tokens)
        np.testing.assert_allclose(content["embedding"], given.tokens.mean(axis=0), rtol=1e-6)
        assert content["embedding"].shape == (5,)
