# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Figures of landmark correspondence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from monai_afire.visualize.dot_plot import dot_plot
from monai_afire.visualize.outlines import CLASS_COLORS, TRUTH_COLOR, landmark_picture, picture_sheet

__all__ = ["correspondence_figure", "found_landmarks_figure"]


def correspondence_figure(tables: Mapping[str, pd.DataFrame], names: Sequence[str], title: str) -> Figure:
    """
    The mean error of each landmark and encoder (ACE, Fig. 7 b).

    Args:
        tables: of :func:`monai_afire.analysis.landmark_correspondence`, by the encoders' names.
        names: of the landmarks.
        title: of the figure.

    Returns:
        The figure.

    Raises:
        ValueError: without an encoder or a landmark.

    Example:
        >>> table = pd.DataFrame({"landmark": [0, 0, 1], "error": [2.0, 4.0, 5.0]})
        >>> len(correspondence_figure({"mine": table}, ["carina", "hilum"], "Errors").axes)
        1
    """
    means = {name: table.groupby("landmark")["error"].mean() for name, table in tables.items()}
    values = pd.DataFrame(means).reindex(range(len(names)))
    return dot_plot(values.set_axis(list(names)), title, "mean error in pixels")


def found_landmarks_figure(
    images: torch.Tensor,
    landmarks: torch.Tensor,
    tables: Mapping[str, pd.DataFrame],
    reference: int,
    queries: Mapping[str, int],
) -> Figure:
    """
    Where each encoder finds the landmarks of a reference image in others (PEAC, Fig. 5; ACE, Fig. 7 a).

    Args:
        images: ``(M, C, H, W)``.
        landmarks: ``(M, P, 2)`` in pixels, rows before columns.
        tables: of :func:`monai_afire.analysis.landmark_correspondence`, by the encoders' names.
        reference: index of the reference image.
        queries: indices of the other images, by what they are.

    Returns:
        The figure: a row per query, the reference at its left.

    Example:
        >>> table = pd.DataFrame({"reference": 0, "query": 1, "landmark": 0, "row": [3.0], "column": [4.0]}, index=[0])
        >>> images, landmarks = torch.rand(2, 1, 8, 8), torch.full((2, 1, 2), 4.0)
        >>> figure = found_landmarks_figure(images, landmarks, {"mine": table}, 0, {"another patient": 1})
        >>> [axis.get_title() for axis in figure.axes]
        ['reference', 'another patient\\nmine']
    """
    gray = images.float().mean(1).cpu().numpy()
    places = landmarks.float().cpu().numpy()
    nowhere = np.full_like(places[reference], np.nan)
    pictures, titles = [], []
    for query_name, query in queries.items():
        pictures.append(landmark_picture(gray[reference], nowhere, places[reference]))
        titles.append("reference")
        for name, table in tables.items():
            found = nowhere.copy()
            rows = table[(table["reference"] == reference) & (table["query"] == query)]
            found[rows["landmark"]] = rows[["row", "column"]]
            pictures.append(landmark_picture(gray[query], found, places[query]))
            titles.append(f"{query_name}\n{name}")
    legend = {"landmark of the image": TRUTH_COLOR, "found from the reference": CLASS_COLORS[0]}
    return picture_sheet(pictures, titles, None, legend, columns=1 + len(tables))
