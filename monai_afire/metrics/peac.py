# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of PEAC's pre-training, from the outputs of :class:`monai_afire.networks.PEAC`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F

from monai_afire.metrics.pretraining import (
    PretrainingMetrics,
    correspondence_accuracy,
    embedding_spread,
    restoration_gain,
)
from monai_afire.utils.precision import at_least_float32


def peac_metrics(outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """
    Metrics to validate PEAC's pre-training by.

    Args:
        outputs: of the network in evaluation mode.

    Returns:
        Scalars, without those of parts that are switched off, and NaN where the batch has no such sample:

        * "order_accuracy" of the samples that were shuffled, see :func:`order_accuracy`,
        * "restoration_gain" of those that were not, see :func:`monai_afire.metrics.restoration_gain`,
        * "correspondence_accuracy" of undistorted patches, see
          :func:`monai_afire.metrics.correspondence_accuracy`,
        * "global_spread" of the student's embeddings of second crops and "local_spread" of the teacher's of patches,
          see :func:`monai_afire.metrics.embedding_spread`. (The teacher's embeddings of whole crops may be centered,
          which spreads them however little they differ.)
    """
    shuffled = outputs["shuffled"]
    metrics = {}
    if "order_logits" in outputs:
        metrics["order_accuracy"] = order_accuracy(
            outputs["order_logits"], outputs["order"], shuffled
        )
    if "restored" in outputs:
        restored, target, corrupted = outputs["restored"], outputs["target"], outputs["corrupted"]
        in_order = (~shuffled).unsqueeze(1).expand(restored.shape[:2])
        damage = ((corrupted - target).square().flatten(1).sum(1) * ~shuffled).sum()
        gain = restoration_gain(restored, target, corrupted, in_order)
        metrics["restoration_gain"] = torch.where(damage > 0, gain, torch.nan)
    if "local_2" in outputs:
        metrics["correspondence_accuracy"] = correspondence_accuracy(*peac_correspondence(outputs))
        metrics["local_spread"] = embedding_spread(outputs["teacher_local_1"].flatten(0, 1))
    if "global_2" in outputs:
        metrics["global_spread"] = embedding_spread(outputs["global_2"])
    return metrics


class PEACMetrics(PretrainingMetrics):
    """The values of :func:`peac_metrics` over a validation, see :class:`PretrainingMetrics`."""

    names = (
        "order_accuracy",
        "restoration_gain",
        "correspondence_accuracy",
        "global_spread",
        "local_spread",
    )
    batch_metrics = staticmethod(peac_metrics)


@torch.no_grad()
def order_accuracy(
    logits: torch.Tensor, order: torch.Tensor, shuffled: torch.Tensor
) -> torch.Tensor:
    """
    Share of patches whose original place the classifier names; chance is 1/N.

    Args:
        logits: ``(B, L, N)``.
        order: ``(B, L)`` int64, the original place of each patch.
        shuffled: ``(B,)`` bool, the samples that count: in the others a patch's place gives its order away.

    Returns:
        Scalar in [0, 1]; NaN when no sample counts.
    """
    right = (logits.argmax(-1) == order).float().mean(1)
    return torch.where(shuffled, right, 0.0).sum() / shuffled.sum()


@torch.no_grad()
def peac_correspondence(outputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """
    For each patch of the second crop, which the student sees undistorted, its place in the first.

    Args:
        outputs: of the network.

    Returns:
        nearest: ``(B, L)`` int64, the first crop's patch whose local embedding (the teacher's) is nearest by cosine.
        matches: ``(B, L)`` int64, the first crop's patch that shows the same place, -1 where there is none.
    """
    # the student's length does not change which is nearest
    teacher = F.normalize(at_least_float32(outputs["teacher_local_1"]), dim=-1)
    nearest = (at_least_float32(outputs["local_2"]) @ teacher.transpose(1, 2)).argmax(-1)
    return nearest, outputs["matches_2"]
