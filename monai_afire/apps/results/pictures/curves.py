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

from monai_afire.apps.evaluation.patient_bootstrap import weighted_metrics
from monai_afire.metrics.binary_classification import alarm_counts, checked_labels, roc_auc
from monai_afire.visualize.figures import save_figure

LINE_STYLES = ("-", "--", ":", "-.")
Pair = tuple[NDArray, NDArray]  # labels and scores
Point = tuple[ArrayLike, ArrayLike]
NUM_COLORS = 10  # of matplotlib's color cycle


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
        scores: ``{name: (M,)}``, larger is more abnormal; colors follow their order, the legends the area under the
            curve, largest first.
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
        raise ValueError(
            f"scores {sorted(scores)}, thresholds of {unknown}: give one score or more, by the same names"
        )
    checked = {
        name: checked_labels(labels, values, f"scores {name!r}") for name, values in scores.items()
    }
    truth = next(iter(checked.values()))[0]
    figure = Figure(figsize=(10, 5.6 + 0.18 * (len(scores) + 2)), dpi=130, layout="compressed")
    roc, precision_recall = figure.subplots(1, 2)
    _frame(roc, "ROC", "1 - specificity", "sensitivity")
    _frame(precision_recall, "Precision-recall", "recall (sensitivity)", "precision")
    counts = f"{int(truth.sum())} abnormal and {int((~truth).sum())} normal images"
    figure.suptitle(title or counts, fontsize=11, parse_math=False)
    if truth.all() or not truth.any():
        for axis in (roc, precision_recall):
            axis.text(
                0.5, 0.5, "not defined:\nall images have the same label", ha="center", va="center"
            )
    else:
        _draw_curves(roc, "AUC", checked, thresholds, None)
        _draw_curves(precision_recall, "AP", checked, thresholds, float(truth.mean()))
    save_figure(figure, path)
    return figure


def class_roc_figure(
    labels: Mapping[str, ArrayLike],
    scores: Mapping[str, ArrayLike],
    path: str | os.PathLike | None,
    thresholds: Mapping[str, float] | None = None,
    title: str = "",
) -> Figure:
    """
    ROC curves of several classes, each with labels of its own, against chance.

    Args:
        labels: ``{class: (M,)}``, 1 (present) or 0 (absent); M may differ between classes.
        scores: ``{class: (M,)}``, larger is more likely present; colors follow their order, the legend the AUC,
            largest first.
        path: the file; its extension says the format. None writes none.
        thresholds: ``{class: threshold}`` for none, some or all of the classes: the point at which score >= threshold
            calls a class present is marked. NaN marks none.
        title: of the figure.

    Returns:
        The figure. A class that has not both labels has no curve, which the legend says.

    Raises:
        ValueError: without a class, for labels, scores and thresholds of different classes, for NaN and unequal
            lengths.

    Example:
        >>> labels, scores = {"Edema": [0, 0, 1, 1], "Fracture": []}, {"Edema": [0.1, 0.4, 0.4, 0.8], "Fracture": []}
        >>> figure = class_roc_figure(labels, scores, None)
        >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        ['AUC 0.875  Edema', 'not defined  Fracture', 'chance']
    """
    thresholds = thresholds or {}
    if not scores or set(labels) != set(scores) or set(thresholds) - set(scores):
        given = f"labels of {sorted(labels)}, scores of {sorted(scores)} and thresholds of {sorted(thresholds)}"
        raise ValueError(
            f"{given}: give labels and scores of the same classes, one or more, and no other thresholds"
        )
    figure = Figure(figsize=(5.6, 6.2 + 0.18 * (len(scores) + 2)), dpi=130, layout="compressed")
    axis = figure.subplots()
    _frame(axis, "ROC", "1 - specificity", "sensitivity")
    pairs: dict[str, Pair | None] = {}
    for name, values in scores.items():
        has_both = np.unique(labels[name]).size > 1
        what = f"scores {name!r}"
        pairs[name] = checked_labels(labels[name], values, what) if has_both else None
    areas = _draw_curves(axis, "AUC", pairs, thresholds, None)
    mean = "no class has both labels"
    if areas:
        mean = f"mean AUC {np.mean(areas):.3f} of {len(areas)} classes"
    figure.suptitle(title or mean, fontsize=11, parse_math=False)
    save_figure(figure, path)
    return figure


def _frame(axis: Axes, title: str, x_label: str, y_label: str) -> None:
    axis.set(
        title=title,
        xlabel=x_label,
        ylabel=y_label,
        xlim=(-0.01, 1.01),
        ylim=(-0.01, 1.01),
        aspect="equal",
    )
    axis.grid(color="0.9", linewidth=0.6)
    axis.set_axisbelow(True)


def _draw_curves(
    axis: Axes,
    kind: str,
    pairs: Mapping[str, Pair | None],
    thresholds: Mapping[str, float],
    chance: float | None,
) -> list[float]:
    """Draw the curve of each pair of labels and scores that is defined; return the areas below these."""
    curve, area_of = (_roc, roc_auc) if kind == "AUC" else (_precision_recall, average_precision)
    drawstyle = "default" if kind == "AUC" else "steps-pre"
    areas, has_points = [], False
    for number, (name, pair) in enumerate(pairs.items()):
        color = f"C{number % NUM_COLORS}"
        if pair is None:
            axis.plot([], [], color=color, linestyle="", label=f"not defined  {name}")
            areas.append(-np.inf)
            continue
        areas.append(area_of(*pair))
        threshold = thresholds.get(name, np.nan)
        x, y, point = curve(*pair, threshold)
        style = LINE_STYLES[number // NUM_COLORS % len(LINE_STYLES)]
        look: dict[str, Any] = {
            "color": color,
            "linewidth": 1.3,
            "linestyle": style,
            "drawstyle": drawstyle,
        }
        axis.plot(x, y, **look, label=f"{kind} {areas[-1]:.3f}  {name}")
        if not np.isnan(threshold):
            has_points = True
            mark: dict[str, Any] = {
                "marker": "o",
                "markersize": 7,
                "markeredgecolor": "black",
                "zorder": 3,
            }
            axis.plot(*point, color=color, **mark)
    _finish(axis, areas, chance, has_points)
    return [area for area in areas if np.isfinite(area)]


def average_precision(truth: NDArray, values: NDArray) -> float:
    """Precision averaged over the steps of recall."""
    return weighted_metrics(np.ones((1, len(truth))), truth, values)["average_precision"][0]


def _roc(truth: NDArray, values: NDArray, threshold: float) -> tuple[NDArray, NDArray, Point]:
    """1 - specificity and sensitivity from no alarm to an alarm for all, and those of a threshold."""
    levels, hits, alarms = alarm_counts(truth, values)
    x, y = np.append(0, (alarms - hits) / (~truth).sum()), np.append(0, hits / truth.sum())
    reached = (levels >= threshold).sum()
    return x, y, ([x[reached]], [y[reached]])


def _precision_recall(
    truth: NDArray, values: NDArray, threshold: float
) -> tuple[NDArray, NDArray, Point]:
    """Recall and precision as steps, and those of a threshold, none where no score reaches it."""
    levels, hits, alarms = alarm_counts(truth, values)
    recall, precision = hits / truth.sum(), hits / alarms
    reached = (levels >= threshold).sum()
    point = slice(reached - 1, reached) if reached else slice(0)
    first = int(np.argmax(hits > 0))  # before it there is no recall, and no area
    steps = np.append(precision[first], precision[first:])
    return np.append(0, recall[first:]), steps, (recall[point], precision[point])


def _finish(axis: Axes, areas: list[float], chance: float | None, has_points: bool) -> None:
    """Chance line, and the legend below the axes, where it hides no curve; curves by the area below them."""
    line, label = [0.0, 1.0], "chance"
    if chance is not None:
        line, label = [chance, chance], f"chance, {chance:.3f}"
    axis.plot([0, 1], line, color="0.5", linestyle=(0, (2, 2)), linewidth=1, zorder=1, label=label)
    if has_points:
        axis.plot(
            [],
            [],
            color="0.6",
            marker="o",
            markeredgecolor="black",
            linestyle="",
            label="threshold",
        )
    handles, labels = axis.get_legend_handles_labels()
    order = [*np.argsort(np.negative(areas), kind="stable"), *range(len(areas), len(labels))]
    legend = axis.legend(
        [handles[number] for number in order],
        [labels[number] for number in order],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.13),
        fontsize=8,
        frameon=False,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
