# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of anomaly maps against lesion masks: pixels (AUROC), regions (AUPRO), pointing game.

A mask is non-zero where abnormal, a larger value of the map is more abnormal, and a metric that the data does not
define (no lesion, or nothing but lesion) is NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import trapezoid
from skimage.measure import label as connected_components
from torch.nn import functional as F

from monai_afire.metrics.binary_classification import NAN, descending_order, roc_auc


def pointing_game(anomaly_map: ArrayLike, mask: ArrayLike) -> float:
    """
    Pointing game: 1 where the map's largest value lies in a lesion, else 0; of equal values the share that does.

    Map and mask are ``(*S)`` of one image, the result is to be averaged over images.
    """
    values, inside = _checked_map(anomaly_map, mask)
    return float(inside[values == values.max()].mean()) if inside.any() else NAN


def aupro(maps: Iterable[ArrayLike], masks: Iterable[ArrayLike], max_fpr: float = 0.3) -> float:
    """
    Area under the per-region overlap: small lesions count as much as large ones.

    For every threshold, the overlap is the mean over all lesions of all images (connected regions of the masks,
    diagonal neighbors included) of the share of the lesion that is found; the false positive rate is the share of
    all normal pixels that is not. The area under the curve of overlap over rate, from (0, 0) by straight lines up to
    max_fpr, is divided by max_fpr.

    Args:
        maps: one ``(*S)`` anomaly map per image; comparable between images.
        masks: one ``(*S)`` per image; images without a lesion take part by their pixels.
        max_fpr: in (0, 1].

    Returns:
        In [0, 1]; NaN without a lesion or without a normal pixel.

    Raises:
        ValueError: for a mask of another shape than its map, NaN, or a rate out of range.
    """
    if not 0 < max_fpr <= 1:
        raise ValueError(f"max_fpr must be in (0, 1], got {max_fpr}")
    # of all pixels; a weight is what finding the pixel adds to the sum of overlaps
    values, weights, normal, num_regions = [], [], [], 0
    for anomaly_map, truth in zip(maps, masks, strict=True):
        image, mask = _checked_map(anomaly_map, truth)
        regions = connected_components(mask, connectivity=mask.ndim)
        sizes = np.bincount(regions.ravel())
        num_regions += sizes.size - 1
        values.append(image.ravel())
        weights.append(np.where(mask, 1 / np.maximum(sizes, 1)[regions], 0.0).ravel())
        normal.append(~mask.ravel())
    is_normal = np.concatenate(normal)
    if num_regions == 0 or not is_normal.any():
        return NAN
    order, last = descending_order(np.concatenate(values))
    overlap = np.append(0.0, np.cumsum(np.concatenate(weights)[order])[last] / num_regions)
    rate = np.append(0.0, np.cumsum(is_normal[order])[last] / is_normal.sum())
    inside = rate <= max_fpr
    rate_up_to = np.append(rate[inside], max_fpr)
    overlap_up_to = np.append(overlap[inside], np.interp(max_fpr, rate, overlap))
    return float(trapezoid(overlap_up_to, rate_up_to) / max_fpr)


def _checked_map(anomaly_map: ArrayLike, mask: ArrayLike) -> tuple[NDArray, NDArray[np.bool_]]:
    """A map as float64 and its mask as bool, of the same shape and without NaN."""
    image, target = np.asarray(anomaly_map, dtype=np.float64), np.asarray(mask)
    if image.shape != target.shape:
        raise ValueError(f"a map has shape {image.shape}, its mask {target.shape}: resize it")
    if np.isnan(image).any() or np.isnan(target.astype(float)).any():
        raise ValueError("a map or mask has NaN pixels: leave no image out, find why")
    return image, target != 0


def upsampled(token_map: torch.Tensor, grid_size: Sequence[int], size: Sequence[int]) -> np.ndarray:
    """Token maps ``(..., L)`` as pictures ``(..., H, W)``, linearly interpolated."""
    maps = token_map.float().reshape(-1, 1, *grid_size)
    pictures = F.interpolate(maps, size=tuple(size), mode="bilinear")
    return pictures.reshape(*token_map.shape[:-1], *size).numpy()


def localization_row(
    token_maps: Mapping[str, torch.Tensor], truth: np.ndarray | None, grid_size: Sequence[int]
) -> dict[str, float]:
    """Pixel AUROC and pointing game of one image, for each map."""
    if truth is None or truth.all() or not truth.any():
        return {}
    lesion = truth != 0
    row = {}
    for name, token_map in token_maps.items():
        heat = upsampled(token_map, grid_size, truth.shape)
        row[f"pixel_auroc_{name}"] = roc_auc(lesion.ravel(), heat.ravel())
        row[f"pointing_{name}"] = pointing_game(heat, lesion)
    return row
