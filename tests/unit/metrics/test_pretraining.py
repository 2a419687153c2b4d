# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Figures of pre-training against loops and cases by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from ignite.engine import Engine

from monai_afire.metrics import PretrainingMetrics, prototype_information, restoration_gain
from monai_afire.metrics.pretraining import prototype_entropy


def test_entropy_and_information_equal_loops() -> None:
    c = np.random.default_rng(0).dirichlet(np.ones(5), size=6)
    entropies = [-sum(p * math.log(p) for p in row) for row in c]
    mean_row = [sum(c[:, k]) / 6 for k in range(5)]
    of_mean = -sum(p * math.log(p) for p in mean_row)
    entropy = prototype_entropy(torch.tensor(c)).item()
    assert entropy == pytest.approx(sum(entropies) / 6 / math.log(5), abs=1e-7)
    information = prototype_information(torch.tensor(c)).item()
    assert information == pytest.approx((of_mean - sum(entropies) / 6) / math.log(5), abs=1e-7)


class Errors(PretrainingMetrics):
    """Two metrics, of which a batch may lack one."""

    names = ("near", "far")
    calls = 0

    def batch_metrics(self, outputs: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        self.calls += 1
        return outputs


def validate(metric: Errors, batches: list[tuple[float | None, float]], key: str = "near") -> Any:
    """The state of an evaluator after a validation."""
    named = [dict(zip(Errors.names, batch, strict=True)) for batch in batches]
    outputs = [
        {name: torch.tensor(value) for name, value in batch.items() if value is not None}
        for batch in named
    ]
    engine: Any = Engine(lambda engine, batch: {"pred": batch})
    engine.state.key_metric_name = key
    metric.attach(engine, key)
    engine.run(outputs)
    return engine.state


def test_metrics_are_computed_once_per_batch_and_all_reported() -> None:
    metric = Errors()
    state = validate(metric, [(1.0, 5.0), (3.0, float("nan"))])
    assert state.metrics == {"near": 2.0, "far": 5.0}
    assert metric.calls == 2
    assert state.key_metric_name == "near"


@pytest.mark.parametrize("near", [float("nan"), None])
def test_a_metric_that_is_not_defined_is_left_out(near: float | None) -> None:
    state = validate(Errors(), [(near, 5.0)])
    assert state.metrics == {"far": 5.0}
    assert state.key_metric_name == "far", "the key metric is one that exists"


def test_restoration_gain_by_hand() -> None:
    target, corrupted = torch.zeros(1, 1, 2, 4), torch.ones(1, 1, 2, 4)
    abnormal = torch.tensor([[[True, False]]])
    for restored, expected in ((target, 1.0), (corrupted, 0.0), (2 * corrupted, -3.0)):
        assert restoration_gain(restored, target, corrupted, abnormal) == expected
    assert restoration_gain(corrupted, target, corrupted, ~abnormal & abnormal) == 0.0
    # an invisible lesion: nothing to repair
    assert restoration_gain(corrupted, target, target, abnormal) == 0.0
    half = restoration_gain((corrupted / 2).bfloat16(), target, corrupted, abnormal)
    assert half.dtype == torch.float32
    assert half == 0.75
