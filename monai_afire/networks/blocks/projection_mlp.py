# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Multi-layer perceptron from encoder features to the embeddings that a loss compares."""

from __future__ import annotations

import itertools

import torch
from torch import nn

__all__ = ["ProjectionMLP"]


class ProjectionMLP(nn.Module):
    """
    Linear layers with GELU between them, the same for every vector: an expander or projector.

    There is no batch statistic, so that an embedding depends on its own image alone and a moving average of the
    weights is the whole state of a teacher's copy.

    Args:
        in_dim: width of the features.
        hidden_dim: width between the layers.
        out_dim: width of the embeddings.
        num_layers: number of linear layers, at least 1.

    Raises:
        ValueError: when there is no layer.

    Example:
        >>> ProjectionMLP(in_dim=24, hidden_dim=64, out_dim=16, num_layers=3)(torch.rand(2, 9, 24)).shape
        torch.Size([2, 9, 16])
    """

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, num_layers: int = 3) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"a projection needs at least 1 layer, got num_layers={num_layers}")
        widths = [in_dim, *[hidden_dim] * (num_layers - 1), out_dim]
        layers: list[nn.Module] = []
        for width, next_width in itertools.pairwise(widths):
            linear = nn.Linear(width, next_width)
            nn.init.trunc_normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)
            layers += [linear, nn.GELU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """
        Embed features.

        Args:
            features: ``(..., in_dim)``.

        Returns:
            ``(..., out_dim)``, not normalised.
        """
        return self.layers(features)
