# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Figures of restorations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from monai_afire.analysis.restoration.measures import Restorations
from monai_afire.networks.blocks.patches import unpatchify
from monai_afire.visualize.figures import middle_plane, picture_grid
from monai_afire.visualize.style import MARK_COLOR

__all__ = ["restoration_figure"]

_COLUMNS = ("normal", "with lesions", "mask tokens", "with mask tokens", "without")
_NORMAL_COLUMNS = ("normal", "mask tokens", "with mask tokens", "without")


def restoration_figure(
    found: Restorations, patch_size: Sequence[int], rows: Sequence[int], title: str = "", lesions: bool = True
) -> Figure:
    """
    Images, where tokens are hidden, and their restorations with mask tokens and without (AFiRe, Fig. 9 and 10).

    Args:
        found: of :func:`monai_afire.analysis.restorations`.
        patch_size: pixels per token along each axis.
        rows: indices of the images to show; of volumes the middle slice.
        title: of the whole.
        lesions: True restores the images with lesions (Fig. 9), False the normal ones (Fig. 10).

    Returns:
        The figure.

    Raises:
        ValueError: without a row.

    Example:
        >>> import torch
        >>> picture, hidden = torch.zeros(1, 1, 8, 8), torch.tensor([[True, False, False, False]])
        >>> found = Restorations(picture, picture, hidden, *[picture] * 4)
        >>> len(restoration_figure(found, (4, 4), [0]).axes)
        5
    """
    names = ("with_mask", "without_mask") if lesions else ("normal_with_mask", "normal_without_mask")
    grid = [length // p for length, p in zip(found.normal.shape[2:], patch_size, strict=True)]
    patches = found.hidden.float().unsqueeze(-1).expand(-1, -1, int(np.prod(patch_size)))
    hidden = unpatchify(patches, grid, patch_size)
    pictures = []
    for row in rows:
        given = middle_plane(found.lesion[row] if lesions else found.normal[row])
        masked = np.where(middle_plane(hidden[row])[..., None] > 0, to_rgb(MARK_COLOR), given[..., None])
        shown = [middle_plane(found.normal[row]), given] if lesions else [given]
        pictures.append([*shown, masked, *(middle_plane(getattr(found, name)[row]) for name in names)])
    return picture_grid(pictures, _COLUMNS if lesions else _NORMAL_COLUMNS, title)
