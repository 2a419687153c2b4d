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


@pytest.mark.parametrize("size", [(7, 5), (1, 3), (3, 9)])
@pytest.mark.parametrize(("epsilon", "num_iters"), [(0.04, 3), (0.07, 1), (1.0, 10)])
def test_equals_the_reference(size: tuple[int, int], epsilon: float, num_iters: int) -> None:
    logits = random_logits(0, *size)
    expected = afire.sinkhorn_knopp(logits.numpy(), epsilon, num_iters)
    found = sinkhorn_knopp(logits.requires_grad_(), epsilon, num_iters)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_rows_sum_to_one_and_clusters_are_used_evenly(seed: int) -> None:
    q = sinkhorn_knopp(random_logits(seed, 12, 4), 0.3, num_iters=200)
    torch.testing.assert_close(q.sum(1), torch.ones(12, dtype=torch.float64))
    torch.testing.assert_close(q.sum(0), torch.full((4,), 3.0, dtype=torch.float64))


def test_low_temperatures_do_not_overflow() -> None:
    q = sinkhorn_knopp(random_logits(3, 50, 8).float() * 1000, 0.04)
    torch.testing.assert_close(q.sum(1), torch.ones(50))


def test_half_precision_is_computed_in_float32() -> None:
    logits = random_logits(4, 20, 6).half()
    with torch.autocast("cpu", dtype=torch.float16):
        q = sinkhorn_knopp(logits, 0.04)
    expected = sinkhorn_knopp(logits.double(), 0.04).float()
    torch.testing.assert_close(q, expected, rtol=1e-4, atol=1e-6)


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ValueError, match="logits"):
        sinkhorn_knopp(torch.zeros(2, 3, 4))
