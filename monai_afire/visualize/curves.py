# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""ROC and precision-recall curves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from monai_afire.metrics.detection import alarm_counts, average_precision, checked_labels, roc_auc
from monai_afire.visualize.figures import save_figure

__all__ = ["roc_pr_figure"]

LINE_STYLES = ("-", "--", ":", "-.")
NUM_COLORS = 10  # of matplotlib's colour cycle


def roc_pr_figure(
    labels: ArrayLike,
    scores: Mapping[str, ArrayLike],
    path: str | os.PathLike | None,
    thresholds: Mapping[str, float] | None = None,
    title: str = "",
) -> Figure:
    """
    ROC and precision-recall curves of several scores side by side, with AUC and AP, against chance.

    Equal scores are one step: a straight line in the ROC curve, so that the area under it is the AUC, and one step of
    the precision-recall curve, so that the area under it is the AP.

    Args:
        labels: ``(M,)``, 1 (abnormal) or 0 (normal).
        scores: ``{name: (M,)}``, larger is more abnormal; the legend keeps their order.
        path: the file; its extension says the format. None writes none.
        thresholds: ``{name: threshold}`` for none, some or all of the scores: the point at which score >= threshold
            raises an alarm is marked. NaN marks none.
        title: of the figure.

    Returns:
        The figure. Where the labels are all the same, it says so instead of showing curves.

    Raises:
        ValueError: without a score, for a threshold of an unknown score, for NaN and unequal lengths.

    Example:
        >>> figure = roc_pr_figure([0, 0, 1, 1], {"a score": [0.1, 0.4, 0.4, 0.8]}, None, {"a score": 0.8})
        >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        ['AUC 0.875  a score', 'chance', 'threshold']
    """
    thresholds = thresholds or {}
    unknown = sorted(set(thresholds) - set(scores))
    if not scores or unknown:
        raise ValueError(f"scores {sorted(scores)}, thresholds of {unknown}: give one score or more, by the same names")
    checked = {name: checked_labels(labels, values, f"scores {name!r}") for name, values in scores.items()}
    truth = next(iter(checked.values()))[0]
    figure = Figure(figsize=(10, 5.6 + 0.18 * (len(scores) + 2)), dpi=130, layout="compressed")
    roc, precision_recall = figure.subplots(1, 2)
    _frame(roc, "ROC", "1 - specificity", "sensitivity")
    _frame(precision_recall, "Precision-recall", "recall (sensitivity)", "precision")
    figure.suptitle(
        title or f"{int(truth.sum())} abnormal and {int((~truth).sum())} normal images", fontsize=11, parse_math=False
    )
    if truth.all() or not truth.any():
        for axis in (roc, precision_recall):
            axis.text(0.5, 0.5, "not defined:\nall images have the same label", ha="center", va="center")
    else:
        for number, name in enumerate(checked):
            _draw_curves(roc, precision_recall, name, *checked[name], number, thresholds.get(name, np.nan))
        prevalence = float(truth.mean())
        has_points = not np.isnan(list(thresholds.values()) or [np.nan]).all()
        _finish(roc, [0, 1], "chance", has_points)
        _finish(precision_recall, [prevalence, prevalence], f"chance, {prevalence:.3f}", has_points)
    if path is not None:
        save_figure(figure, path)
    return figure


def _frame(axis: Axes, title: str, x_label: str, y_label: str) -> None:
    axis.set(title=title, xlabel=x_label, ylabel=y_label, xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    axis.grid(color="0.9", linewidth=0.6)
    axis.set_axisbelow(True)


def _draw_curves(
    roc: Axes, precision_recall: Axes, name: str, truth: NDArray, values: NDArray, number: int, threshold: float
) -> None:
    _, hits, alarms = alarm_counts(truth, values)
    abnormal, normal = truth.sum(), (~truth).sum()
    look: dict[str, Any] = {
        "color": f"C{number % NUM_COLORS}",
        "linewidth": 1.3,
        "linestyle": LINE_STYLES[number // NUM_COLORS % len(LINE_STYLES)],
    }
    sensitivity, auc = np.append(0, hits / abnormal), roc_auc(truth, values)
    roc.plot(np.append(0, (alarms - hits) / normal), sensitivity, label=f"AUC {auc:.3f}  {name}", **look)
    first = int(np.argmax(hits > 0))  # before it there is no recall, and no area
    precision, ap = (hits / alarms)[first:], average_precision(truth, values)
    recall = np.append(0, sensitivity[first + 1 :])
    steps = np.append(precision[0], precision)
    precision_recall.plot(recall, steps, drawstyle="steps-pre", label=f"AP {ap:.3f}  {name}", **look)
    alarm = values >= threshold
    if np.isnan(threshold):
        return
    mark: dict[str, Any] = {
        "color": look["color"],
        "marker": "o",
        "markersize": 7,
        "markeredgecolor": "black",
        "zorder": 3,
    }
    roc.plot((alarm & ~truth).sum() / normal, (alarm & truth).sum() / abnormal, **mark)
    if alarm.any():
        precision_recall.plot((alarm & truth).sum() / abnormal, (alarm & truth).sum() / alarm.sum(), **mark)


def _finish(axis: Axes, chance: list[float], chance_label: str, has_points: bool) -> None:
    """Chance line, and the legend below the axes, where it hides no curve."""
    axis.plot([0, 1], chance, color="0.5", linestyle=(0, (2, 2)), linewidth=1, zorder=1, label=chance_label)
    if has_points:
        axis.plot([], [], color="0.6", marker="o", markeredgecolor="black", linestyle="", label="threshold")
    legend = axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), fontsize=8, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
