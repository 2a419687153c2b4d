# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The batched Otsu threshold against scikit-image, and random points in the foreground."""

from __future__ import annotations

import pytest
import torch
from skimage.filters import threshold_otsu

from monai_afire.transforms.lesion_synthesis.otsu import otsu_threshold, random_foreground_points


@pytest.mark.parametrize("kind", ["uniform", "two classes", "far apart", "narrow"])
def test_otsu_equals_scikit_image(kind: str) -> None:
    generator = torch.Generator().manual_seed(4)
    images = torch.rand((5, 40, 30), generator=generator)
    if kind == "two classes":
        images = 0.2 + 0.05 * torch.randn(images.shape, generator=generator) + 0.5 * (images > 0.7)
    elif kind == "far apart":
        images = 0.1 * images + 0.8 * (images > 0.4)
    elif kind == "narrow":
        images = 0.5 + 1e-3 * images
    thresholds = otsu_threshold(images)
    for image, threshold in zip(images, thresholds, strict=True):
        bin_width = float(image.max() - image.min()) / 256
        assert float(threshold) == pytest.approx(
            threshold_otsu(image.numpy()), abs=1.01 * bin_width
        )


def test_otsu_of_constant_image_is_its_value() -> None:
    assert otsu_threshold(torch.full((2, 5, 5), 0.3)).tolist() == pytest.approx([0.3, 0.3])


def test_foreground_points_are_uniform_over_the_foreground() -> None:
    images = torch.rand((3, 12, 9), generator=torch.Generator().manual_seed(0)).pow(3)
    uniforms = torch.linspace(0, 1, 20001).expand(3, -1)
    points = random_foreground_points(images, uniforms)
    for image, own in zip(images, points, strict=True):
        foreground = (image > threshold_otsu(image.numpy())).nonzero()
        index, counts = (own - 0.5).long().unique(dim=0, return_counts=True)
        assert torch.equal(own, own.floor() + 0.5)
        assert torch.equal(index, foreground)
        assert counts.max() - counts.min() <= 2


def test_foreground_points_of_constant_image_are_anywhere() -> None:
    points = random_foreground_points(torch.zeros(1, 3, 4), torch.linspace(0, 1, 1000)[None])
    assert len(points[0].unique(dim=0)) == 12
