# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Patches and token labels against loops."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage

from monai_afire.networks.blocks.patches import patch_labels, patchify, unpatchify


def test_patchify_equals_slices() -> None:
    images = torch.arange(2 * 3 * 8 * 6.0).reshape(2, 3, 8, 6)
    patches = patchify(images, (4, 2))
    assert patches.shape == (2, 6, 24)
    for token in range(6):
        row, column = divmod(token, 3)
        expected = images[:, :, 4 * row : 4 * row + 4, 2 * column : 2 * column + 2].flatten(1)
        assert torch.equal(patches[:, token], expected)

    assert torch.equal(unpatchify(patches, (2, 3), (4, 2)), images)


@pytest.mark.parametrize(("size", "patch"), [((10, 8), 4), ((8, 2), 4), ((8, 8), (4, 3))])
def test_sizes_that_do_not_fit_are_refused(size: tuple[int, int], patch: Any) -> None:
    with pytest.raises(ValueError, match="patches"):
        patchify(torch.zeros(1, 1, *size), patch)


def naive_labels(mask: np.ndarray, patch: tuple[int, ...]) -> list[bool]:
    """Exact fractions; groups of patches, diagonal neighbors connected, each keep their brightest if all are lost."""
    grid = tuple(s // p for s, p in zip(mask.shape, patch, strict=True))
    means = np.empty(grid, dtype=object)
    for cell in np.ndindex(*grid):
        pixels = mask[tuple(slice(g * p, (g + 1) * p) for g, p in zip(cell, patch, strict=True))]
        means[cell] = sum((Fraction(float(v)) for v in pixels.flat), Fraction(0)) / pixels.size
    threshold = sum(means.flat, Fraction(0)) / means.size
    abnormal = np.array([value > threshold for value in means.flat]).reshape(grid)
    support = np.array([value > 0 for value in means.flat]).reshape(grid)
    groups, count = ndimage.label(support, structure=np.ones((3,) * len(grid)))
    result = abnormal.copy()
    for group in range(1, count + 1):
        members = groups == group
        if not abnormal[members].any():
            brightest = max(means[members])
            result |= members & np.array([value == brightest for value in means.flat]).reshape(grid)
    return [bool(value) for value in result.flat]


def random_masks(seed: int, count: int, size: tuple[int, ...]) -> np.ndarray:
    """Boxes of very different brightness; multiples of 1/64, so that means are exact in float32 too."""
    rng = np.random.default_rng(seed)
    masks = np.zeros((count, 1, *size), dtype=np.float32)
    for image in masks:
        for _ in range(rng.integers(0, 6)):
            low = [rng.integers(0, s) for s in size]
            box = tuple(slice(a, a + rng.integers(1, 6)) for a in low)
            image[0][box] += rng.choice([1, 2, 8, 64]) / 64
    return masks


@pytest.mark.parametrize(
    ("size", "patch"), [((16, 16), (2, 2)), ((16, 8), (4, 2)), ((8, 8), (8, 8))]
)
def test_labels_equal_the_reference(size: tuple[int, ...], patch: tuple[int, ...]) -> None:
    rescued = 0
    for seed in range(4):
        masks = random_masks(seed, 25, size)
        labels = patch_labels(torch.tensor(masks), patch)
        expected = np.array([naive_labels(mask[0], patch) for mask in masks])
        np.testing.assert_array_equal(labels.numpy(), expected)
        means = patchify(torch.tensor(masks), patch).mean(-1)
        rescued += int((labels & (means <= means.mean(-1, keepdim=True))).sum())
    assert rescued > 0 or size == (8, 8)


def test_a_faint_lesion_beside_a_strong_one_is_kept() -> None:
    mask = torch.zeros(1, 1, 24, 24)
    mask[..., 0:12, 0:12] = 1.0
    mask[..., 20, 20] = 0.01
    labels = patch_labels(mask, 4).reshape(6, 6)
    assert labels[:3, :3].all()
    assert labels[5, 5]
    assert labels.sum() == 10


def test_a_lesion_that_passes_keeps_no_faint_rim() -> None:
    mask = torch.zeros(1, 1, 16, 16)
    mask[..., 0:4, 0:4] = 1.0
    mask[..., 4:8, 0:4] = 0.01  # touches the bright patch: the same lesion
    assert patch_labels(mask, 4).nonzero().tolist() == [[0, 0]]


def test_constant_maps() -> None:
    assert not patch_labels(torch.zeros(2, 1, 8, 8), 2).any()
    assert patch_labels(torch.full((2, 1, 8, 8), 0.5), 2).all()


def test_constant_maps_that_float32_cannot_average_exactly() -> None:
    assert patch_labels(torch.full((1, 1, 224, 224), 0.3), 16).all()


def test_autocast_does_not_change_labels() -> None:
    masks = torch.rand(20, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    masks = masks * torch.tensor(random_masks(6, 20, (16, 16)) > 0)
    expected = patch_labels(masks, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(patch_labels(masks, 4), expected)
