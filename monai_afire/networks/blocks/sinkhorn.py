# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Sinkhorn-Knopp: balanced cluster assignment of tokens."""

from __future__ import annotations

import torch

from monai_afire.utils.distributed import all_reduce, all_reduce_max, world_size
from monai_afire.utils.precision import at_least_float32, without_autocast


@torch.no_grad()
def sinkhorn_knopp(
    logits: torch.Tensor, epsilon: float | torch.Tensor = 0.05, num_iters: int = 3
) -> torch.Tensor:
    r"""
    Turn scores into assignments that use every cluster equally (Cuturi 2013; as in SwAV and DINO).

    Starting from :math:`Q = \exp(\text{logits} / \varepsilon)`, each iteration scales the columns (clusters) to the
    sum 1/K and then the rows (samples) to the sum 1/M; the result is :math:`M Q`. All in the log domain, so that no
    temperature overflows. In a process group the columns are summed over the samples of all ranks.

    Args:
        logits: ``(M, K)`` scores of M samples for K clusters, any float type.
        epsilon: temperature, > 0; smaller is sharper. A tensor is allowed, so that a schedule needs no host copy.
        num_iters: number of iterations, >= 1.

    Returns:
        ``(M, K)`` in float32 (float64 for float64 input); every row sums to 1. Without gradient.

    Example:
        >>> sinkhorn_knopp(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), epsilon=1.0)
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """
    if logits.ndim != 2:
        raise ValueError(f"logits must be (M, K), got {tuple(logits.shape)}")
    with without_autocast(logits):
        log_q = at_least_float32(logits) / epsilon
        for _ in range(num_iters):
            log_q = log_q - _logsumexp_over_samples(log_q)
            log_q = torch.log_softmax(log_q, dim=1)
        return log_q.exp_()


def _logsumexp_over_samples(log_q: torch.Tensor) -> torch.Tensor:
    """``(M, K) -> (1, K)``, over the samples of all ranks."""
    if world_size() == 1:
        return torch.logsumexp(log_q, dim=0, keepdim=True)
    peak = all_reduce_max(log_q.amax(dim=0, keepdim=True))
    return all_reduce((log_q - peak).exp_().sum(dim=0, keepdim=True)).log_().add_(peak)
