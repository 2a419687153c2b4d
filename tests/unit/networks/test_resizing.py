# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Resampling and channel conversion of weights against direct computation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from monai_afire.networks.weights.resizing import convert_channels, resize_patch_kernel


def test_enlarged_patches_give_the_same_tokens() -> None:
    new = (28, 20)
    torch.manual_seed(3)
    kernel = torch.randn(6, 2, 14, 14, dtype=torch.float64)
    patch = torch.rand(5, 2, 14, 14, dtype=torch.float64)
    enlarged = F.interpolate(patch, new, mode="bicubic", antialias=True)
    tokens = torch.einsum("nchw,dchw->nd", patch, kernel)
    result = torch.einsum("nchw,dchw->nd", enlarged, resize_patch_kernel(kernel, new))
    torch.testing.assert_close(result, tokens, rtol=0, atol=1e-8)


def test_smaller_patches_give_the_best_kernel_in_least_squares() -> None:
    """The pseudo-inverse of the whole two-dimensional interpolation, computed without the separation into axes."""
    torch.manual_seed(4)
    kernel = torch.randn(3, 1, 8, 6, dtype=torch.float64)
    units = torch.eye(48, dtype=torch.float64).reshape(48, 1, 8, 6)
    interpolation = F.interpolate(units, (4, 5), mode="bicubic", antialias=True).reshape(48, 20).T
    expected = (torch.linalg.pinv(interpolation.T) @ kernel.reshape(3, 48).T).T.reshape(3, 1, 4, 5)
    torch.testing.assert_close(resize_patch_kernel(kernel, (4, 5)), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("old", "new"), [(3, 1), (3, 3), (1, 3)])
def test_converted_patch_embedding_sees_the_same_image(old: int, new: int) -> None:
    """The source sees the image repeated (or averaged) over its channels in its own normalization."""
    torch.manual_seed(5)
    patch, shape = (4, 3), (1, -1, 1, 1)
    kernel, bias = (
        torch.randn(7, old, *patch, dtype=torch.float64),
        torch.randn(7, dtype=torch.float64),
    )
    means, stds = torch.rand(old, dtype=torch.float64), torch.rand(old, dtype=torch.float64) + 0.1
    new_means, new_stds = (
        torch.rand(new, dtype=torch.float64),
        torch.rand(new, dtype=torch.float64) + 0.1,
    )
    image = torch.rand(2, new, *patch, dtype=torch.float64)
    theirs = image if old == new else image.mean(1, keepdim=True).expand(2, old, *patch)
    theirs = (theirs - means.reshape(shape)) / stds.reshape(shape)
    ours = (image - new_means.reshape(shape)) / new_stds.reshape(shape)
    expected = theirs.flatten(1) @ kernel.flatten(1).T + bias
    weight, shift = convert_channels(kernel, bias, (means, stds), (new_means, new_stds))
    torch.testing.assert_close(
        ours.flatten(1) @ weight.flatten(1).T + shift, expected, rtol=0, atol=1e-9
    )
