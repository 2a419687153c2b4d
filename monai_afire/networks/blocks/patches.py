# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Patchify and unpatchify images, and token labels of lesion maps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from monai.utils import ensure_tuple_rep

# of He et al.: a patch of one intensity has a variance of 0
_LEAST_VARIANCE = 1e-6


def grid_size(image_size: Sequence[int], patch_size: Sequence[int] | int) -> tuple[int, ...]:
    """
    Number of patches along each axis of an image.

    Raises:
        ValueError: when an axis of the image is not a multiple of the patch.

    Example:
        >>> grid_size((224, 224), 16)
        (14, 14)
    """
    patch = ensure_tuple_rep(patch_size, len(image_size))
    if any(s % p or s < p for s, p in zip(image_size, patch, strict=True)):
        remedy = "resize it to a multiple of the patch on every axis, or choose another patch size"
        raise ValueError(
            f"an image of {tuple(image_size)} pixels cannot be cut into patches of {patch}: {remedy}"
        )
    return tuple(s // p for s, p in zip(image_size, patch, strict=True))


def patchify(images: torch.Tensor, patch_size: Sequence[int] | int) -> torch.Tensor:
    """
    Cut images into non-overlapping patches.

    Args:
        images: ``(B, C, H, W)``.
        patch_size: edge length(s) of a patch in pixels.

    Returns:
        ``(B, L, P)`` with L patches in row-major order, P = C x pixels per patch (channels slowest).

    Example:
        >>> patchify(torch.zeros(2, 1, 32, 48), 16).shape
        torch.Size([2, 6, 256])
    """
    height, width = ensure_tuple_rep(patch_size, 2)
    rows, columns = grid_size(images.shape[2:], (height, width))
    cells = images.unflatten(3, (columns, width)).unflatten(2, (rows, height))
    return cells.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def unpatchify(
    tokens: torch.Tensor, grid: Sequence[int], patch_size: Sequence[int] | int
) -> torch.Tensor:
    """
    Put patches back into images; the inverse of :func:`patchify`.

    Args:
        tokens: ``(B, L, P)``.
        grid: rows and columns of patches.
        patch_size: edge length(s) of a patch in pixels.

    Returns:
        ``(B, C, H, W)``.

    Example:
        >>> images = torch.rand(2, 3, 32, 48)
        >>> bool((unpatchify(patchify(images, 16), (2, 3), 16) == images).all())
        True
    """
    patch = ensure_tuple_rep(patch_size, 2)
    cells = tokens.unflatten(2, (-1, *patch)).unflatten(1, tuple(grid))
    return cells.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)


def patch_statistics(patches: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    r"""
    Mean and standard deviation of patches ``(..., P)``, ``(..., 1)`` each: the target of a masked autoencoder.

    .. math:: m_j = \frac{1}{P} \sum_p x_{jp}, \qquad
        s_j = \sqrt{\frac{1}{P - 1} \sum_p (x_{jp} - m_j)^2 + 10^{-6}}
    """
    variance, mean = torch.var_mean(patches, dim=-1, keepdim=True)
    return mean, (variance + _LEAST_VARIANCE).sqrt()


def patch_labels(masks: torch.Tensor, patch_size: Sequence[int] | int) -> torch.Tensor:
    r"""
    Tell normal from abnormal tokens by the lesion map (AFiRe, text above Eq. 6).

    A token is abnormal where its patch of the map M is brighter than the map's mean:

    .. math:: \text{abnormal}_{ij} = \text{mean}(M_i \text{ over patch } j) > \text{mean}(M_i)

    A lesion, that is a connected group of patches with a non-zero map, of which no patch passes this test (a faint
    lesion beside a strong one) still marks its brightest patch: no lesion is lost.

    Args:
        masks: lesion maps ``(B, 1, H, W)``, zero where the image is unchanged, of any non-negative range.
        patch_size: edge length(s) of a patch in pixels.

    Returns:
        ``(B, L)`` bool, True = abnormal. A map of zeros has no abnormal token.

    Example:
        >>> mask = torch.zeros(1, 1, 32, 32)
        >>> mask[..., 18:30, 2:10] = 0.4
        >>> patch_labels(mask, 16)
        tensor([[False, False,  True, False]])
    """
    grid = grid_size(masks.shape[2:], patch_size)
    brightness = patchify(masks, patch_size).float().mean(-1)
    mean = brightness.mean(-1, keepdim=True)
    peak = _lesion_peak(brightness.reshape(-1, 1, *grid)).reshape_as(brightness)
    lost = (brightness > 0) & (peak <= mean) & (brightness == peak)
    return (brightness > mean) | lost


def _lesion_peak(brightness: torch.Tensor) -> torch.Tensor:
    """The brightest value within each patch's connected non-zero group, by growing the maxima over the group."""
    support = (brightness > 0).to(brightness.dtype)
    peak = brightness
    # a lesion is at most this many steps across unless it winds around; a fixed number needs no host synchronisation
    for _ in range(sum(brightness.shape[2:])):
        peak = F.max_pool2d(peak, 3, stride=1, padding=1) * support
    return peak
