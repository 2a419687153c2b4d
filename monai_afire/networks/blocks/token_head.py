# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""AFiRe's head on tokens: scores for the clusters of each position."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from monai_afire.networks.blocks.transformer import init_linear


class PositionwiseLinear(nn.Module):
    r"""
    One weight-normalized linear layer (no bias, gain 1) per token position, as a single batched product.

    .. math:: y_{blk} = \frac{\langle x_{bl}, v_{lk} \rangle}{\lVert v_{lk} \rVert}

    The norm is divided out of the scores, not of the weight: normalizing the (L, K, D) weight in every step costs
    more than the product itself.

    Args:
        num_tokens: L, number of token positions.
        in_dim: D, width of the tokens.
        num_clusters: K, number of outputs per token.
    """

    def __init__(self, num_tokens: int, in_dim: int, num_clusters: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_tokens, num_clusters, in_dim))
        nn.init.trunc_normal_(self.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Score every token by its position's layer: ``(B, L, D)`` to ``(B, L, K)``."""
        scores = torch.bmm(x.transpose(0, 1), self.weight.transpose(1, 2))
        inverse_norm = torch.linalg.vector_norm(self.weight, dim=-1).clamp_min(1e-12).reciprocal()
        return (scores * inverse_norm.to(scores.dtype).unsqueeze(1)).transpose(0, 1)


class TokenProbabilityHead(nn.Module):
    r"""
    Scores of every token for the K clusters of its own position (AFiRe, "Token Probabilities Prediction").

    An MLP shared by all tokens (D -> hidden -> hidden, GELU between), L2 normalization, then one K-way layer per
    token position with rows of unit norm, so that the scores are cosines in [-1, 1]. The probabilities are
    softmax(logits / temperature) for the student and Sinkhorn-Knopp for the teacher.

    Args:
        in_dim: D, width of the encoder's tokens.
        num_tokens: L, number of token positions.
        num_clusters: K, 64 to 256 in the paper.
        hidden_dim: width of the MLP, 256 in the paper.

    Example:
        >>> head = TokenProbabilityHead(in_dim=16, num_tokens=4, num_clusters=8, hidden_dim=12)
        >>> logits = head(torch.rand(2, 4, 16))
        >>> logits.shape, bool(logits.abs().max() <= 1.0001)
        (torch.Size([2, 4, 8]), True)
    """

    def __init__(
        self, in_dim: int, num_tokens: int, num_clusters: int, hidden_dim: int = 256
    ) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(in_dim, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, hidden_dim)
        )
        self.mlp.apply(init_linear)
        self.last_layer = PositionwiseLinear(num_tokens, hidden_dim, num_clusters)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map tokens ``(B, L, D)`` to logits ``(B, L, K)``, cosines in [-1, 1]."""
        return self.last_layer(F.normalize(self.mlp(tokens), dim=-1))
