# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Overlay, map and embedding of one image: the right file, the right size, the right place."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from apps.worklist.makers import result
from PIL import Image

from monai_afire.apps.worklist.anomaly_result import save_result
from monai_afire.transforms import DescribeRadiographd, LoadRadiographd

HOT_SPOT = (4.5 / 24, 19.5 / 24)


def hottest(plane: np.ndarray) -> tuple[float, float]:
    """Center of the hot pixels as fractions of rows and columns."""
    places = np.argwhere(plane > plane.max() / 2) + 0.5
    row, column = places.mean(axis=0) / plane.shape
    return float(row), float(column)


@pytest.mark.parametrize("shape", [(60, 90), (90, 60)])
def test_overlay_has_the_hot_spot_in_place(shape: tuple[int, int]) -> None:
    rows, columns = (32, 48) if shape == (60, 90) else (48, 32)
    picture = result("a.png", spatial_shape=shape).picture_with_heat()
    right = picture[20 : 20 + rows, columns + 5 : 2 * columns + 5].astype(int)
    assert hottest(right.max(axis=2) - right.min(axis=2)) == pytest.approx(HOT_SPOT, abs=0.02)


@pytest.mark.parametrize("shape", [(60, 90), (24, 24)])
def test_map_has_size_and_geometry_of_the_original(tmp_path: Path, shape: tuple[int, int]) -> None:
    affine = np.array([[0, -0.2, 0, 7], [-0.3, 0, 0, -5], [0, 0, 1, 2], [0, 0, 0, 1.0]])
    path = save_result(result("a.png", affine=affine, spatial_shape=shape), "maps", tmp_path)
    image = nib.load(path)
    assert image.shape == shape
    np.testing.assert_allclose(image.affine, affine, atol=1e-6)
    assert hottest(np.asarray(image.dataobj)) == pytest.approx(HOT_SPOT, abs=0.02)


AFFINES = {
    "LPS": np.diag([-0.5, -0.25, 1.0, 1.0]),
    "turned": np.array([[0, 0.25, 0, 3.0], [-0.5, 0, 0, 4.0], [0, 0, 1.0, 5.0], [0, 0, 0, 1.0]]),
}


@pytest.mark.parametrize("name", AFFINES)
def test_map_lies_on_a_nifti_file(tmp_path: Path, name: str) -> None:
    """The brightest place of the file and the hottest of its map are one point of the patient."""
    pixels = np.zeros((64, 40), np.float32)
    pixels[50:53, 7:10] = 1.0
    nib.Nifti1Image(pixels[..., None], AFFINES[name]).to_filename(tmp_path / "a.nii.gz")
    place = written_place(tmp_path / "a.nii.gz")
    np.testing.assert_allclose(place, (AFFINES[name] @ [51, 8, 0, 1])[:3], atol=1e-4)


def test_map_lies_on_a_picture_file(tmp_path: Path) -> None:
    """A viewer puts row r and column c of a picture without geometry at (c, r) of the left-posterior plane."""
    pixels = np.zeros((40, 64), np.uint8)
    pixels[7:10, 50:53] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    np.testing.assert_allclose(written_place(tmp_path / "a.png"), (-51, -8, 0), atol=1e-4)


def written_place(path: Path) -> np.ndarray:
    """Where in space the map of a file is hottest whose heat is the file's own brightness."""
    loaded = LoadRadiographd("image")({"image": str(path)})
    item = DescribeRadiographd("image", picture_size=16)(loaded)
    given = result(
        path,
        heat=torch.as_tensor(item["image"])[0].numpy(),
        spatial_shape=tuple(np.asarray(item["spatial_shape"]).tolist()),
        affine=np.asarray(item["affine"]),
    )
    written = nib.load(save_result(given, "maps", path.parent / "maps"))
    heat = np.asarray(written.dataobj)
    row, column = np.argwhere(heat > heat.max() / 2).mean(axis=0)
    return (written.affine @ [row, column, 0, 1])[:3]


def test_embedding_holds_the_tokens_and_their_mean(tmp_path: Path) -> None:
    given = result("a.png")
    with np.load(save_result(given, "embeddings", tmp_path), allow_pickle=False) as content:
        np.testing.assert_array_equal(content["tokens"], given.tokens)
        np.testing.assert_allclose(content["embedding"], given.tokens.mean(axis=0), rtol=1e-6)
