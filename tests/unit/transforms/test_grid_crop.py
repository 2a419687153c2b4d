# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Grid crop pairs show the same places where their offsets say so, and the masks and matches say which."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from monai_afire.transforms import (
    GRID_CROP_SETTINGS,
    GridCropPair,
    GridCropPaird,
    ResizeToCoverd,
    matching_patches,
    overlap_masks,
)
from unit.transforms.images_and_lesions import coordinate_image

# cells of 4 pixels in the papers' proportions keep the tests fast
SMALL_PEAC: dict[str, Any] = {**GRID_CROP_SETTINGS["peac_448"], "cell": 4}
SMALL_ACE: dict[str, Any] = {**GRID_CROP_SETTINGS["ace_448"], "cell": 4, "out_size": 56}


def patches_of(image: torch.Tensor, patch: int) -> torch.Tensor:
    """(C, *S) -> (L, C, pixels), patches in row-major order; a loop."""
    counts = [n // patch for n in image.shape[1:]]
    slices = [[slice(i * patch, i * patch + patch) for i in range(n)] for n in counts]
    patches = [image[(slice(None), *box)].flatten(1) for box in itertools.product(*slices)]
    return torch.stack(patches)


def naive_masks(
    offset_1: Any, offset_2: Any, crops: Any, patch_cells: Any
) -> tuple[list, list, list]:
    """Masks and matches from sets of cells, patch by patch."""

    def cells(offset: Any, crop: int, size: int) -> list[set]:
        starts = itertools.product(*(range(o, o + crop, size) for o in offset))
        return [set(itertools.product(*(range(s, s + size) for s in start))) for start in starts]

    first, second = (
        cells(o, k, p) for o, k, p in zip((offset_1, offset_2), crops, patch_cells, strict=True)
    )
    all_1, all_2 = set().union(*first), set().union(*second)
    match = [next((j for j, big in enumerate(second) if patch <= big), -1) for patch in first]
    return [patch <= all_2 for patch in first], [patch <= all_1 for patch in second], match


def as_batch(offset_1: np.ndarray, offset_2: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.as_tensor(offset_1)[None], torch.as_tensor(offset_2)[None]


@pytest.mark.parametrize("size", [(100, 81), (40, 70)])
def test_peac_matches_show_identical_pixels(size: tuple[int, int]) -> None:
    image = coordinate_image(*size)
    transform = GridCropPair(**SMALL_PEAC).set_random_state(seed=3)
    for _ in range(20):
        crop_1, crop_2, offset_1, offset_2 = transform(image)
        assert crop_1.shape == crop_2.shape == (2, 56, 56)
        match = matching_patches(*as_batch(offset_1, offset_2), crops=(14, 14))[0]
        found = match >= 0
        assert 100 <= int(found.sum()) <= 196
        patches_1, patches_2 = patches_of(crop_1, 4), patches_of(crop_2, 4)
        assert torch.equal(patches_1[found], patches_2[match[found]])
        # complete, too: a patch without a match is shown nowhere in the other crop
        centers_1, centers_2 = patches_1.mean(-1), patches_2.mean(-1)
        # (cdist rounds to about 1e-6)
        assert torch.equal((torch.cdist(centers_1, centers_2) < 1e-2).any(1), found)


def test_ace_patches_compose_exactly() -> None:
    image = coordinate_image(128, 200)
    transform = GridCropPair(**SMALL_ACE).set_random_state(seed=5)
    for _ in range(20):
        crop_1, crop_2, offset_1, offset_2 = transform(image)
        assert crop_1.shape == crop_2.shape == (2, 56, 56)
        assert ((offset_1 - offset_2) % 2 == 0).all()
        offsets = as_batch(offset_1, offset_2)
        mask_1, mask_2 = overlap_masks(*offsets, crops=(14, 28), patch_cells=(1, 2))
        match = matching_patches(*offsets, crops=(14, 28), patch_cells=(1, 2))[0]
        assert torch.equal(match >= 0, mask_1[0])
        counts = torch.bincount(match[match >= 0], minlength=196)
        # each overlap patch is composed of exactly four, all others of none
        assert torch.equal(counts, 4 * mask_2[0])
        place_1, place_2 = patches_of(crop_1, 4).mean(-1), patches_of(crop_2, 4).mean(-1)
        for patch in torch.nonzero(mask_2[0]).flatten():
            block = place_1[match == patch]
            # antialiasing clamps at the crop's rim
            assert torch.allclose(block.mean(0), place_2[patch], atol=0.15)
            assert (block.amax(0) - block.amin(0)).tolist() == [4, 4]


@pytest.mark.parametrize(
    ("crops", "patch_cells"), [((4, 6), (2, 3)), ((3, 4), (1, 2)), ((3, 3), (1, 1))]
)
def test_masks_and_matches_against_sets_of_cells(crops: Any, patch_cells: Any) -> None:
    offsets = torch.as_tensor(np.random.RandomState(0).randint(-1, 6, size=(2, 60, 2)))
    masks = overlap_masks(offsets[0], offsets[1], crops, patch_cells)
    match = matching_patches(offsets[0], offsets[1], crops, patch_cells)
    for b in range(60):
        expected = naive_masks(offsets[0, b].tolist(), offsets[1, b].tolist(), crops, patch_cells)
        assert [masks[0][b].tolist(), masks[1][b].tolist(), match[b].tolist()] == list(expected)


def draws(settings: Mapping[str, Any], count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    transform = GridCropPair(**settings).set_random_state(seed=11)
    rows = []
    for _ in range(count):
        transform.randomize(2)
        rows.append((transform.offset_1, transform.offset_2, transform.pixel_offset))
    first, second, shift = (np.stack(values) for values in zip(*rows, strict=True))
    return first, second, shift


def assert_uniform(values: list, categories: int) -> None:
    counts = Counter(values)
    expected = len(values) / categories
    assert len(counts) == categories
    assert all(abs(n - expected) < 5 * np.sqrt(expected) for n in counts.values())


def test_distribution_of_peac() -> None:
    first, second, shift = draws(GRID_CROP_SETTINGS["peac_448"], 5000)
    overlap = 14 - np.abs(first - second)
    assert overlap.min() == 10
    assert overlap.prod(1).min() >= 0.5 * 196  # the paper's 50 % to 100 %
    assert_uniform([tuple(pair) for pair in np.stack([first[:, 0], second[:, 0]], 1).tolist()], 25)
    assert_uniform([tuple(pair) for pair in first.tolist()], 25)  # the axes are independent
    assert_uniform(shift[:, 1].tolist(), 32)


def test_distribution_of_ace() -> None:
    first, second, shift = draws(GRID_CROP_SETTINGS["ace_448"], 5000)
    assert not shift.any()
    overlap = np.minimum(first + 14, second + 28) - np.maximum(first, second)
    assert overlap.min() == 10
    assert (overlap % 2 == 0).all()
    valid = [(a, b) for a in range(19) for b in range(5) if (a - b) % 2 == 0]
    pairs = [tuple(pair) for pair in np.stack([first[:, 1], second[:, 1]], 1).tolist()]
    assert set(pairs) == set(valid)
    assert_uniform(pairs, len(valid))


def test_resize_keeps_the_aspect_and_cuts_the_center() -> None:
    image = coordinate_image(152, 304)
    transform = GridCropPair(grid=19, cell=4, crops=(19, 19), jitter=False)
    crop, _, offset_1, _ = transform(image)
    # 152 x 304 -> 76 x 152 -> the middle 76 columns, two pixels of the image each
    assert offset_1.tolist() == [0, 0]
    assert torch.allclose(crop[0, 1:-1, 0], torch.arange(76, dtype=torch.float64)[1:-1] * 2 + 0.5)
    assert torch.allclose(crop[1, 0], (torch.arange(76, dtype=torch.float64) + 38) * 2 + 0.5)


def test_crops_start_at_their_cells_of_the_shifted_grid() -> None:
    image = coordinate_image(76, 76)
    transform = GridCropPair(**SMALL_PEAC).set_random_state(seed=1)
    for _ in range(10):
        crop_1, crop_2, offset_1, offset_2 = transform(image)
        for crop, offset in ((crop_1, offset_1), (crop_2, offset_2)):
            assert crop[:, 0, 0].tolist() == (4 * offset + transform.pixel_offset).tolist()


@pytest.mark.parametrize(("settings", "size"), [(SMALL_PEAC, (152, 228)), (SMALL_ACE, (384, 256))])
def test_metatensor_affine_points_to_the_place_of_the_crop(
    settings: dict[str, Any], size: tuple[int, int]
) -> None:
    affine = torch.tensor(
        [[0.0, -0.5, 0, 7], [0.25, 0, 0, -3], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.float64
    )
    # reduced by exactly 2, where the antialiasing filter is symmetric and keeps coordinates exactly
    image = MetaTensor(coordinate_image(*size), affine=affine, meta={"patient": "a"})
    for crop in GridCropPair(**settings).set_random_state(seed=2)(image)[:2]:
        assert isinstance(crop, MetaTensor)
        assert crop.meta["patient"] == "a"
        for pixel in [(20, 30), (7, 41)]:
            shown = torch.cat([crop.as_tensor()[:, pixel[0], pixel[1]], torch.tensor([0.0, 1.0])])
            place = crop.affine @ torch.tensor([*pixel, 0, 1], dtype=torch.float64)
            assert torch.allclose(place, affine @ shown.double(), atol=1e-6)
    assert torch.equal(image.affine, affine)


@pytest.mark.parametrize("settings", [{"grid": 14}, {"grid": (19, 5)}, {"crops": (3, 30)}])
def test_crops_that_fit_nowhere_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="No two overlapping crops"):
        GridCropPaird("image", **settings)


@pytest.mark.parametrize("seed", range(4))
def test_resizing_before_it_changes_no_crop(seed: int) -> None:
    draw = np.random.default_rng(seed)
    grid, cell = int(draw.integers(16, 24)), int(draw.integers(2, 8))
    affine = torch.diag(torch.tensor([2.0, 3.0, 1.0, 1.0], dtype=torch.float64))
    image = MetaTensor(torch.rand(1, *draw.integers(20, 200, 2).tolist()), affine=affine)
    crop = GridCropPaird("image", grid=grid, cell=cell, crops=(14, 14))
    whole = crop.set_random_state(seed)({"image": image})
    covered = ResizeToCoverd("image", grid * cell)({"image": image})
    assert min(covered["image"].shape[1:]) == grid * cell
    parts = crop.set_random_state(seed)(covered)
    for key in ("image_1", "image_2"):
        assert torch.equal(whole[key].as_tensor(), parts[key].as_tensor())
        assert torch.allclose(whole[key].affine, parts[key].affine, atol=1e-9)
