# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Other fields of view against moving by hand, independent of batches."""

from __future__ import annotations

import math

import pytest
import torch

from monai_afire.detection.field_of_view import MAX_VIEWS, fixed_view, moved


def smooth(*shape: int) -> torch.Tensor:
    """An image that resampling hardly blurs: a blob off the center."""
    axes = torch.meshgrid(*(torch.linspace(-1, 1, side) for side in shape), indexing="ij")
    distance = sum((axis - 0.2 * number) ** 2 for number, axis in enumerate(axes))
    return torch.exp(-4 * distance)[None, None]


def test_a_whole_shift_equals_indexing() -> None:
    image = torch.rand(2, 1, 16, 16)
    shift = torch.tensor([[2 / 16, -3 / 16]]).expand(2, -1)
    result = moved(image, torch.ones(2, 2), torch.zeros(2), shift)
    torch.testing.assert_close(result[:, :, 2:12, 5:14], image[:, :, 4:14, 2:11], atol=1e-5, rtol=0)


def test_a_quarter_turn_of_a_square_equals_rot90() -> None:
    image = torch.rand(1, 1, 16, 16)
    turned = moved(image, torch.ones(1, 2), torch.tensor([math.pi / 2]), torch.zeros(1, 2))
    torch.testing.assert_close(turned, image.rot90(1, (2, 3)), atol=1e-5, rtol=0)


def test_a_turn_keeps_shapes_in_oblong_images() -> None:
    image = smooth(32, 64)
    turned = moved(image, torch.ones(1, 2), torch.tensor([math.radians(20)]), torch.zeros(1, 2))
    assert float(turned.sum() / image.sum()) == pytest.approx(1, abs=0.1)


def test_half_the_field_of_view_shows_the_middle_twice_as_large() -> None:
    image = smooth(32, 32)
    closer = moved(image, torch.full((1, 2), 0.5), torch.zeros(1), torch.zeros(1, 2))
    middle = torch.nn.functional.interpolate(
        image[:, :, 8:24, 8:24], size=(32, 32), mode="bilinear"
    )
    assert float((closer - middle)[:, :, 2:-2, 2:-2].abs().max()) < 0.02


def test_views_all_differ_and_the_first_is_the_image() -> None:
    image = torch.rand(1, 1, 16, 16)
    views = [fixed_view(image, number) for number in range(MAX_VIEWS)]
    assert views[0] is image
    for first in range(MAX_VIEWS):
        assert not any(torch.allclose(views[first], views[second]) for second in range(first))
