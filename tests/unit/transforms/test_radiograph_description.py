# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The description of a radiograph before it is resized."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from monai_afire.transforms import DescribeRadiographd

AFFINE = torch.tensor(
    [[0.0, -0.3, 0, 5], [-0.2, 0, 0, 6], [0, 0, 1, 7], [0, 0, 0, 1]], dtype=torch.float64
)


def radiograph(rows: int = 48, columns: int = 64, seed: int = 0) -> torch.Tensor:
    return torch.rand(1, rows, columns, generator=torch.Generator().manual_seed(seed))


def described(image: Any, **arguments: Any) -> dict[Any, Any]:
    return DescribeRadiographd("image", **arguments)({"image": image, "label": 1})


def naive_sharpness(plane: np.ndarray) -> float:
    rows, columns = plane.shape
    down = [abs(plane[r + 1, c] - plane[r, c]) for r in range(rows - 1) for c in range(columns)]
    right = [abs(plane[r, c + 1] - plane[r, c]) for r in range(rows) for c in range(columns - 1)]
    return float((np.mean(down) + np.mean(right)) / 2)


def test_description() -> None:
    image = radiograph()
    for given, affine in (
        (image.numpy(), torch.eye(4)),
        (MetaTensor(image, affine=AFFINE), AFFINE),
    ):
        item = described(given)
        assert item["spatial_shape"].tolist() == [48, 64]
        assert torch.equal(item["affine"], affine.double())
        assert item["brightness"] == pytest.approx(float(image.mean()), rel=1e-6)
        assert item["sharpness"] == pytest.approx(naive_sharpness(image[0].numpy()), rel=1e-5)


def test_picture_is_the_mean_of_blocks() -> None:
    image = radiograph(48, 64)
    picture = described(MetaTensor(image), picture_size=16)["picture"]
    blocks = image.numpy().reshape(16, 3, 16, 4).mean(axis=(1, 3))
    assert np.abs(picture[0].numpy() - 255.0 * blocks).max() <= 0.5 + 1e-4


def test_what_is_judged_does_not_depend_on_the_size_of_the_pictures_to_see() -> None:
    image = radiograph(48, 64)
    sizes = {side: described(image, picture_size=side) for side in (7, 512, 700)}
    assert [item["picture"].shape[-1] for item in sizes.values()] == [*sizes]
    for item in sizes.values():
        assert torch.equal(item["judged_picture"], sizes[512]["picture"])
    assert "judged_picture" not in described(image)


def test_picture_of_small_and_of_extreme_images() -> None:
    beyond = torch.tensor([[[-0.01, 1.01]]])  # rounding of a resampling; a byte would turn round
    assert described(torch.full((1, 1, 5), 0.25))["sharpness"] == 0  # no neighbors below
    assert described(beyond, picture_size=2)["picture"].tolist() == [[[0, 255], [0, 255]]]
