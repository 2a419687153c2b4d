# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Otsu's threshold of a batch of images and the choice of random points in their bright foreground."""

from __future__ import annotations

import torch
from torch import Tensor

from monai_afire.utils.device import widest_float

_NUM_BINS = 256


def otsu_threshold(images: Tensor) -> Tensor:
    """
    Otsu's threshold (B,) of each image (B, H, W), for a whole batch at once and without host synchronization.

    The threshold maximizes the between-class variance of the image's histogram, whose 256 bins span its own
    range [min, max]. It equals ``skimage.filters.threshold_otsu`` to one bin width. A constant image has no two
    classes; its threshold is defined as its only value. The foreground is ``images > threshold``.
    """
    flat = images.flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    bin_width = (high - low) / _NUM_BINS
    per_width = torch.where(high > low, 1 / bin_width, torch.zeros_like(bin_width))
    bins = ((flat - low) * per_width).long().clamp_(max=_NUM_BINS - 1)
    counts = torch.zeros((flat.shape[0], _NUM_BINS), dtype=torch.long, device=flat.device)
    counts.scatter_add_(1, bins, torch.ones_like(counts[:, :1]).expand_as(bins))
    # Integer sums are exact on every device, so that ties (empty bins between two modes) resolve alike everywhere.
    count_below = counts.cumsum(1)
    level_below = (counts * torch.arange(_NUM_BINS, device=flat.device)).cumsum(1)
    exact = widest_float(flat.device)
    weight = count_below.to(exact) / flat.shape[1]
    level = level_below.to(exact) / flat.shape[1]
    spread = weight * (1 - weight)
    variance = torch.where(
        spread > 0, (level[:, -1:] * weight - level).square() / spread, torch.zeros_like(spread)
    )
    best = variance.argmax(1, keepdim=True)
    return (low + (best + 0.5).to(flat.dtype) * bin_width).squeeze(1)


def random_foreground_points(images: Tensor, uniforms: Tensor) -> Tensor:
    """Random pixels of the bright (Otsu) foreground of images (B, H, W), all of them equally likely: (B, M, 2)."""
    flat = images.flatten(1)
    foreground = flat > otsu_threshold(images).unsqueeze(1)
    rank = foreground.cumsum(1, dtype=torch.int32)
    count = rank[:, -1:]
    wanted = (uniforms * count).int().minimum(count - 1) + 1
    anywhere = (uniforms * flat.shape[1]).long().clamp_(max=flat.shape[1] - 1)
    place = torch.where(count > 0, torch.searchsorted(rank, wanted), anywhere)
    width = images.shape[2]
    rows, columns = place.div(width, rounding_mode="floor"), place % width
    return torch.stack([rows, columns], dim=-1).to(uniforms.dtype) + 0.5
