# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Balanced assignment against the multiplicative form in loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from naive import afire

from monai_afire.networks.blocks.sinkhorn import sinkhorn_knopp


def random_logits(seed: int, rows: int, clusters: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, clusters, generator=generator, dtype=torch.float64) * 2 - 1


@pytest.mark.parametrize("size", [(7, 5), (1, 3), (2, 2), (12, 3), (3, 9)])
@pytest.mark.parametrize(("epsilon", "num_iters"), [(0.04, 3), (0.07, 1), (0.5, 2), (1.0, 10)])
def test_equals_the_reference(size: tuple[int, int], epsilon: float, num_iters: int) -> None:
    for seed in range(3):
        logits = random_logits(seed, *size)
        expected = afire.sinkhorn_knopp(logits.numpy(), epsilon, num_iters)
        np.testing.assert_allclose(
            sinkhorn_knopp(logits, epsilon, num_iters).numpy(), expected, rtol=0, atol=1e-9
        )


def test_temperature_may_be_a_tensor() -> None:
    logits = random_logits(0, 6, 4)
    torch.testing.assert_close(
        sinkhorn_knopp(logits, torch.tensor(0.25)), sinkhorn_knopp(logits, 0.25)
    )


@pytest.mark.parametrize("seed", range(3))
def test_rows_sum_to_one_and_clusters_are_used_evenly(seed: int) -> None:
    q = sinkhorn_knopp(random_logits(seed, 12, 4), 0.3, num_iters=200)
    torch.testing.assert_close(q.sum(1), torch.ones(12, dtype=torch.float64))
    torch.testing.assert_close(q.sum(0), torch.full((4,), 3.0, dtype=torch.float64))


def test_biases_of_clusters_and_samples_cancel() -> None:
    logits = random_logits(2, 8, 5)
    q = sinkhorn_knopp(logits, 0.2)
    torch.testing.assert_close(sinkhorn_knopp(logits + torch.arange(5.0), 0.2), q)
    converged = sinkhorn_knopp(logits, 0.2, 200)
    torch.testing.assert_close(
        sinkhorn_knopp(logits + torch.arange(8.0).unsqueeze(1), 0.2, 200), converged
    )


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_low_temperatures_do_not_overflow(scale: float) -> None:
    logits = random_logits(3, 50, 8).float() * scale
    q = sinkhorn_knopp(logits, 0.04)
    assert torch.isfinite(q).all()
    torch.testing.assert_close(q.sum(1), torch.ones(50))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    logits = random_logits(4, 20, 6).to(dtype)
    with torch.autocast("cpu", dtype=dtype):
        q = sinkhorn_knopp(logits, 0.04)
    assert q.dtype == torch.float32
    torch.testing.assert_close(
        q, sinkhorn_knopp(logits.double(), 0.04).float(), rtol=1e-4, atol=1e-6
    )


def test_no_gradient_and_untouched_input() -> None:
    logits = random_logits(5, 4, 3).requires_grad_()
    before = logits.detach().clone()
    assert not sinkhorn_knopp(logits, 0.05).requires_grad
    assert torch.equal(logits, before)


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(M, K\)"):
        sinkhorn_knopp(torch.zeros(2, 3, 4))
