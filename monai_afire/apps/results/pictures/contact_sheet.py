# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Contact sheets: many radiographs beside their heat maps on one page."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from monai_afire.apps.results.pictures.heat_map import MARK_COLOR, overlay_heat_map
from monai_afire.apps.results.pictures.outlines import mask_outlines
from monai_afire.apps.results.pictures.style import wrapped_title
from monai_afire.visualize.figures import save_figure

MAX_PICTURES = 400
_PAIRS_PER_ROW = 4
PICTURE_INCHES = 1.9  # side of one picture
DPI = 150
TITLE_COLUMNS = 54  # characters of 7 points that fit above a pair of pictures
TITLE_LINES = 3
_LABEL_COLUMNS = 15  # characters of 8 points along an inch of the color bar
_SHEET_TITLE_COLUMNS = 52  # characters of 9 points above a pair of pictures
GAP = 0.02  # between radiograph and overlay, in widths of the picture
OUTLINE: dict[str, Any] = {"color": MARK_COLOR, "linewidth": 0.9}


def heat_range(heat_maps: Sequence[ArrayLike]) -> tuple[float, float]:
    """
    A range of heat that shows the hot spots of all pictures: from the median of their pixels to the 99.5th percentile.

    Args:
        heat_maps: one ``(H, W)`` per image; sizes may differ. Infinite values do not count.

    Returns:
        ``(low, high)`` with low < high, for :func:`overlay_heat_map`. Where the two percentiles are the same number,
        high is the largest heat or, if all are the same, low + 1.

    Example:
        >>> low, high = heat_range([np.arange(1001.0).reshape(77, 13)])
        >>> round(low), round(high)
        (500, 995)
    """
    pixels = np.concatenate([np.asarray(heat, dtype=np.float64).ravel() for heat in heat_maps])
    pixels = pixels[np.isfinite(pixels)]
    if not pixels.size:
        return 0.0, 1.0
    low, high = np.quantile(pixels, [0.5, 0.995]).tolist()
    if low < high:
        return low, high
    top = float(pixels.max())
    return low, top if low < top else float(np.nextafter(low + 1, np.inf))


def contact_sheet(
    images: Sequence[ArrayLike],
    heat_maps: Sequence[ArrayLike],
    titles: Sequence[str],
    path: str | os.PathLike | None,
    masks_or_boxes: Sequence[ArrayLike | None] | None = None,
    low: float | None = None,
    high: float | None = None,
    title: str = "",
    meaning: str = "anomaly per pixel",
) -> Figure:
    """
    One page of radiographs, each beside the same with its heat map, in the order given.

    All pictures share one range of heat, so that the same color means the same heat, see the color bar. What
    is known to be abnormal is outlined in cyan in both pictures of a pair.

    Args:
        images: one ``(H, W)`` in [0, 1] per image; sizes may differ.
        heat_maps: one ``(H, W)`` per image, of its size.
        titles: one per image, shown over the pair without TeX; long ones are broken and cut.
        path: the file; its extension says the format. None writes none.
        masks_or_boxes: None, or for each image None, a mask ``(H, W)``, non-zero where abnormal, or boxes ``(4,)`` or
            ``(boxes, 4)``, ``[x, y, width, height]`` in pixels. What has the shape of the image is a mask.
        low: largest heat that is not shown; by default that of :func:`heat_range`.
        high: smallest heat in the strongest color; by default that of :func:`heat_range`.
        title: of the whole sheet, and how its images were chosen; long ones are broken.
        meaning: of the heat, beside the color bar.

    Returns:
        The figure.

    Raises:
        ValueError: for no image, more than 400, unequal numbers, a mask or box of wrong shape, and as
            :func:`overlay_heat_map`; the message names the image.

    Example:
        >>> import tempfile
        >>> image, heat = np.full((32, 32), 0.5), np.eye(32)
        >>> path = os.path.join(tempfile.mkdtemp(), "sheet.png")
        >>> _ = contact_sheet([image] * 2, [heat] * 2, ["a: 0.9", "b: 0.1"], path, [None, [4, 4, 16, 8]], low=0, high=1)
        >>> Image.open(path).format
        'PNG'
    """
    targets = [None] * len(images) if masks_or_boxes is None else masks_or_boxes
    _check_numbers(
        len(images), {"heat maps": heat_maps, "titles": titles, "masks or boxes": targets}
    )
    shared = heat_range(heat_maps)
    low, high = shared[0] if low is None else low, shared[1] if high is None else high
    columns = min(_PAIRS_PER_ROW, len(images))
    headings = [wrapped_title(text, TITLE_COLUMNS, TITLE_LINES) for text in titles]
    lines = max(text.count("\n") + 1 for text in headings)
    heading = wrapped_title(title, int(columns * _SHEET_TITLE_COLUMNS))
    figure, axes, bar = _page(columns, -(-len(images) // columns), lines, heading)
    for axis in axes[len(images) :]:
        axis.set_visible(False)
    for index, (axis, image, heat, target) in enumerate(
        zip(axes, images, heat_maps, targets, strict=False)
    ):
        try:
            _draw_pair(axis, np.asarray(image), overlay_heat_map(image, heat, low, high), target)
        except ValueError as error:
            raise ValueError(f"image {index} ({titles[index]}): {error}") from error
        axis.set_title(headings[index], fontsize=7, pad=2, parse_math=False)
    _draw_color_bar(bar, low, high, meaning)
    save_figure(figure, path)
    return figure


def _check_numbers(count: int, others: dict[str, Sequence]) -> None:
    """Refuse too many images, and lists of other lengths."""
    if not 1 <= count <= MAX_PICTURES:
        raise ValueError(
            f"{count} images: a sheet shows 1 to {MAX_PICTURES}; choose some, or make several sheets"
        )
    for name, values in others.items():
        if len(values) != count:
            raise ValueError(f"{count} images, but {len(values)} {name}: give one per image")


def _page(columns: int, rows: int, title_lines: int, title: str) -> tuple[Figure, list[Axes], Axes]:
    """The empty page: axes of the pairs in reading order, and those of the color bar at the right."""
    title_inches = 0.14 + 0.16 * (title.count("\n") + 1) if title else 0.0
    pair_title_inches, bar_inches, margin = 0.12 + 0.12 * title_lines, 0.95, 0.1
    width = columns * (2 * PICTURE_INCHES + margin) + bar_inches
    height = rows * (PICTURE_INCHES + pair_title_inches) + title_inches + margin
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    sides = {"left": margin / width, "right": 1 - bar_inches / width, "bottom": margin / height}
    top = 1 - (title_inches + pair_title_inches) / height
    gaps = {"wspace": margin / (2 * PICTURE_INCHES), "hspace": pair_title_inches / PICTURE_INCHES}
    axes = (
        figure.subplots(rows, columns, squeeze=False, gridspec_kw={**sides, "top": top, **gaps})
        .ravel()
        .tolist()
    )
    bar_height = min(rows * (PICTURE_INCHES + pair_title_inches) - pair_title_inches, 4.0)
    bottom = height - title_inches - pair_title_inches - bar_height
    bar = figure.add_axes(
        ((width - bar_inches + 0.1) / width, bottom / height, 0.15 / width, bar_height / height)
    )
    if title:
        left = margin / width
        figure.suptitle(
            title, fontsize=9, x=left, y=1 - 0.1 / height, ha="left", va="top", parse_math=False
        )
    return figure, axes, bar


def _draw_pair(
    axis: Axes, image: NDArray, overlay: NDArray[np.uint8], target: ArrayLike | None
) -> None:
    """A radiograph, and beside it the same with its heat map; both with the outlines of lesions."""
    gray = np.rint(255 * np.asarray(image, dtype=np.float32).clip(0, 1)).astype(np.uint8)
    height, width = image.shape
    outlines = _outlines(target, image.shape)
    step = round(width * (1 + GAP), 3)
    for shift, picture in ((0.0, gray), (step, overlay)):
        extent = (shift, shift + width, height, 0)
        axis.imshow(
            _reduced(picture),
            cmap="gray",
            vmin=0,
            vmax=255,
            extent=extent,
            interpolation="bilinear",
        )
        for x, y in outlines:
            axis.plot(np.asarray(x) + shift, y, **OUTLINE)
    axis.set_xlim(0, step + width)
    axis.set_ylim(height, 0)
    axis.set_axis_off()


def _reduced(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """No more pixels than the page shows: a full-size radiograph would take a hundred times the memory."""
    longest = 2 * round(PICTURE_INCHES * DPI)
    factor = longest / max(picture.shape[:2])
    if factor >= 1:
        return picture
    height, width = (max(1, round(factor * side)) for side in picture.shape[:2])
    return np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling.BOX))


def _outlines(target: ArrayLike | None, shape: tuple[int, ...]) -> list[tuple[NDArray, NDArray]]:
    """Closed lines (x, y) around lesions, where pixel i covers [i, i + 1]."""
    if target is None:
        return []
    values = np.asarray(target)
    if values.shape == shape:
        return [(line[:, 0], line[:, 1]) for line in mask_outlines(values)]
    if values.size == 0:
        return []
    if values.ndim not in (1, 2) or values.shape[-1] != 4:
        found = f"lesions of shape {values.shape} are neither a mask of the image's shape {shape}"
        raise ValueError(f"{found} nor boxes [x, y, width, height]")
    boxes = values.reshape(-1, 4).astype(float)
    if not np.isfinite(boxes).all() or (boxes[:, 2:] <= 0).any():
        raise ValueError(
            f"boxes {boxes.tolist()} must be finite [x, y, width, height] with sides above 0"
        )
    return [
        (np.array([x, x + w, x + w, x, x]), np.array([y, y, y + h, y + h, y]))
        for x, y, w, h in boxes
    ]


def _draw_color_bar(axis: Axes, low: float, high: float, meaning: str) -> None:
    """The colors as they look over a medium gray, since the weak ones are transparent."""
    heat = np.linspace(low, high, 256)[:, None]
    colors = overlay_heat_map(np.full(heat.shape, 0.5), heat, low, high)
    axis.imshow(colors, extent=(0, 1, low, high), origin="lower", aspect="auto")
    axis.set_xticks([])
    ticks = np.linspace(low, high, 5)
    labels = [f"{tick:.3g}" for tick in ticks]
    axis.set_yticks(ticks, [f"≤ {labels[0]}", *labels[1:-1], f"≥ {labels[-1]}"])
    axis.tick_params(
        labelsize=7, length=2, left=False, labelleft=False, right=True, labelright=True
    )
    axis.yaxis.set_label_position("right")
    inches = axis.get_window_extent().height / axis.figure.dpi
    words = "\n".join(textwrap.wrap(meaning, max(12, int(_LABEL_COLUMNS * inches))))
    axis.set_ylabel(words, fontsize=8, labelpad=3, parse_math=False)
