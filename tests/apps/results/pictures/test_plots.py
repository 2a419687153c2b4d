# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Curves and confusion matrices, by the lines and texts that are drawn."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from sklearn.metrics import average_precision_score

from monai_afire.apps.evaluation import weighted_metrics
from monai_afire.apps.results.pictures.plots import (
    class_roc_figure,
    confusion_figure,
    roc_pr_figure,
)
from monai_afire.metrics.binary_classification import roc_auc


def random_detector(seed: int, size: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(size) < rng.integers(1, size))
    scores = rng.normal(size=size) + labels
    return labels.astype(int), scores.round(0 if seed % 2 else 9)


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def points(axis: Axes, line: int) -> np.ndarray:
    return np.asarray(axis.lines[line].get_xydata())


@pytest.mark.parametrize("seed", range(2))
def test_areas_under_the_lines_are_auc_and_ap(seed: int) -> None:
    labels, scores = random_detector(seed)
    figure = roc_pr_figure(labels, {r"_first $\frac$": scores, "second": -scores})
    roc, precision_recall = figure.axes
    x, y = points(roc, 0).T
    assert (np.diff(x) * (y[1:] + y[:-1]) / 2).sum() == pytest.approx(roc_auc(labels, scores))
    recall, precision = points(precision_recall, 0).T
    assert precision_recall.lines[0].get_drawstyle() == "steps-post"
    ap = average_precision_score(labels, scores)
    assert -(np.diff(recall) * precision[:-1]).sum() == pytest.approx(ap)
    assert (
        legend_of(figure)[0] == rf"_first $\frac$: AUC {roc_auc(labels, scores):.3f}, AP {ap:.3f}"
    )
    assert points(precision_recall, -1).tolist() == [[0, labels.mean()], [1, labels.mean()]]


@pytest.mark.parametrize("threshold", [0.5, 99.0, math.nan])
def test_classes_have_labels_and_thresholds_of_their_own(threshold: float) -> None:
    data = [random_detector(size, 60) for size in (30, 50, 70)]
    labels, scores = (
        np.stack(columns, axis=1).astype(float) for columns in zip(*data, strict=True)
    )
    labels[5:9, 1] = math.nan
    labels, scores = np.c_[labels, np.ones(60)], np.c_[scores, np.arange(60)]
    names, limits = ["a", "b", "c", "undefined"], np.array([math.nan, threshold, math.nan, 1])
    figure = class_roc_figure(labels, scores, names, limits)
    axis = figure.axes[0]
    areas = []
    for column in range(3):
        known = ~np.isnan(labels[:, column])
        x, y = points(axis, column).T
        areas.append((np.diff(x) * (y[1:] + y[:-1]) / 2).sum())
        assert areas[-1] == pytest.approx(roc_auc(labels[known, column], scores[known, column]))
        assert f"{names[column]}: AUC {areas[-1]:.3f}" in legend_of(figure)
    assert "undefined: not defined" in legend_of(figure)
    assert axis.get_title() == f"mean AUC {np.mean(areas):.3f} of 3 of 4 classes"
    marks = [line for line in axis.lines if line.get_marker() == "o" and np.size(line.get_xdata())]
    if math.isnan(threshold):
        assert not marks
        return
    known = ~np.isnan(labels[:, 1])
    at = weighted_metrics(np.ones((1, known.sum())), labels[known, 1], scores[known, 1], threshold)
    expected = [1 - at["specificity"][0], at["sensitivity"][0]]
    assert np.ravel(marks[0].get_xydata()) == pytest.approx(expected)
    assert marks[0].get_color() == axis.lines[1].get_color()


def test_rows_of_a_confusion_matrix_are_true_classes(tmp_path: Path) -> None:
    figure = confusion_figure(
        [[5, 1], [0, 0]], ["no $finding$", "severe"], tmp_path / "confusion.png"
    )
    axis = figure.axes[0]
    cells = {text.get_position()[::-1]: text.get_text() for text in axis.texts}
    assert cells == {(0, 0): "5", (0, 1): "1", (1, 0): "0", (1, 1): "0"}
    assert [label.get_text() for label in axis.get_yticklabels()] == ["no $finding$", "severe"]
    assert axis.get_ylabel() == "true class"
    assert axis.images[0].get_array().tolist() == [[5 / 6, 1 / 6], [0.0, 0.0]]  # type: ignore[union-attr]
    assert min(Image.open(tmp_path / "confusion.png").size) > 300
