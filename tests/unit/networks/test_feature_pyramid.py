# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The blocks of dense heads on small cases that can be computed by hand, and on sizes that do not fit."""

from __future__ import annotations

import pytest
import torch

from monai_afire.networks.blocks.feature_pyramid import (
    MultiScaleNeck,
    normalized_convolution,
    num_groups,
)


@pytest.mark.parametrize(
    ("channels", "groups"),
    [(31, 1), (32, 2), (48, 3), (33, 1), (70, 2)],
)
def test_group_norm_has_sixteen_channels_or_more(channels: int, groups: int) -> None:
    assert num_groups(channels) == groups


@pytest.mark.parametrize(
    ("patch", "finest"),
    [((16, 16), (12, 8)), ((2, 16), (6, 8))],
)
def test_neck_stops_at_one_element_per_pixel(
    patch: tuple[int, ...], finest: tuple[int, ...]
) -> None:
    neck = MultiScaleNeck(patch, in_channels=(8, 8, 8, 8))
    maps = [torch.rand(2, 8, 3, 2) for _ in range(4)]
    levels = neck(maps)
    assert [level.shape[1] for level in levels] == [2, 4, 8, 8]
    assert tuple(levels[0].shape[2:]) == finest
    assert torch.equal(levels[2], maps[2])


def fill_free_memory(elements: int) -> None:
    """Make what an allocator hands out next differ from zero, so that what is left unwritten shows."""
    for number in (elements, elements, elements, 1 << 20):
        torch.empty(number).fill_(1e30)


def weight_gradient(
    block: torch.nn.Module, images: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    result = block(images).float()
    return torch.autograd.grad((result - target).square().sum(), block.conv.weight)[0]


@pytest.mark.parametrize("size", [(1, 2), (5, 3)])
def test_gradients_under_autocast_are_those_of_float32(size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    block = normalized_convolution(32, 16, kernel_size=3)
    images, target = torch.randn(4, 32, *size), torch.randn(4, 16, *size)
    expected = weight_gradient(block, images, target)
    for _ in range(3):
        fill_free_memory(block.conv.weight.numel())
        with torch.autocast("cpu", torch.bfloat16):
            found = weight_gradient(block, images, target)
        assert (found - expected).norm() < 0.5 * expected.norm()
