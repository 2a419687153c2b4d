# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Heads on embeddings: projections, and DINO's scores for prototypes."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from monai_afire.networks.blocks.transformer import init_linear


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
