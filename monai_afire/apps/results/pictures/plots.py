# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""ROC and precision-recall curves, and confusion matrices."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from monai_afire.apps.results.pictures.style import (
    LABEL_SIZE,
    SERIES_COLORS,
    VALUE_COLORS,
    frame,
    legend_below,
    plot_figure,
)
from monai_afire.metrics.binary_classification import roc_auc
from monai_afire.metrics.multilabel import has_both_labels, pairs_by_class
from monai_afire.utils.text import counted
from monai_afire.visualize.figures import save_figure

_CHANCE: dict[str, Any] = {"color": "0.5", "linestyle": (0, (2, 2)), "linewidth": 1}
_DOT: dict[str, Any] = {"marker": "o", "linestyle": "", "markeredgecolor": "black"}
_LINES = ("-", "--", ":", "-.")
_SIDE, _LEGEND_LINE = 4.2, 0.2  # inches


def roc_pr_figure(
    labels: ArrayLike, scores: Mapping[str, ArrayLike], path: str | os.PathLike | None = None
) -> Figure:
    """
    ROC and precision-recall curves of several scores ``{name: (M,)}`` side by side, with AUC and average precision.

    Labels are ``(M,)`` of 1 and 0, both of which occur; a larger score stands for 1.
    """
    from sklearn import metrics  # takes a second to import

    truth = np.asarray(labels) == 1
    figure = plot_figure(2 * _SIDE, _SIDE + _LEGEND_LINE * (2 + len(scores)))
    roc, precision_recall = figure.subplots(1, 2)
    frame(roc, "ROC", "1 - specificity", "sensitivity", grid="both")
    frame(precision_recall, "Precision-recall", "recall (sensitivity)", "precision", grid="both")
    names = []
    for number, (name, values) in enumerate(scores.items()):
        ranks = rankdata(values)  # as scikit-learn refuses infinite scores
        false_positives, sensitivity, _ = metrics.roc_curve(truth, ranks)
        precision, recall, _ = metrics.precision_recall_curve(truth, ranks)
        roc.plot(false_positives, sensitivity, **_curve_style(number))
        precision_recall.step(recall, precision, where="post", **_curve_style(number))
        average_precision = metrics.average_precision_score(truth, ranks)
        names.append(f"{name}: AUC {roc_auc(truth, values):.3f}, AP {average_precision:.3f}")
    roc.plot([0, 1], [0, 1], **_CHANCE)
    precision_recall.plot([0, 1], [truth.mean()] * 2, **_CHANCE)
    precision_recall.set_ylim(-0.03, 1.03)
    counts = f"{truth.sum()} abnormal and {(~truth).sum()} normal images"
    figure.suptitle(counts, fontsize=LABEL_SIZE + 2)
    legend_below(figure, roc.lines, [*names, f"chance: AUC 0.500, AP {truth.mean():.3f}"])
    save_figure(figure, path)
    return figure


def class_roc_figure(
    labels: NDArray,
    scores: NDArray,
    class_names: Sequence[str],
    thresholds: NDArray | None = None,
    path: str | os.PathLike | None = None,
) -> Figure:
    """
    ROC curves of K classes against chance, of labels ``(M, K)`` of 1, 0 and NaN (not known) and scores ``(M, K)``.

    A dot marks the point of a class's threshold, of ``(K,)``; NaN has none. The legend names classes without a curve.
    """
    from sklearn.metrics import roc_curve

    figure = plot_figure(1.3 * _SIDE, 1.2 * _SIDE + _LEGEND_LINE * (2 + len(class_names)))
    axis = figure.subplots()
    limits = np.full(len(class_names), np.nan) if thresholds is None else thresholds
    names, areas, marks = [], [], []
    columns = zip(class_names, pairs_by_class(labels, scores), limits, strict=True)
    for number, (name, (truth, values), limit) in enumerate(columns):
        style = _curve_style(number)
        if not has_both_labels(truth):
            axis.plot([], [], **style)
            names.append(f"{name}: not defined")
            continue
        areas.append(roc_auc(truth, values))
        names.append(f"{name}: AUC {areas[-1]:.3f}")
        x, y, levels = roc_curve(truth, values, drop_intermediate=False)
        axis.plot(x, y, **style)
        if not np.isnan(limit):
            reached = (levels >= limit).sum() - 1
            marks.append((x[reached], y[reached], style["color"]))
    axis.plot([0, 1], [0, 1], **_CHANCE)
    handles, names = [*axis.lines], [*names, "chance"]
    for x, y, color in marks:
        axis.plot([x], [y], color=color, **_DOT)
    if marks:
        handles += axis.plot([], [], color="0.6", **_DOT)
        names.append("threshold")
    title = "no class has both labels"
    if areas:
        title = f"mean AUC {np.mean(areas):.3f} of {len(areas)} of {len(class_names)} classes"
    frame(axis, title, "1 - specificity", "sensitivity", grid="both")
    legend_below(figure, handles, names)
    save_figure(figure, path)
    return figure


def _curve_style(number: int) -> dict[str, Any]:
    """Color and dashes of a curve; none of the first 24 has both in common with another."""
    color = SERIES_COLORS[number % len(SERIES_COLORS)]
    dashes = _LINES[number // len(SERIES_COLORS) % len(_LINES)]
    return {"color": color, "linestyle": dashes, "linewidth": 1.3}


def confusion_figure(
    matrix: ArrayLike, class_names: Sequence[str], path: str | os.PathLike | None = None
) -> Figure:
    """A confusion matrix, true classes in the rows: numbers of images, colored by their share of the true class."""
    from sklearn.metrics import ConfusionMatrixDisplay

    counts = np.asarray(matrix)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = 1.8 + 0.62 * len(counts)
    figure = plot_figure(side + 0.6, side)
    axis = figure.subplots()
    style = {"xticks_rotation": 45, "cmap": VALUE_COLORS, "im_kw": {"vmin": 0, "vmax": 1}}
    display = ConfusionMatrixDisplay(shares, display_labels=class_names).plot(ax=axis, **style)
    for text, count in zip(display.text_.ravel(), counts.ravel(), strict=True):
        text.set_text(str(count))
    for text in (*axis.get_xticklabels(), *axis.get_yticklabels()):
        text.set_parse_math(False)
    frame(axis, counted(int(counts.sum()), "image"), "decision", "true class")
    display.im_.colorbar.set_label("share of the true class", fontsize=LABEL_SIZE)
    save_figure(figure, path)
    return figure
