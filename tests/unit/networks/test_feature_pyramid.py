# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The blocks of dense heads on small cases that can be computed by hand, and on sizes that do not fit."""

from __future__ import annotations

import pytest
import torch

from monai_afire.networks.blocks.feature_pyramid import (
    FeaturePyramid,
    MultiScaleNeck,
    PyramidPooling,
    normalized_convolution,
    num_groups,
    resize_features,
)


@pytest.mark.parametrize(
    ("channels", "groups"),
    [(1, 1), (2, 1), (31, 1), (32, 2), (48, 3), (64, 4), (512, 32), (33, 1), (70, 2), (37, 1)],
)
def test_group_norm_has_sixteen_channels_or_more(channels: int, groups: int) -> None:
    assert num_groups(channels) == groups
    assert channels % groups == 0
    assert groups == 1 or channels // groups >= 16


def test_a_single_pixel_is_normalized_over_channels() -> None:
    layer = normalized_convolution(3, 32, kernel_size=1).train()
    assert layer.get_submodule("conv").bias is None
    pixels = torch.rand(1, 3, 1, 1)
    found = layer(pixels)[0, :, 0, 0]
    mixed = layer.get_parameter("conv.weight")[..., 0, 0] @ pixels[0, :, 0, 0]
    halves = [
        (half - half.mean()) / (half.var(correction=0) + 1e-5).sqrt() for half in mixed.chunk(2)
    ]
    torch.testing.assert_close(found, torch.cat(halves).relu())
    assert 0 < (found > 0).sum() < 32  # an instance norm would leave nothing


def test_resizing_by_hand() -> None:
    image = torch.tensor([[[[0.0, 4.0], [8.0, 12.0]]]])
    expected = torch.tensor([[0.0, 1, 3, 4], [2, 3, 5, 6], [6, 7, 9, 10], [8, 9, 11, 12]])
    assert torch.equal(resize_features(image, (4, 4))[0, 0], expected)
    assert resize_features(image, [2, 2]) is image


def test_pooling_sees_the_whole_map() -> None:
    """Of a map with one bright corner, the far corner learns through the pooled grids only."""
    pooling = PyramidPooling(in_channels=2, channels=4, pool_sizes=(1, 2)).double()
    features = torch.rand(1, 2, 8, 8, dtype=torch.float64, requires_grad=True)
    context = [branch(features) for branch in pooling.branches]
    assert [tuple(part.shape) for part in context] == [(1, 4, 1, 1), (1, 4, 2, 2)]
    means = pooling.get_submodule("branches.1.0")(features)
    torch.testing.assert_close(means[0, 1, 1, 0], features[0, 1, 4:, :4].mean())
    before_norm = pooling.join.get_submodule("conv")(
        torch.cat([features, *(resize_features(part, (8, 8)) for part in context)], dim=1)
    )
    (gradient,) = torch.autograd.grad(before_norm[0, 0, 0, 0], features)
    assert gradient[0, :, 7, 7].abs().max() > 0
    assert pooling(features).shape == (1, 4, 8, 8)


@pytest.mark.parametrize("size", [(1, 1), (5, 3)])
def test_grids_larger_than_the_map_and_maps_of_one_pixel(size: tuple[int, ...]) -> None:
    pooling = PyramidPooling(in_channels=6, channels=5).train()
    result = pooling(torch.rand(1, 6, *size))
    assert result.shape == (1, 5, *size)
    assert result.isfinite().all()


def test_neck_by_hand() -> None:
    """One channel: every doubling copies the 2 x 2 kernel, scaled; pooling takes the maximum of what is there."""
    neck = MultiScaleNeck(patch_size=(8, 8), in_channels=(1, 1, 1, 1)).double()
    assert neck.out_channels == (1, 1, 1, 1)
    kernel = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    neck.get_parameter("scales.1.0.weight").data[:] = kernel
    neck.get_parameter("scales.1.0.bias").data.fill_(0.5)
    features = torch.tensor(
        [[1.0, 5.0, 2.0], [0.0, -1.0, -3.0], [7.0, 1.0, -9.0]], dtype=torch.float64
    )[None, None]
    levels = neck([features] * 4)
    assert [level.shape[-1] for level in levels] == [12, 6, 3, 2]
    torch.testing.assert_close(levels[1][0, 0], torch.kron(features[0, 0], kernel) + 0.5)
    assert torch.equal(levels[2], features)
    # the odd row and column have pools of their own
    assert levels[3][0, 0].tolist() == [
        [5.0, 2.0],
        [7.0, -9.0],
    ]


@pytest.mark.parametrize(
    ("patch", "finest"),
    [((16, 16), (12, 8)), ((2, 16), (6, 8)), ((1, 2), (3, 4))],
)
def test_neck_stops_at_one_element_per_pixel(
    patch: tuple[int, ...], finest: tuple[int, ...]
) -> None:
    neck = MultiScaleNeck(patch, in_channels=(8, 8, 8, 8))
    assert neck.out_channels == (2, 4, 8, 8)
    maps = [torch.rand(2, 8, 3, 2) for _ in range(4)]
    levels = neck(maps)
    assert [level.shape[1] for level in levels] == [2, 4, 8, 8]
    assert tuple(levels[0].shape[2:]) == finest
    assert torch.equal(levels[2], maps[2])


def test_levels_are_enlarged_whatever_their_sizes() -> None:
    """Odd sizes, and a pyramid of the coarsest map alone."""
    sizes = [(13, 7), (7, 4), (4, 2), (1, 1)]
    pyramid = FeaturePyramid((3, 4, 5), 6)
    maps = [torch.rand(2, width, *size) for width, size in zip((3, 4, 5, 6), sizes, strict=True)]
    assert pyramid(maps).shape == (2, 6, 13, 7)
    assert FeaturePyramid((), 6)([torch.rand(1, 6, 2, 3)]).shape == (1, 6, 2, 3)


def fill_free_memory(elements: int) -> None:
    """Make what an allocator hands out next differ from zero, so that what is left unwritten shows."""
    for number in (elements, elements, elements, 1 << 20):
        torch.empty(number).fill_(1e30)


def weight_gradient(
    block: torch.nn.Module, images: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    result = block(images).float()
    return torch.autograd.grad((result - target).square().sum(), block.conv.weight)[0]


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("size", [(1, 2), (2, 2), (5, 3)])
def test_gradients_under_autocast_are_those_of_float32(size: tuple[int, ...], kernel: int) -> None:
    torch.manual_seed(0)
    block = normalized_convolution(32, 16, kernel_size=kernel)
    images, target = torch.randn(4, 32, *size), torch.randn(4, 16, *size)
    expected = weight_gradient(block, images, target)
    for _ in range(3):
        fill_free_memory(block.conv.weight.numel())
        with torch.autocast("cpu", torch.bfloat16):
            found = weight_gradient(block, images, target)
        assert (found - expected).norm() < 0.5 * expected.norm()


def test_double_precision_stays_double() -> None:
    block = normalized_convolution(4, 4, kernel_size=3).double()
    assert block(torch.rand(1, 4, 2, 2, dtype=torch.float64)).dtype == torch.float64
