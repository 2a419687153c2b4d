# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of AFiRe's pre-training, from the outputs of :class:`monai_afire.networks.AFiRe`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from monai_afire.losses.token_similarity import TokenSimilarity
from monai_afire.metrics.pretraining import PretrainingMetrics, restoration_gain


def afire_metrics(
    outputs: Mapping[str, torch.Tensor], similarity: str = "paper"
) -> dict[str, torch.Tensor]:
    """
    Metrics to validate AFiRe's pre-training by.

    Args:
        outputs: of the network in evaluation mode.
        similarity: of the contrastive losses.

    Returns:
        "restoration_gain" and "position_accuracy", without those of parts that an ablation left out.
    """
    metrics = {}
    abnormal = outputs["abnormal"]
    if "restored" in outputs:
        patches = outputs["restored"], outputs["target"], outputs["corrupted"]
        metrics["restoration_gain"] = restoration_gain(*patches, abnormal)
    if "q" in outputs:
        prototypes = outputs["prototypes"]
        # of each image: for all variants
        prototypes = prototypes.unsqueeze(1) if prototypes.ndim == 3 else prototypes
        metrics["position_accuracy"] = position_accuracy(
            outputs["q"], prototypes, ~abnormal, similarity
        )
    return metrics


class AFiReMetrics(PretrainingMetrics):
    """
    The values of :func:`afire_metrics` over a validation, see :class:`PretrainingMetrics`.

    Args:
        similarity: of the contrastive losses.
        device: of the sums.
    """

    names: ClassVar[tuple[str, ...]] = ("restoration_gain", "position_accuracy")

    def __init__(self, similarity: str = "paper", device: str | torch.device = "cpu") -> None:
        self.similarity = similarity
        super().__init__(device)

    def batch_metrics(self, outputs: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Those of a batch."""
        return afire_metrics(outputs, self.similarity)


@torch.no_grad()
def position_accuracy(
    q: torch.Tensor, prototypes: torch.Tensor, normal: torch.Tensor, similarity: str = "paper"
) -> torch.Tensor:
    """
    Share of normal tokens that are nearest to the prototype of their own position; chance is 1/L.

    Args:
        q: token probabilities ``(..., L, K)``.
        prototypes: ``(L, K)``, or more axes that broadcast to those of q.
        normal: ``(..., L)`` bool, the tokens that count.
        similarity: as in :class:`monai_afire.losses.StructureConsistencyLoss`.

    Returns:
        Scalar in [0, 1]; 0 when no token counts.

    Example:
        >>> prototypes = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
        >>> position_accuracy(prototypes[None], prototypes, torch.ones(1, 2, dtype=torch.bool))
        tensor(1.)
    """
    nearest = TokenSimilarity(1.0, similarity)(q, prototypes).argmax(-1)
    right = (nearest == torch.arange(q.shape[-2], device=q.device)) & normal
    return right.sum() / normal.sum().clamp_min(1)
