# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Anomaly scores against loops and cases by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from naive import afire

from monai_afire.detection.score_equations import (
    anomaly_score,
    interior_mean,
    interior_tokens,
    prototype_distance,
    top_mean,
)


@pytest.mark.parametrize("scale", [0.1, 30.0])
def test_score_equals_loops(scale: float) -> None:
    y, x = scale * np.random.default_rng(0).normal(size=(2, 3, 5, 4))
    score, token_map = anomaly_score(torch.tensor(y), torch.tensor(x))
    expected_score, expected_map = afire.anomaly_score(y, x)
    np.testing.assert_allclose(score, expected_score, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(token_map, expected_map, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_score_is_finite_and_ranks_where_the_printed_one_overflows(dtype: torch.dtype) -> None:
    """Distances of many thousands: exp(-d) is 0 for all of them, the scores still differ and keep their order."""
    size = torch.arange(1, 33, dtype=torch.float64).reshape(-1, 1, 1)
    restored = (size * 16).expand(32, 6, 9).to(dtype)
    score, token_map = anomaly_score(restored, torch.zeros_like(restored))
    assert score.dtype == token_map.dtype == torch.float32
    assert score.isfinite().all()
    assert (score.diff() > 0).all()
    np.testing.assert_allclose(score, 9 * (16 * size.flatten()) ** 2, rtol=1e-6)


def test_score_of_nan_is_nan_and_no_gradient() -> None:
    restored = torch.zeros(2, 3, 4, requires_grad=True)
    target = torch.zeros(2, 3, 4)
    target[1, 2, 3] = torch.nan
    score, _ = anomaly_score(restored, target)
    assert score.isnan().tolist() == [False, True]
    assert not score.requires_grad


def test_score_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match="target"):
        anomaly_score(torch.zeros(2, 3, 4), torch.zeros(2, 1, 4))


@pytest.mark.parametrize("similarity", ["paper", "teacher_ce"])
def test_prototype_distance_equals_loops(similarity: str) -> None:
    rng = np.random.default_rng(0)
    q, c = rng.dirichlet(np.ones(4), size=(3, 5)), rng.dirichlet(np.ones(4), size=5)
    q[0, 0] = c[0] = [1, 0, 0, 0]
    distance = prototype_distance(torch.tensor(q), torch.tensor(c), similarity)
    np.testing.assert_allclose(
        distance, afire.prototype_distance(q, c, similarity), rtol=1e-9, atol=1e-9
    )
    half = prototype_distance(torch.tensor(q).half(), torch.tensor(c), similarity)
    assert half.dtype == torch.float32


@pytest.mark.parametrize(
    ("share", "tokens", "k"), [(0.1, 30, 3), (0.1, 4, 1), (0.5, 5, 3), (1.0, 7, 7)]
)
def test_top_mean_equals_sorting(share: float, tokens: int, k: int) -> None:
    values = np.random.default_rng(tokens).normal(size=(3, tokens))
    expected = np.sort(values, axis=1)[:, -k:].mean(1)
    np.testing.assert_allclose(top_mean(torch.tensor(values), share), expected, rtol=1e-12)


def test_interior_mean_leaves_the_border_out() -> None:
    values = np.random.default_rng(0).normal(size=(2, 4, 5))
    values[:, 0, 2] = np.nan
    found = interior_mean(torch.tensor(values).flatten(1), interior_tokens((4, 5)))
    np.testing.assert_allclose(found, values[:, 1:-1, 1:-1].mean((1, 2)), rtol=1e-12)
