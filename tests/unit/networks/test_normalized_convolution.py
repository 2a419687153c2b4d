# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Convolutions of dense heads under autocast: the gradients are those of float32, of maps of any size."""

from __future__ import annotations

import pytest
import torch

from monai_afire.networks.blocks.feature_pyramid import normalized_convolution


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
