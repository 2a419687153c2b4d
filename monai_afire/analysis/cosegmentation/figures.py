# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Figures of sets of images that are segmented jointly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from skimage.segmentation import mark_boundaries

from monai_afire.visualize.dot_plot import dot_plot
from monai_afire.visualize.outlines import TRUTH_COLOR, class_color, outline_picture, picture_sheet
from monai_afire.visualize.style import HEAT_COLORS

__all__ = ["cosegmentation_figure", "organ_outlines_figure", "segments_figure"]

_SIDE = 384


def cosegmentation_figure(tables: Mapping[str, pd.DataFrame], names: Sequence[str]) -> Figure:
    """
    The mean Dice of each organ and encoder.

    Args:
        tables: of :func:`monai_afire.analysis.score_segments`, by the encoders' names.
        names: of the organs.

    Returns:
        The figure.

    Raises:
        ValueError: without an encoder or an organ.

    Example:
        >>> table = pd.DataFrame({"organ": [0, 1], "dice": [0.9, 0.4]})
        >>> len(cosegmentation_figure({"mine": table}, ["lung", "heart"]).axes)
        1
    """
    values = pd.DataFrame({name: table.groupby("organ")["dice"].mean() for name, table in tables.items()})
    values = values.reindex(range(len(names))).set_axis(list(names))
    return dot_plot(values, "Co-segmentation", "mean Dice", limits=(-0.03, 1.03))


def segments_figure(images: torch.Tensor, labels: Mapping[str, torch.Tensor]) -> Figure:
    """
    The segments as they are found, before anything is known of organs (PEAC, Fig. 7).

    Args:
        images: ``(M, C, H, W)``, a few.
        labels: for each encoder ``(M, h, w)``, of :func:`monai_afire.analysis.cosegment`.

    Returns:
        The figure: a row per image, the image itself at the left. In all rows of an encoder a colour is the same
        segment, ordered from the top of the images to the bottom; colours of two encoders have nothing in common.

    Example:
        >>> figure = segments_figure(torch.rand(2, 1, 8, 8), {"mine": torch.randint(3, (2, 4, 4))})
        >>> [axis.get_title() for axis in figure.axes]
        ['image', 'mine', 'image', 'mine']
    """
    gray = images.float().mean(1).cpu().numpy().clip(0, 1)
    ordered = {name: _from_top_to_bottom(own) for name, own in labels.items()}
    pictures, titles = [], []
    for number, image in enumerate(gray):
        pictures.append(_enlarged(np.stack([image] * 3, axis=-1)))
        pictures += [_tinted(image, own[number], int(own.max()) + 1) for own in ordered.values()]
        titles += ["image", *ordered]
    return picture_sheet(pictures, titles, None, columns=1 + len(labels))


def organ_outlines_figure(
    images: torch.Tensor, masks: torch.Tensor, predicted: Mapping[str, torch.Tensor], names: Sequence[str]
) -> Figure:
    """
    The organs that the segments make, beside the true ones.

    Args:
        images: ``(M, C, H, W)``, a few.
        masks: ``(M, O, H, W)`` bool, the truth.
        predicted: for each encoder the same of its segments, see :func:`monai_afire.analysis.segments_to_masks`.
        names: of the organs.

    Returns:
        The figure: a row per image, a column per encoder.

    Example:
        >>> masks = torch.rand(1, 2, 8, 8) > 0.5
        >>> len(organ_outlines_figure(torch.rand(1, 1, 8, 8), masks, {"mine": masks}, ["lung", "heart"]).axes)
        1
    """
    gray = images.float().mean(1).cpu().numpy()
    pictures = [
        outline_picture(image, own[number].cpu().numpy(), masks[number].cpu().numpy())
        for number, image in enumerate(gray)
        for own in predicted.values()
    ]
    legend = {"truth": TRUTH_COLOR, **{name: class_color(number) for number, name in enumerate(names)}}
    return picture_sheet(pictures, list(predicted) * len(gray), None, legend, columns=len(predicted))


def _from_top_to_bottom(labels: torch.Tensor) -> NDArray[np.int64]:
    """Number the segments by their mean row, so that neighbours in the body are neighbours in the colours."""
    flat = labels.cpu().numpy()
    rows = np.broadcast_to(np.arange(flat.shape[1])[:, None], flat.shape)
    present = np.unique(flat)
    mean_row = np.array([rows[flat == label].mean() for label in present])
    rank = np.zeros(int(flat.max()) + 1, dtype=np.int64)
    rank[present[np.argsort(mean_row, kind="stable")]] = np.arange(len(present))
    return rank[flat]


def _tinted(image: NDArray, labels: NDArray[np.int64], number: int) -> NDArray[np.uint8]:
    """The image under its segments' colours, with white lines between them."""
    colors = matplotlib.colormaps[HEAT_COLORS](np.linspace(0, 1, max(number, 2)))[:, :3]
    repeats = [max(1, side // cells) for side, cells in zip(image.shape, labels.shape, strict=True)]
    pixels = labels.repeat(repeats[0], axis=0).repeat(repeats[1], axis=1)[: image.shape[0], : image.shape[1]]
    mixed = 0.5 * image[..., None] + 0.5 * colors[pixels]
    factor = max(1, _SIDE // max(image.shape))
    large = pixels.repeat(factor, axis=0).repeat(factor, axis=1)
    marked = mark_boundaries(_enlarged(mixed), large, color=(1, 1, 1), mode="inner")
    return (marked * 255).round().astype(np.uint8)


def _enlarged(picture: NDArray) -> NDArray[np.uint8]:
    """A picture (H, W, 3) in [0, 1], some times as large."""
    factor = max(1, _SIDE // max(picture.shape[:2]))
    large = picture.repeat(factor, axis=0).repeat(factor, axis=1)
    return (large.clip(0, 1) * 255).round().astype(np.uint8)
