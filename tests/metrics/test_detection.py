# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of a detector against loops, scikit-learn and cases by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from naive.afire import lesion_components

from monai_afire.metrics.detection import (
    aupro,
    average_precision,
    best_f1_threshold,
    bootstrap_interval,
    matched_pair_auc,
    matched_pairs,
    metrics_at_threshold,
    pixel_auroc,
    pointing_game,
    roc_auc,
)

RANKED = (roc_auc, average_precision, best_f1_threshold)


def random_detector(seed: int, size: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores, with many ties for every other seed."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(size) < rng.integers(1, size))
    scores = rng.normal(size=size) + labels
    return labels.astype(int), scores.round(0 if seed % 2 else 9)


@pytest.mark.parametrize("seed", range(8))
def test_roc_auc_counts_pairs(seed: int) -> None:
    labels, scores = random_detector(seed)
    pairs = list(itertools.product(scores[labels == 1], scores[labels == 0]))
    expected = sum((a > n) + 0.5 * (a == n) for a, n in pairs) / len(pairs)
    assert roc_auc(labels, scores) == pytest.approx(expected, rel=1e-12)
    assert roc_auc(labels, -scores) == pytest.approx(1 - expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_image_metrics_equal_scikit_learn(seed: int) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    labels, scores = random_detector(seed)
    assert roc_auc(labels, scores) == pytest.approx(sklearn.roc_auc_score(labels, scores), rel=1e-12)
    assert average_precision(labels, scores) == pytest.approx(sklearn.average_precision_score(labels, scores))
    threshold = best_f1_threshold(labels, scores)
    of_all = {t: sklearn.f1_score(labels, scores >= t) for t in np.unique(scores)}
    best = max(of_all.values())
    assert threshold == max(t for t, f1 in of_all.items() if math.isclose(f1, best, rel_tol=1e-12))
    at = metrics_at_threshold(labels, scores, threshold)
    assert at["f1"] == pytest.approx(best)
    assert at["accuracy"] == pytest.approx(sklearn.accuracy_score(labels, scores >= threshold))
    assert at["sensitivity"] == pytest.approx(sklearn.recall_score(labels, scores >= threshold))
    assert at["specificity"] == pytest.approx(sklearn.recall_score(labels, scores >= threshold, pos_label=0))


def test_image_metrics_by_hand() -> None:
    labels, scores = [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]
    assert roc_auc(labels, scores) == 0.75
    assert average_precision(labels, scores) == pytest.approx((1 + 2 / 3) / 2)
    assert best_f1_threshold(labels, scores) == 0.35
    assert metrics_at_threshold(labels, scores, 0.35) == {
        "accuracy": 0.75,
        "f1": 0.8,
        "sensitivity": 1.0,
        "specificity": 0.5,
    }
    constant = [0.5] * 4
    assert (roc_auc(labels, constant), average_precision(labels, constant)) == (0.5, 0.5)
    assert roc_auc([0, 1, 1], [-np.inf, np.inf, np.inf]) == average_precision([0, 1, 1], [0, np.inf, np.inf]) == 1.0
    assert average_precision([1, 0], [np.inf, np.inf]) == average_precision([0, 1], [-np.inf, -np.inf]) == 0.5
    assert best_f1_threshold([0, 1, 1, 0], [np.inf, np.inf, 3, 2]) == 3.0
    assert isinstance(roc_auc(torch.tensor(labels).bool(), torch.tensor(scores)), float)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_is_nan(label: int) -> None:
    labels, scores = [label] * 3, [0.1, 0.2, 0.3]
    for metric in RANKED:
        assert math.isnan(metric(labels, scores))
    at = metrics_at_threshold(labels, scores, 0.2)
    assert at["accuracy"] == pytest.approx(2 / 3 if label else 1 / 3)
    assert math.isnan(at["f1"]) == math.isnan(at["sensitivity"]) == (label == 0)
    assert math.isnan(at["specificity"]) == (label == 1)
    assert all(math.isnan(x) for x in bootstrap_interval(roc_auc, labels, scores, num_samples=5))
    assert all(math.isnan(x) for x in metrics_at_threshold(labels, scores, math.nan).values())


@pytest.mark.parametrize("metric", [*RANKED, lambda y, s: metrics_at_threshold(y, s, 0.5), matched_pairs])
def test_hostile_input_is_named(metric) -> None:
    with pytest.raises(ValueError, match=r"index \[1, 3\]"):
        metric([0, 1, 0, 1], [0.1, math.nan, 0.3, math.nan])
    with pytest.raises(ValueError, match=r"\(3,\)"):
        metric([0, 1, 0], [0.1, 0.2])
    with pytest.raises(ValueError, match="M > 0"):
        metric([], [])
    with pytest.raises(ValueError, match="got 2 at index 1"):
        metric([0, 2, 1], [0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        metric([[0, 1], [0, 1]], [[0.1, 0.2], [0.3, 0.4]])
    with pytest.raises(ValueError, match="at index 0"):
        metric([math.nan, 1], [0.1, 0.2])


def test_bootstrap_interval() -> None:
    labels, scores = random_detector(0, 200)
    lower, upper = bootstrap_interval(roc_auc, labels, scores, num_samples=300, seed=1)
    assert lower < roc_auc(labels, scores) < upper
    assert bootstrap_interval(roc_auc, labels, scores, num_samples=300, seed=1) == (lower, upper)
    assert bootstrap_interval(roc_auc, labels, scores, num_samples=300, seed=2) != (lower, upper)
    narrow = bootstrap_interval(roc_auc, labels, scores, num_samples=300, seed=1, confidence=0.5)
    assert lower < narrow[0] < narrow[1] < upper
    # the standard error of Hanley and McNeil (1982) is near a quarter of the 95 % interval
    auc, abnormal = roc_auc(labels, scores), labels.sum()
    normal = labels.size - abnormal
    q1, q2 = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = auc * (1 - auc) + (abnormal - 1) * (q1 - auc**2) + (normal - 1) * (q2 - auc**2)
    assert (upper - lower) / 3.92 == pytest.approx(math.sqrt(variance / (abnormal * normal)), rel=0.25)
    for bad in ({"num_samples": 0}, {"confidence": 1.0}):
        with pytest.raises(ValueError, match="num_samples"):
            bootstrap_interval(roc_auc, labels, scores, **bad)


def best_matching(labels: np.ndarray, brightness: np.ndarray, groups: np.ndarray, caliper: float) -> tuple[int, float]:
    """Number of pairs and total difference of the best matching, by trying all."""

    def search(rest: list[int], free: frozenset[int]) -> tuple[int, float]:
        if not rest:
            return 0, 0.0
        options = [search(rest[1:], free)]
        for j in free:
            difference = abs(brightness[rest[0]] - brightness[j])
            if groups[j] == groups[rest[0]] and difference <= caliper:
                count, total = search(rest[1:], free - {j})
                options.append((count + 1, total + difference))
        return min(options, key=lambda option: (-option[0], option[1]))

    return search(np.flatnonzero(labels == 1).tolist(), frozenset(np.flatnonzero(labels == 0).tolist()))


@pytest.mark.parametrize("seed", range(12))
def test_matching_is_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, brightness = rng.integers(0, 2, 10), rng.random(10)
    groups, caliper = rng.choice(["PA", "AP"], 10), float(rng.choice([0.05, 0.2, 0.6]))
    pairs = matched_pairs(labels, brightness, groups, caliper)
    assert pairs.shape[1] == 2
    assert (labels[pairs[:, 0]] == 1).all()
    assert (labels[pairs[:, 1]] == 0).all()
    assert np.unique(pairs).size == pairs.size
    assert (groups[pairs[:, 0]] == groups[pairs[:, 1]]).all()
    differences = np.abs(brightness[pairs[:, 0]] - brightness[pairs[:, 1]])
    assert (differences <= caliper).all()
    count, total = best_matching(labels, brightness, groups, caliper)
    assert len(pairs) == count
    assert differences.sum() == pytest.approx(total, abs=1e-12)


def test_matching_by_hand() -> None:
    # greedily 0 would take 2 (nearest) and leave 1 alone
    assert matched_pairs([1, 1, 0, 0], [0.5, 0.7, 0.55, 0.35], caliper=0.2).tolist() == [[0, 3], [1, 2]]
    assert matched_pairs([1, 0], [0.5, 0.5], ["PA", "AP"]).shape == (0, 2)
    assert matched_pairs([1, 0], [0.1, 0.9], caliper=math.inf).tolist() == [[0, 1]]
    assert matched_pairs([1, 0, 0], [0.5, 0.4, 0.5], [("a", 1), ("b", 2), ("a", 1)], caliper=0).tolist() == [[0, 2]]
    assert matched_pairs([1, 1], [0.5, 0.5]).shape == (0, 2)
    for arguments, message in (
        (([1, 0], [0.5, 0.5], ["PA"]), "1 groups"),
        (([1, 0], [0.5, 0.5], None, -1), "caliper"),
        (([1, 0], [0.5, 0.5], None, math.nan), "caliper"),
        (([1, 0], [0.5, math.inf]), "infinite"),
    ):
        with pytest.raises(ValueError, match=message):
            matched_pairs(*arguments)


def test_a_detector_of_brightness_is_at_chance_on_matched_pairs() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(600) % 2
    brightness = rng.normal(size=600) + labels
    pairs = matched_pairs(labels, brightness, caliper=0.02)
    assert len(pairs) > 100
    assert roc_auc(labels, brightness) > 0.7
    assert matched_pair_auc(brightness, pairs) == pytest.approx(0.5, abs=0.12)
    assert matched_pair_auc(labels + 0.0, pairs) == 1.0


def test_matched_pair_auc_by_hand() -> None:
    assert matched_pair_auc([3, 1, 2, 2, 0], [[0, 1], [2, 3], [4, 0]]) == 0.5
    assert math.isnan(matched_pair_auc([1.0, 2.0], np.empty((0, 2), dtype=int)))
    for pairs in ([[0, 2]], [[-1, 0]], [0, 1], [[0, 1, 1]]):
        with pytest.raises(ValueError, match="matched_pairs"):
            matched_pair_auc([1.0, 2.0], pairs)
    with pytest.raises(ValueError, match=r"index \[1\]"):
        matched_pair_auc([1.0, math.nan], [[0, 1]])


def test_pixel_auroc() -> None:
    rng = np.random.default_rng(0)
    maps, masks = rng.random((3, 6, 5)), rng.random((3, 6, 5)) < 0.3
    masks[1] = False
    mean, areas = pixel_auroc(maps, masks)
    assert math.isnan(areas[1])
    expected = [roc_auc(masks[i].ravel(), maps[i].ravel()) for i in (0, 2)]
    assert [areas[0], areas[2]] == expected
    assert mean == pytest.approx(sum(expected) / 2)
    assert math.isnan(pixel_auroc(maps, np.zeros_like(masks))[0])
    sizes_differ = pixel_auroc([maps[0], maps[0][:3]], [masks[0], 255 * masks[0][:3].astype(np.uint8)])
    assert sizes_differ[1][0] == areas[0]


def test_pointing_game() -> None:
    values = np.zeros((5, 7))
    values[2, 4] = 1
    mask = np.zeros((5, 7), dtype=bool)
    mask[1:3, 4:6] = True
    assert pointing_game(values, mask) == pointing_game(values, [1, 4, 3, 6]) == 1.0
    assert pointing_game(values, [2, 4, 3, 5]) == 1.0  # the smallest box
    for box in ([1, 4, 2, 6], [1, 5, 3, 6], [1, 2, 3, 4], [4, 1, 6, 3]):
        assert pointing_game(values, box) == 0.0
    assert pointing_game(values, [[0.0, 0.0, 1.0, 1.0], [-3.0, 4.7, 2.5, 90.0]]) == 1.0
    for box in ([-3, -3, -1, -1], [3, 6, 1, 4], [5, 0, 8, 3], [1, 1, 1, 3]):
        with pytest.raises(ValueError, match="covers no pixel"):
            pointing_game(values, box)
    values[0, 0] = 1  # two pixels share the maximum
    assert pointing_game(values, mask) == 0.5
    assert pointing_game(np.zeros((5, 7)), mask) == pytest.approx(4 / 35)
    assert math.isnan(pointing_game(values, ~mask & mask))
    assert math.isnan(pointing_game(values, np.empty((0, 4))))
    assert pointing_game(np.arange(8.0).reshape(2, 2, 2), [1, 1, 1, 2, 2, 2]) == 1.0
    with pytest.raises(ValueError, match="neither a mask"):
        pointing_game(values, mask[:3])
    with pytest.raises(ValueError, match="NaN"):
        pointing_game(np.full((2, 2), np.nan), np.ones((2, 2)))
    with pytest.raises(ValueError, match="NaN"):
        pointing_game(values, [0, 0, np.nan, 1])


def naive_aupro(maps: list[np.ndarray], masks: list[np.ndarray], max_fpr: float) -> float:
    """The curve threshold by threshold, and its area by Riemann sums of the interpolated curve."""
    normal = np.concatenate([image[mask == 0] for image, mask in zip(maps, masks, strict=True)])
    regions = [
        [image[pixel] for pixel in region]
        for image, mask in zip(maps, masks, strict=True)
        for region in lesion_components(mask)
    ]
    points = [(0.0, 0.0)]
    for threshold in sorted({v for image in maps for v in image.ravel().tolist()}, reverse=True):
        overlaps = [sum(v >= threshold for v in region) / len(region) for region in regions]
        points.append((float((normal >= threshold).mean()), sum(overlaps) / len(overlaps)))
    area = 0.0
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x0 < max_fpr and x1 > x0:
            end = min(x1, max_fpr)
            y_end = y0 + (y1 - y0) * (end - x0) / (x1 - x0)
            area += (end - x0) * (y0 + y_end) / 2
    return area / max_fpr


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("max_fpr", [0.05, 0.3, 1.0])
def test_aupro_equals_loops(seed: int, max_fpr: float) -> None:
    rng = np.random.default_rng(seed)
    masks = [(rng.random((7, 8)) < density).astype(np.uint8) for density in (0.15, 0.3, 0.0)]
    maps = [(rng.random(mask.shape) + 0.4 * mask).round(1 if seed % 2 else 9) for mask in masks]
    assert aupro(maps, masks, max_fpr) == pytest.approx(naive_aupro(maps, masks, max_fpr), rel=1e-9)


def test_aupro_by_hand() -> None:
    mask = np.array([[1, 1, 1, 1, 0, 0, 0, 0, 1]])
    perfect = mask.astype(float)
    assert aupro([perfect], [mask]) == aupro([perfect], [mask], 1.0) == 1.0
    assert aupro([1 - perfect], [mask], 0.3) == 0.0
    # the large lesion is found, the small one not before all normal pixels: the overlap is 1/2 all the way
    half = np.array([[1.0, 1, 1, 1, 0.5, 0.4, 0.3, 0.2, 0.0]])
    assert aupro([half], [mask], 0.3) == pytest.approx(0.5)
    # a constant map is the diagonal from (0, 0) to (1, 1)
    assert aupro([np.zeros((1, 9))], [mask], 0.3) == pytest.approx(0.15)
    assert aupro([np.zeros((1, 9))], [mask], 1.0) == pytest.approx(0.5)
    # diagonal neighbours are one lesion: 2/3 of its pixels and all of the other
    lesions = np.zeros((3, 6), dtype=bool)
    lesions[[0, 1, 2], [0, 1, 2]] = lesions[0, 5] = True
    found = lesions.astype(float)
    found[2, 2] = -1.0
    assert aupro([found], [lesions], 0.3) == pytest.approx((2 / 3 + 1) / 2)


def test_aupro_undefined_and_hostile() -> None:
    image, mask = np.random.default_rng(0).random((4, 4)), np.eye(4)
    assert math.isnan(aupro([image], [0 * mask]))
    assert math.isnan(aupro([image], [np.ones((4, 4))]))
    for fraction in (0, 1.1, -1, math.nan):
        with pytest.raises(ValueError, match="max_fpr"):
            aupro([image], [mask], fraction)
    bad = image.copy()
    bad[1, 1] = np.nan
    for metric in (aupro, pixel_auroc):
        with pytest.raises(ValueError, match="map 1 has 1 NaN"):
            metric([image, bad], [mask, mask])
        with pytest.raises(ValueError, match="mask's pixels"):
            metric([image], [np.where(mask, np.nan, 0)])
        with pytest.raises(ValueError, match="1 maps and 2 masks"):
            metric([image], [mask, mask])
        with pytest.raises(ValueError, match="at least one"):
            metric([], [])
        with pytest.raises(ValueError, match="resize"):
            metric([image], [mask[:2]])
