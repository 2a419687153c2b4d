# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Figures of the atlas of prototypes."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from monai_afire.visualize.figures import middle_plane
from monai_afire.visualize.style import HEAT_COLORS, LABEL_SIZE, MARK_COLOR, TICK_SIZE, TITLE_SIZE, plot_figure
from monai_afire.visualize.volume_planes import upright

__all__ = ["atlas_figure", "cluster_figure"]

_GOLDEN = 0.618033988749895
_ENTROPY_COLORS = "cividis"  # other ones than those of the clusters beside it, which mean something else


def atlas_figure(image: torch.Tensor, atlas: pd.DataFrame, title: str = "") -> Figure:
    """
    The clusters of all positions and the entropy there, beside a radiograph.

    Colours tell neighbours apart, by their lightness for every eye; the number of the cluster says which it is, and
    lines run where the cluster changes. Of volumes the middle slice is shown.

    Args:
        image: ``(C, *S)`` in [0, 1], e.g. the mean of all images.
        atlas: of :func:`monai_afire.analysis.prototype_atlas`.
        title: of the whole.

    Returns:
        The figure.

    Example:
        >>> from monai_afire.analysis.prototypes.measures import prototype_atlas
        >>> len(atlas_figure(torch.rand(1, 32, 32), prototype_atlas(torch.eye(16), (4, 4))).axes)
        4
    """
    is_volume = "slice" in atlas
    if is_volume:
        atlas = atlas[atlas["slice"] == (atlas["slice"].max() + 1) // 2]
    grids = [_on_grid(atlas, name) for name in ("cluster", "entropy")]
    clusters, entropy = map(upright, grids) if is_volume else grids
    figure = plot_figure(12.4, 4.3, pictures=True)
    axes = figure.subplots(1, 3)
    picture = middle_plane(image)
    height, width = picture.shape
    extent = (-0.5, entropy.shape[1] - 0.5, entropy.shape[0] - 0.5, -0.5)
    for axis, name in zip(axes, ("radiograph", "dominating cluster", "entropy (share of the largest)"), strict=True):
        axis.set_title(name, fontsize=TITLE_SIZE)
        axis.set_axis_off()
    aspect = (height / entropy.shape[0]) / (width / entropy.shape[1])  # of a patch
    axes[0].imshow(picture, cmap="gray", vmin=0, vmax=1, extent=extent, aspect=aspect)
    axes[1].imshow(_colors(clusters), aspect=aspect)
    _number(axes[1], clusters)
    shown = axes[2].imshow(entropy, cmap=_ENTROPY_COLORS, vmin=0, vmax=1, aspect=aspect)
    bar = figure.colorbar(shown, ax=axes[2], shrink=0.8)
    bar.ax.tick_params(labelsize=TICK_SIZE)
    figure.suptitle(title, fontsize=TITLE_SIZE, parse_math=False)
    return figure


def cluster_figure(windows: torch.Tensor, patches: pd.DataFrame, context: int = 1, title: str = "") -> Figure:
    """
    The patches that belong most strongly to each cluster, framed in what surrounds them; a row per cluster.

    Args:
        windows: ``(N, C, *S)`` of :func:`monai_afire.analysis.patch_windows`; of volumes the middle slice is shown.
        patches: of :func:`monai_afire.analysis.cluster_patches`, a row per window.
        context: patches around the one in the middle, on every side.
        title: of the whole.

    Returns:
        The figure.

    Raises:
        ValueError: without a patch.

    Example:
        >>> table = pd.DataFrame({"cluster": [7, 7], "rank": [0, 1], "probability": [0.9, 0.8]})
        >>> len(cluster_figure(torch.rand(2, 1, 24, 24), table).axes)
        2
    """
    if not len(patches):
        raise ValueError("no patch to show: give at least one image and one cluster")
    clusters = list(dict.fromkeys(patches["cluster"]))
    columns = int(patches["rank"].max()) + 1
    figure = plot_figure(1.0 + 1.05 * columns, 0.5 + 1.22 * len(clusters))
    axes = figure.subplots(len(clusters), columns, squeeze=False)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    for window, (_, patch) in zip(windows, patches.iterrows(), strict=True):
        axis = axes[clusters.index(patch["cluster"]), int(patch["rank"])]
        picture = middle_plane(window)
        height, width = (length / (2 * context + 1) for length in picture.shape)
        axis.imshow(picture, cmap="gray", vmin=0, vmax=1)
        corner = (context * width - 0.5, context * height - 0.5)
        axis.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=MARK_COLOR, linewidth=1.2))
        axis.set_title(f"{patch['probability']:.2f}", fontsize=TICK_SIZE, pad=2)
    for row, cluster in zip(axes, clusters, strict=True):
        row[0].set_ylabel(f"cluster {cluster}", fontsize=LABEL_SIZE)
    figure.suptitle(title, fontsize=TITLE_SIZE, parse_math=False)
    return figure


def _on_grid(atlas: pd.DataFrame, name: str) -> NDArray:
    return atlas.pivot(index="row", columns="column", values=name).to_numpy()


def _colors(clusters: NDArray) -> NDArray:
    """Colours far apart for clusters whose numbers follow each other in reading order."""
    found = {cluster: place for place, cluster in enumerate(dict.fromkeys(clusters.ravel().tolist()))}
    shade = np.vectorize(lambda cluster: (found[cluster] * _GOLDEN) % 1.0)(clusters)
    return mpl.colormaps[HEAT_COLORS](shade)[..., :3]


def _number(axis: Axes, clusters: NDArray) -> None:
    """Write the clusters' numbers on their cells, and draw lines where the cluster changes."""
    size = min(9.0, 100 / max(clusters.shape))
    light = _colors(clusters) @ np.array([0.299, 0.587, 0.114])
    for row, column in np.ndindex(*clusters.shape):
        color = "black" if light[row, column] > 0.5 else "white"
        text = str(clusters[row, column])
        axis.text(column, row, text, ha="center", va="center", fontsize=size, color=color)
        if column + 1 < clusters.shape[1] and clusters[row, column] != clusters[row, column + 1]:
            axis.plot([column + 0.5] * 2, [row - 0.5, row + 0.5], color="white", linewidth=1)
        if row + 1 < clusters.shape[0] and clusters[row, column] != clusters[row + 1, column]:
            axis.plot([column - 0.5, column + 0.5], [row + 0.5] * 2, color="white", linewidth=1)
