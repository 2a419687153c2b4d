# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The mean AUC of findings as a metric of an engine, and their thresholds."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from ignite.engine import Engine
from sklearn.metrics import roc_auc_score

from monai_afire.metrics import MeanAUC, mean_auc
from monai_afire.metrics.multilabel import best_thresholds


def random_classifier(seed: int, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Labels of which some are uncertain or missing, and probabilities."""
    rng = np.random.default_rng(seed)
    truth = rng.random((60, classes)) < 0.5
    logits = rng.normal(size=truth.shape) + truth
    is_known = rng.random(truth.shape) < 0.8
    labels = np.where(is_known, truth, rng.choice([-1.0, math.nan], truth.shape))
    return labels, 1 / (1 + np.exp(-logits))


@pytest.mark.parametrize("classes", [1, 3])
def test_as_ignite_metric(classes: int) -> None:
    labels, probabilities = random_classifier(4, classes=classes)
    logits = np.log(probabilities / (1 - probabilities))
    halves = [
        {"pred": torch.tensor(logits[rows]), "label": torch.tensor(labels[rows])}
        for rows in (slice(25), slice(25, 60))
    ]
    engine = Engine(lambda engine, batch: batch)
    MeanAUC().attach(engine, "auc")
    known = [(labels[:, k] == 0) | (labels[:, k] == 1) for k in range(classes)]
    pairs = [(labels[known[k], k], probabilities[known[k], k]) for k in range(classes)]
    expected = np.mean([roc_auc_score(*pair) for pair in pairs])
    assert engine.run(halves).metrics["auc"] == pytest.approx(expected)
    assert mean_auc(labels, probabilities) == pytest.approx(expected)


def test_each_class_has_the_threshold_of_its_best_f1() -> None:
    labels = [[0, 1, 1], [1, 1, -1], [1, 1, math.nan], [0, 1, 0]]
    scores = [[0.2, 0.1, 0.9], [0.6, 0.2, 0.95], [0.7, 0.3, 0.99], [0.5, 0.4, 0.3]]
    # the second class has positives alone; of the third, two labels are not known
    assert best_thresholds(labels, scores).tolist() == [0.6, 0.5, 0.9]
