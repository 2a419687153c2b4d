# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Projection head of DINO: an image's embedding to scores for prototypes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from monai_afire.networks.blocks.projection_mlp import ProjectionMLP

__all__ = ["DistillationHead"]


class DistillationHead(nn.Module):
    r"""
    Scores of an embedding for K prototypes (DINO, Sec. 3.1 and appendix C).

    An MLP of three layers with a narrow end (D -> hidden -> hidden -> bottleneck, GELU between), L2 normalisation and a
    weight-normalised linear layer without bias. There is no batch statistic, as in the paper's transformers.

    .. math:: y_k = g_k \frac{\langle z, v_k \rangle}{\lVert z \rVert \lVert v_k \rVert}

    Args:
        in_dim: D, width of the embedding.
        num_prototypes: K, 65536 in the paper.
        hidden_dim: width of the MLP, 2048 in the paper.
        bottleneck_dim: width of z, 256 in the paper.
        norm_last_layer: True keeps the gains g at 1, so that the scores are cosines; False trains them.
        num_layers: linear layers of the MLP.

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
        num_layers: int = 3,
    ) -> None:
        super().__init__()
        self.mlp = ProjectionMLP(in_dim, hidden_dim, bottleneck_dim, num_layers)
        self.last_layer = weight_norm(nn.Linear(bottleneck_dim, num_prototypes, bias=False))
        gain = self.last_layer.parametrizations.weight.original0
        nn.init.ones_(gain)
        gain.requires_grad_(not norm_last_layer)

    def forward(self, embeddings: torch.Tensor) -> torch.Tensor:
        """
        Score embeddings.

        Args:
            embeddings: ``(..., D)``.

        Returns:
            ``(..., K)``, cosines in [-1, 1] if the last layer is normalised.
        """
        return self.last_layer(F.normalize(self.mlp(embeddings), dim=-1, eps=1e-6))
