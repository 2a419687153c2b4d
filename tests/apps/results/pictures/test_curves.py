# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""ROC and precision-recall curves, by the lines that are drawn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from sklearn.metrics import average_precision_score as average_precision

from monai_afire.apps.evaluation import metrics_at_threshold
from monai_afire.apps.results.pictures.curves import class_roc_figure, roc_pr_figure
from monai_afire.metrics.binary_classification import roc_auc
from monai_afire.visualize.figures import figure_to_array


def random_detector(seed: int, size: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(size) < rng.integers(1, size))
    scores = rng.normal(size=size) + labels
    return labels.astype(int), scores.round(0 if seed % 2 else 9)


def legend_of(axis: Axes) -> list[str]:
    legend = axis.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def points(axis: Axes, line: int) -> np.ndarray:
    return np.asarray(axis.lines[line].get_xydata())


def fits(figure: Figure) -> bool:
    """Whether everything lies on the page."""
    height, width = figure_to_array(figure).shape[:2]
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = [box for axis in figure.axes if (box := axis.get_tightbbox(renderer)) is not None]
    return all(b.x0 >= 0 and b.y0 >= 0 and b.x1 <= width and b.y1 <= height for b in boxes)


@pytest.mark.parametrize("seed", range(8))
def test_areas_under_the_lines_are_auc_and_ap(seed: int) -> None:
    labels, scores = random_detector(seed)
    roc, precision_recall = roc_pr_figure(labels, {"score": scores}, None).axes
    x, y = points(roc, 0).T
    assert (np.diff(x) * (y[1:] + y[:-1]) / 2).sum() == pytest.approx(roc_auc(labels, scores))
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    recall, precision = points(precision_recall, 0).T
    assert precision_recall.lines[0].get_drawstyle() == "steps-pre"
    assert (np.diff(recall) * precision[1:]).sum() == pytest.approx(
        average_precision(labels, scores)
    )
    assert (recall[0], recall[-1], precision[-1]) == (0, 1, labels.mean())


def test_lines_by_hand() -> None:
    roc, precision_recall = roc_pr_figure([0, 1, 0, 1, 1], {"a": [9, 8, 7, 7, 1]}, None).axes
    assert points(roc, 0).tolist() == [[0, 0], [0.5, 0], [0.5, 1 / 3], [1, 2 / 3], [1, 1]]
    expected = [
        [0, 1 / 2],
        [1 / 3, 1 / 2],
        [2 / 3, 2 / 4],
        [1, 3 / 5],
    ]  # the false alarm before the first hit is none
    np.testing.assert_allclose(points(precision_recall, 0), expected)


def test_chance_and_legend() -> None:
    labels, scores = random_detector(0)
    figure = roc_pr_figure(labels, {r"_first $\frac$": scores, "second": -scores}, None)
    assert fits(figure)
    roc, precision_recall = figure.axes
    assert points(roc, -1).tolist() == [[0, 0], [1, 1]]
    assert points(precision_recall, -1).tolist() == [[0, labels.mean()], [1, labels.mean()]]
    auc, ap = roc_auc(labels, scores), average_precision(labels, scores)
    assert auc > 0.5
    assert legend_of(roc) == [
        rf"AUC {auc:.3f}  _first $\frac$",
        f"AUC {1 - auc:.3f}  second",
        "chance",
    ]
    assert legend_of(precision_recall)[0] == rf"AP {ap:.3f}  _first $\frac$"
    assert legend_of(precision_recall)[2] == f"chance, {labels.mean():.3f}"
    assert figure.get_suptitle() == f"{labels.sum()} abnormal and {60 - labels.sum()} normal images"


def test_legends_are_sorted_and_colors_follow_the_order_given() -> None:
    labels, scores = random_detector(0)
    for axis in roc_pr_figure(labels, {"worst": -scores, "best": scores}, None).axes:
        assert [text.split()[-1] for text in legend_of(axis)[:2]] == ["best", "worst"]
        assert [handle.get_color() for handle in axis.get_legend().legend_handles[:2]] == [
            "C1",
            "C0",
        ]


@pytest.mark.parametrize("threshold", [-0.5, 0.5, 99.0])
def test_operating_point(threshold: float) -> None:
    labels, scores = random_detector(2)
    roc, precision_recall = roc_pr_figure(
        labels, {"a": -scores, "b": scores}, None, {"b": threshold}
    ).axes
    at = metrics_at_threshold(labels, scores, threshold)
    (mark,) = [
        line for line in roc.lines if line.get_marker() == "o" and np.size(line.get_xydata())
    ]
    assert np.ravel(mark.get_xydata()) == pytest.approx([1 - at["specificity"], at["sensitivity"]])
    assert mark.get_color() == roc.lines[1].get_color()
    marks = [
        line
        for line in precision_recall.lines
        if line.get_marker() == "o" and np.size(line.get_xydata())
    ]
    if threshold > 50:
        assert not marks  # precision without an alarm is not defined
    else:
        hits = (scores >= threshold) & (labels == 1)
        expected = [at["sensitivity"], hits.sum() / (scores >= threshold).sum()]
        assert np.ravel(marks[0].get_xydata()) == pytest.approx(expected)
    assert legend_of(roc)[-1] == "threshold"


def test_nan_threshold_marks_nothing() -> None:
    roc, _ = roc_pr_figure([0, 1], {"a": [0.1, 0.2]}, None, {"a": math.nan}).axes
    assert legend_of(roc) == ["AUC 1.000  a", "chance"]


@pytest.mark.parametrize("count", [1, 6, 25])
def test_legend_fits_on_the_page(tmp_path: Path, count: int) -> None:
    labels, scores = random_detector(4)
    named = {f"score number {i}": scores * (-1) ** i for i in range(count)}
    figure = roc_pr_figure(labels, named, tmp_path / "roc.png", {"score number 0": 0.0})
    assert fits(figure)
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines[: count + 1]}
    assert len(looks) >= count
    with Image.open(tmp_path / "roc.png") as picture:
        assert picture.size == figure_to_array(figure).shape[1::-1]


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_is_said_to_be_undefined(tmp_path: Path, label: int) -> None:
    figure = roc_pr_figure([label] * 3, {"a": [1, 2, 3]}, tmp_path / "a.png", {"a": 2})
    assert all("same label" in axis.texts[0].get_text() for axis in figure.axes)
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_infinite_scores_are_drawn() -> None:
    roc, _ = roc_pr_figure([0, 1, 1], {"a": [-np.inf, np.inf, 3]}, None, {"a": 0}).axes
    assert legend_of(roc)[0] == "AUC 1.000  a"


@pytest.mark.parametrize(
    ("scores", "thresholds", "message"),
    [
        ({}, None, "give one score or more"),
        ({"a": [0.1, 0.2]}, {"b": 0.1}, r"thresholds of \['b'\]"),
        ({"a": [0.1, math.nan]}, None, r"scores 'a' at index \[1\] are NaN"),
        ({"a": [0.1, 0.2], "b": [0.1]}, None, r"labels have shape \(2,\) and scores 'b' \(1,\)"),
    ],
)
def test_hostile_input(tmp_path: Path, scores: Any, thresholds: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        roc_pr_figure([0, 1], scores, tmp_path / "a.png", thresholds)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seed", range(3))
def test_classes_have_labels_of_their_own(seed: int) -> None:
    data = {f"class {size}": random_detector(seed + size, size) for size in (30, 50, 70)}
    labels, scores = (
        {name: pair[0] for name, pair in data.items()},
        {name: pair[1] for name, pair in data.items()},
    )
    axis = class_roc_figure(labels, scores, None).axes[0]
    assert len(axis.lines) == 4
    for line, (name, (truth, values)) in enumerate(data.items()):
        x, y = points(axis, line).T
        assert (np.diff(x) * (y[1:] + y[:-1]) / 2).sum() == pytest.approx(roc_auc(truth, values))
        assert f"AUC {roc_auc(truth, values):.3f}  {name}" in legend_of(axis)
    areas = [float(text.split()[1]) for text in legend_of(axis)[:3]]
    assert areas == sorted(areas, reverse=True)
    # the same class alone looks as in the figure of one set of labels
    truth, values = data["class 30"]
    np.testing.assert_array_equal(
        points(axis, 0), points(roc_pr_figure(truth, {"class 30": values}, None).axes[0], 0)
    )


def test_class_thresholds_and_undefined_classes(tmp_path: Path) -> None:
    labels, scores = random_detector(2)
    figure = class_roc_figure(
        {"a": [0, 0], "b": labels, "c": []},
        {"a": [0.1, 0.2], "b": scores, "c": []},
        tmp_path / "roc.png",
        {"a": 0.1, "b": 0.5, "c": math.nan},
    )
    axis = figure.axes[0]
    assert legend_of(axis) == [
        f"AUC {roc_auc(labels, scores):.3f}  b",
        "not defined  a",
        "not defined  c",
        "chance",
        "threshold",
    ]
    assert figure.get_suptitle() == f"mean AUC {roc_auc(labels, scores):.3f} of 1 classes"
    at = metrics_at_threshold(labels, scores, 0.5)
    (mark,) = [
        line for line in axis.lines if line.get_marker() == "o" and np.size(line.get_xydata())
    ]
    assert np.ravel(mark.get_xydata()) == pytest.approx([1 - at["specificity"], at["sensitivity"]])
    assert fits(figure)
    assert (tmp_path / "roc.png").stat().st_size > 1000


def test_many_classes_fit_on_the_page() -> None:
    labels, scores = random_detector(4)
    named = {f"a finding with a long name {i}": scores * (-1) ** i for i in range(20)}
    figure = class_roc_figure(dict.fromkeys(named, labels), named, None, title="twenty classes")
    assert fits(figure)
    assert figure.get_suptitle() == "twenty classes"
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines[:20]}
    assert len(looks) == 20


def test_no_class_is_defined() -> None:
    figure = class_roc_figure({"a": [1, 1]}, {"a": [1, 2]}, None, {"a": 1})
    assert legend_of(figure.axes[0]) == ["not defined  a", "chance"]
    assert figure.get_suptitle() == "no class has both labels"


@pytest.mark.parametrize(
    ("labels", "scores", "thresholds", "message"),
    [
        ({}, {}, None, "one or more"),
        ({"a": [0, 1]}, {"b": [0.1, 0.2]}, None, r"labels of \['a'\], scores of \['b'\]"),
        ({"a": [0, 1]}, {"a": [0.1, 0.2]}, {"b": 0.1}, r"thresholds of \['b'\]"),
        ({"a": [0, 1]}, {"a": [0.1, math.nan]}, None, r"scores 'a' at index \[1\] are NaN"),
        ({"a": [0, 1]}, {"a": [0.1]}, None, r"scores 'a' \(1,\)"),
        ({"a": [0, 2]}, {"a": [0.1, 0.2]}, None, "got 2"),
    ],
)
def test_hostile_classes(labels: Any, scores: Any, thresholds: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        class_roc_figure(labels, scores, None, thresholds)
