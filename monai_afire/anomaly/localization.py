# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Localisation metrics of token maps, one row per image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch.nn import functional as F

from monai_afire.metrics.binary_classification import roc_auc
from monai_afire.metrics.localization import aupro, pointing_game

__all__ = ["localization_row", "map_aupro", "upsampled"]

POSITION_ONLY = "position_only"


def upsampled(token_map: torch.Tensor, grid_size: Sequence[int], size: Sequence[int]) -> np.ndarray:
    """
    Token maps ``(..., L)`` of a 2-D or 3-D grid as pictures or volumes ``(..., *S)``, linearly interpolated.

    Example:
        >>> upsampled(torch.arange(4.0), (2, 2), (4, 4)).shape
        (4, 4)
    """
    maps = token_map.float().reshape(-1, 1, *grid_size)
    mode = {2: "bilinear", 3: "trilinear"}[len(grid_size)]
    pictures = F.interpolate(maps, size=tuple(size), mode=mode)
    return pictures.reshape(*token_map.shape[:-1], *size).numpy()


def localization_row(
    token_maps: Mapping[str, torch.Tensor], truth: np.ndarray | None, grid_size: Sequence[int]
) -> dict[str, float]:
    """
    Pixel AUROC and pointing game of one image, for each map.

    Args:
        token_maps: ``(L,)`` by name.
        truth: ``(*S)``, non-zero where abnormal; None, empty or full gives no metrics.
        grid_size: tokens along each axis.

    Returns:
        "pixel_auroc_<name>" and "pointing_<name>".

    Example:
        >>> truth = np.zeros((4, 4), dtype=bool)
        >>> truth[:2, :2] = True
        >>> localization_row({"fused": torch.tensor([1.0, 0.0, 0.0, 0.0])}, truth, (2, 2))
        {'pixel_auroc_fused': 1.0, 'pointing_fused': 1.0}
    """
    if truth is None or truth.all() or not truth.any():
        return {}
    lesion = truth != 0
    row = {}
    for name, token_map in token_maps.items():
        heat = upsampled(token_map, grid_size, truth.shape)
        row[f"pixel_auroc_{name}"] = roc_auc(lesion.ravel(), heat.ravel())
        row[f"pointing_{name}"] = pointing_game(heat, lesion)
    return row


def map_aupro(token_maps: torch.Tensor, truths: Sequence[np.ndarray], grid_size: Sequence[int]) -> float:
    """
    AUPRO of one score over many images.

    Args:
        token_maps: ``(M, L)``.
        truths: M masks of one size, without a lesion for normal images.
        grid_size: tokens along each axis.

    Returns:
        In [0, 1]; NaN without a lesion.

    Example:
        >>> truth = np.zeros((4, 4), dtype=bool)
        >>> truth[:2, :2] = True
        >>> map_aupro(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), [truth], (2, 2))
        1.0
    """
    if not len(truths):
        return float("nan")
    return aupro(upsampled(token_maps, grid_size, truths[0].shape), truths)
