# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Similarities of two tokens' cluster distributions."""

from __future__ import annotations

import torch

from monai_afire.utils.precision import at_least_float32

SIMILARITIES = ("paper", "teacher_ce", "cosine")
EPSILON = 1e-8  # inside the logarithm


class TokenSimilarity:
    r"""
    Logarithm of f(q, c), the similarity of AFiRe's contrastive losses, as a product of two maps.

    ============  ==========================================  =====================
    name          log f(q, c) τ                                from
    ============  ==========================================  =====================
    "paper"       :math:`\sum_k q_k \log(c_k + \varepsilon)`   AFiRe, text at Eq. 12, sign corrected
    "teacher_ce"  :math:`\sum_k c_k \log(q_k + \varepsilon)`   DINO: the teacher's distribution weighs
    "cosine"      :math:`\sum_k q_k c_k`                       L2-normalized features (ablation)
    ============  ==========================================  =====================

    Since each is an inner product, all scores of all pairs are one matrix product.

    Args:
        temperature: τ > 0.
        name: "paper", "teacher_ce" or "cosine".

    Example:
        >>> similarity = TokenSimilarity(temperature=0.5, name="cosine")
        >>> similarity(torch.eye(2), torch.eye(2))
        tensor([[2., 0.],
                [0., 2.]])
    """

    def __init__(self, temperature: float = 1.0, name: str = "paper") -> None:
        if name not in SIMILARITIES:
            raise ValueError(f"similarity must be one of {SIMILARITIES}, got {name!r}")
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.temperature = temperature
        self.name = name

    def __call__(self, q: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        """Scores of every q with every c: ``(..., M, K)`` and ``(..., L, K)`` to ``(..., M, L)``."""
        q = at_least_float32(q)
        c = c.to(q.dtype)
        if self.name == "paper":
            c = (c + EPSILON).log()
        elif self.name == "teacher_ce":
            q = (q + EPSILON).log()
        return q @ (c / self.temperature).transpose(-2, -1)
