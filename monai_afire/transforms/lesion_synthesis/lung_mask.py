# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A rough mask of the lungs of a chest radiograph, without a network."""

from __future__ import annotations

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

LUNG_AREA = (0.01, 0.3)  # share of the image that one lung may take up
# tried between the darkest tenth and the median of the brighter half of the image
NUM_THRESHOLDS = 12
# share of the best score at which a lower threshold, with cleaner outlines, is preferred
NEARLY_BEST = 0.95


def segment_lungs(image: Tensor) -> Tensor:
    """
    A rough lung mask of a chest radiograph: the two dark regions enclosed by brighter tissue that look most like lungs.

    The image is smoothed and thresholded at several levels. At each, the two largest dark connected regions are taken
    that do not touch the border of the image and are neither tiny nor huge. Their score is the sum of the square roots
    of their areas, which prefers two lungs of like size to one large region. The lowest threshold with nearly the best
    score wins.

    Args:
        image: radiograph (H, W), bright = dense.

    Returns:
        Lung mask (H, W), bool, without holes. All False when no lung is found.
    """
    smooth = ndimage.gaussian_filter(image.double().cpu().numpy(), sigma=min(image.shape) / 100)
    darkest, brightest = np.quantile(smooth, (0.1, 0.75)).tolist()
    thresholds = np.linspace(darkest, brightest, NUM_THRESHOLDS)
    candidates = [_enclosed_regions(smooth <= threshold) for threshold in thresholds]
    scores = np.array([np.sqrt(areas).sum() for _, _, areas in candidates])
    labels, regions, _ = candidates[int(np.argmax(scores >= NEARLY_BEST * scores.max()))]
    return torch.from_numpy(ndimage.binary_fill_holes(np.isin(labels, regions))).to(image.device)


def lung_depth(image: Tensor) -> np.ndarray:
    """
    Distance of each pixel from the rim of the lungs, of which the image's border is a part.

    Args:
        image: radiograph (H, W), bright = dense.

    Returns:
        (H, W) in pixels, 0 outside of the lungs (:func:`segment_lungs`); where none is found, all of the image counts.
    """
    lungs = segment_lungs(image).cpu().numpy()
    if not lungs.any():
        lungs[:] = True
    return ndimage.distance_transform_edt(np.pad(lungs, 1))[1:-1, 1:-1]


def _enclosed_regions(dark: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels of all connected regions, and numbers and areas of the two largest that may be lungs."""
    labels, num_regions = ndimage.label(dark)
    areas = np.bincount(labels.ravel(), minlength=num_regions + 1)
    smallest, largest = (share * dark.size for share in LUNG_AREA)
    areas[(areas < smallest) | (areas > largest)] = 0
    areas[np.concatenate([[0], labels[0], labels[-1], labels[:, 0], labels[:, -1]])] = 0
    regions = np.argsort(areas)[-2:]
    regions = regions[areas[regions] > 0]
    return labels, regions, areas[regions]
