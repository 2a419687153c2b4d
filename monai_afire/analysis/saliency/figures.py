# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Figures of saliency maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from monai_afire.visualize.figures import middle_plane
from monai_afire.visualize.heat_map import overlay_heat_map
from monai_afire.visualize.style import LABEL_SIZE, MARK_COLOR, TITLE_SIZE, plot_figure

__all__ = ["saliency_figure"]


def saliency_figure(
    images: torch.Tensor, maps: Mapping[str, torch.Tensor], boxes: Sequence[torch.Tensor], titles: Sequence[str]
) -> Figure:
    """
    Radiographs with the boxes of their lesions, and beside each the heat maps of every method (AFiRe, Fig. 7).

    A map has its strongest colour at its own maximum and none up to half way there: what is coloured is what
    "iou_half" compares with the box.

    Args:
        images: ``(M, C, H, W)`` in [0, 1], a row each.
        maps: ``(M, H, W)`` by the name of the method, a column each.
        boxes: for each image ``(number, 4)``: row, column, height, width in pixels.
        titles: one per image, at its left.

    Returns:
        The figure.

    Raises:
        ValueError: without an image, or for other numbers of maps, boxes or titles.

    Example:
        >>> maps = {"Grad-CAM": torch.rand(2, 16, 16)}
        >>> len(saliency_figure(torch.rand(2, 1, 16, 16), maps, [torch.empty(0, 4)] * 2, ["a", "b"]).axes)
        4
    """
    numbers = {len(images), len(boxes), len(titles), *(len(heat) for heat in maps.values())}
    if numbers - {len(images)} or not len(images):
        raise ValueError(
            f"{len(images)} images, {len(boxes)} boxes, {len(titles)} titles and maps of "
            f"{[len(heat) for heat in maps.values()]}: give one of each per image, for at least one"
        )
    figure = plot_figure(0.9 + 2.0 * (1 + len(maps)), 0.4 + 2.0 * len(images), pictures=True)
    axes = figure.subplots(len(images), 1 + len(maps), squeeze=False)
    for number, row in enumerate(axes):
        picture = middle_plane(images[number]).clip(0, 1)
        pictures = [picture, *(_overlay(picture, heat[number]) for heat in maps.values())]
        for axis, shown in zip(row, pictures, strict=True):
            axis.imshow(shown, cmap="gray", vmin=0, vmax=1)
            for top, left, height, width in torch.as_tensor(boxes[number]).reshape(-1, 4).tolist():
                corner = (left - 0.5, top - 0.5)  # pixel i is drawn from i - 0.5 on
                axis.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=MARK_COLOR, linewidth=1.2))
            axis.set_xticks([])
            axis.set_yticks([])
        row[0].set_ylabel(titles[number], fontsize=LABEL_SIZE, parse_math=False)
    for axis, name in zip(axes[0], ["radiograph", *maps], strict=True):
        axis.set_title(name, fontsize=TITLE_SIZE, parse_math=False)
    return figure


def _overlay(picture: NDArray, heat: torch.Tensor) -> NDArray:
    values = heat.detach().float().cpu().numpy()
    low, high = float(values.min()), float(values.max())
    if not low < high:  # nothing is hotter than the rest
        return np.repeat(picture[..., None], 3, axis=-1)
    return overlay_heat_map(picture, values, (low + high) / 2, high)
