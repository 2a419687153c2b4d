# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The area under the ROC curve and the best F1 against scikit-learn and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from monai_afire.metrics.binary_classification import best_f1_threshold, roc_auc


@pytest.mark.parametrize("seed", range(8))
def test_equal_scikit_learn_with_ties(seed: int) -> None:
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(40) < random.integers(1, 40)).astype(int)
    scores = (random.normal(size=40) + labels).round(0 if seed % 2 else 9)
    assert roc_auc(labels, scores) == pytest.approx(roc_auc_score(labels, scores))
    of_all = {each: f1_score(labels, scores >= each) for each in np.unique(scores)}
    best = [each for each, f1 in of_all.items() if math.isclose(f1, max(of_all.values()))]
    assert best_f1_threshold(labels, scores) == max(best)


def test_one_class_is_not_defined() -> None:
    for labels in ([0, 0], [1, 1]):
        assert math.isnan(roc_auc(labels, [0.1, 0.2]))
        assert math.isnan(best_f1_threshold(labels, [0.1, 0.2]))


@pytest.mark.parametrize(
    ("labels", "scores", "name"),
    [
        ([0, 2], [0.1, 0.2], "labels"),
        ([0], [0.1, 0.2], "labels"),
        ([0, 1], [0.1, math.nan], "scores"),
    ],
)
def test_what_gives_a_wrong_number_is_refused(
    labels: list[int], scores: list[float], name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        roc_auc(labels, scores)
