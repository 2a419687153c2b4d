# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The comparison as a page, for any browser and without a network."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from monai_afire.apps.compare.interval_plot import interval_plot
from monai_afire.apps.results.html_page import render_page
from monai_afire.apps.results.pictures.group_map import map_figure
from monai_afire.apps.results.pictures.style import figure_url, on_dark
from monai_afire.apps.results.report_text import format_number
from monai_afire.utils.files import write_text

_GROUPS = 5  # that have a color of their own
_MIN_IMAGES = 3


def write_page(
    path: str | os.PathLike, table: pd.DataFrame, maps: Sequence[Mapping[str, Any]], **facts: Any
) -> None:
    """
    Write the page.

    Args:
        path: the file.
        table: of :func:`monai_afire.apps.compare.results.results_table`.
        maps: of :func:`embedding_maps`.
        facts: further values for the template.
    """
    shown = table.assign(best=_best(table))
    values = {"results": shown.to_dict("records"), "maps": maps, "number": format_number, **facts}
    values["plots"] = {
        question: figure_url(on_dark(interval_plot(own)))
        for question, own in table.groupby("question")
    }
    write_text(path, render_page("monai_afire.apps.compare", "compare.html", **values))


def _best(table: pd.DataFrame) -> pd.Series:
    """Whether an AUC is the largest of its question and setting."""
    return table["auc"] == table.groupby(["question", "setting"])["auc"].transform("max")


def embedding_maps(
    name: str, features: NDArray, groups: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """
    Two principal components of features, once for each way to color the images.

    Args:
        name: of the encoder.
        features: ``(M, D)``.
        groups: way to color, such as "view" -> group of each image. The rare groups share a color.

    Returns:
        "name", "by", "groups" (name -> images) and "picture" of each; none for fewer than three images, which span no
        plane.
    """
    maps: list[dict[str, Any]] = []
    if len(features) < _MIN_IMAGES:
        return maps
    points = PCA(2, random_state=0).fit_transform(features)
    for by, own in groups.items():
        common = [group for group, _ in Counter(own).most_common(_GROUPS)]
        shown = [group if group in common else "other" for group in own]
        picture = figure_url(on_dark(map_figure({name: points}, {name: shown})))
        maps.append(
            {
                "name": name,
                "by": by,
                "groups": dict(Counter(shown).most_common()),
                "picture": picture,
            }
        )
    return maps
