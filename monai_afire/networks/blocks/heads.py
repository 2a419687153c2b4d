# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Heads on tokens and embeddings: projections, DINO's prototypes, AFiRe's token probabilities."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


def init_linear(module: nn.Module) -> None:
    """Give a linear layer weights of standard deviation 0.02 and biases of 0; other modules stay as they are."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _linear(in_dim: int, out_dim: int) -> nn.Linear:
    """A linear layer that starts as those of vision transformers do."""
    linear = nn.Linear(in_dim, out_dim)
    init_linear(linear)
    return linear


class ProjectionMLP(nn.Module):
    """
    Linear layers with GELU between them, the same for every vector: an expander or projector.

    By default there is no batch statistic, so that an embedding depends on its own image alone.

    Args:
        in_dim: width of the features.
        hidden_dim: width between the layers.
        out_dim: width of the embeddings.
        num_layers: number of linear layers, at least 1.
        batch_norm: normalize over the vectors of a batch before each GELU. It then takes ``(N, in_dim)`` alone.
    """

    def __init__(
        self,
        in_dim: int,
        hidden_dim: int,
        out_dim: int,
        num_layers: int = 3,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        widths = [in_dim, *[hidden_dim] * (num_layers - 1), out_dim]
        layers: list[nn.Module] = []
        for width, next_width in itertools.pairwise(widths[:-1]):
            layers.append(_linear(width, next_width))
            if batch_norm:
                layers.append(nn.BatchNorm1d(next_width))
            layers.append(nn.GELU())
        self.layers = nn.Sequential(*layers, _linear(widths[-2], out_dim))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Embed features ``(..., in_dim)``: ``(..., out_dim)``, not normalized."""
        return self.layers(features)


class DistillationHead(nn.Module):
    r"""
    Scores of an embedding for K prototypes (DINO, Sec. 3.1 and appendix C).

    An MLP of three layers with a narrow end (D -> hidden -> hidden -> bottleneck, GELU between), L2 normalization and a
    weight-normalized linear layer without bias. By default there is no batch statistic, as in the paper's transformers.

    .. math:: y_k = g_k \frac{\langle z, v_k \rangle}{\lVert z \rVert \lVert v_k \rVert}

    Embeddings of radiographs are nearly alike in the first steps. Without batch normalization, what they have in common
    then fills the direction of z, and the teacher's distributions become uniform.

    Args:
        in_dim: D, width of the embedding.
        num_prototypes: K, 65536 in the paper.
        hidden_dim: width of the MLP, 2048 in the paper.
        bottleneck_dim: width of z, 256 in the paper.
        norm_last_layer: True keeps the gains g at 1, so that the scores are cosines; False trains them.
        batch_norm: normalize the hidden layers of the MLP over all embeddings of a batch.

    Example:
        >>> head = DistillationHead(in_dim=24, num_prototypes=32, hidden_dim=16, bottleneck_dim=8)
        >>> scores = head(torch.rand(2, 5, 24))
        >>> scores.shape, bool(scores.abs().max() <= 1.0001)
        (torch.Size([2, 5, 32]), True)
    """

    def __init__(
        self,
        in_dim: int,
        num_prototypes: int = 65536,
        hidden_dim: int = 2048,
        bottleneck_dim: int = 256,
        norm_last_layer: bool = True,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        self.mlp = ProjectionMLP(in_dim, hidden_dim, bottleneck_dim, 3, batch_norm)
        self.last_layer = weight_norm(nn.Linear(bottleneck_dim, num_prototypes, bias=False))
        gain = self.last_layer.parametrizations.weight.original0
        nn.init.ones_(gain)
        gain.requires_grad_(not norm_last_layer)

    def forward(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Score embeddings ``(..., D)``: ``(..., K)``, cosines in [-1, 1] if the last layer is normalized."""
        *batch, width = embeddings.shape
        bottleneck = self.mlp(embeddings.reshape(-1, width))
        scores = self.last_layer(F.normalize(bottleneck, dim=-1, eps=1e-6))
        return scores.reshape(*batch, scores.shape[-1])


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
