# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Similarities of token distributions against loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from naive import afire

from monai_afire.losses.token_similarity import TokenSimilarity


def naive_score(q: np.ndarray, c: np.ndarray, name: str) -> float:
    if name == "cosine":
        return float(sum(a * b for a, b in zip(q, c, strict=True)))
    return -afire.cross_entropy(q, c, name)


@pytest.mark.parametrize("name", ["paper", "teacher_ce", "cosine"])
@pytest.mark.parametrize("temperature", [0.05, 7.0])
def test_scores_equal_loops(name: str, temperature: float) -> None:
    rng = np.random.default_rng(0)
    q, c = rng.dirichlet(np.ones(4), size=(2, 3)), rng.dirichlet(np.ones(4), size=5)
    similarity = TokenSimilarity(temperature, name)
    expected = np.array(
        [[[naive_score(token, row, name) for row in c] for token in image] for image in q]
    )
    np.testing.assert_allclose(
        similarity(torch.tensor(q), torch.tensor(c)).numpy(),
        expected / temperature,
        rtol=0,
        atol=1e-9,
    )


@pytest.mark.parametrize("name", ["paper", "teacher_ce"])
def test_one_hot_distributions_give_finite_scores_and_gradients(name: str) -> None:
    q = torch.eye(3, requires_grad=True)
    scores = TokenSimilarity(0.05, name)(q, torch.eye(3))
    scores.sum().backward()
    assert q.grad is not None
    assert torch.isfinite(scores).all()
    assert torch.isfinite(q.grad).all()
    assert (scores.argmax(-1) == torch.arange(3)).all()


@pytest.mark.parametrize(
    ("temperature", "name", "named"), [(1.0, "dot", "dot"), (0.0, "paper", "temperature")]
)
def test_wrong_settings_are_refused(temperature: float, name: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        TokenSimilarity(temperature, name)
