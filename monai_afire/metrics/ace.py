# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of ACE's pre-training, from the outputs of :class:`monai_afire.networks.ACE`."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from monai_afire.losses.ace import grid_side
from monai_afire.metrics.pretraining import (
    PretrainingMetrics,
    correspondence_accuracy,
    prototype_information,
)
from monai_afire.transforms.grid_crop import matching_patches


def ace_metrics(outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """
    Metrics to validate ACE's pre-training by.

    Args:
        outputs: of the network for pairs of crops.

    Returns:
        Without those of parts that an ablation left out:

        * "composition_accuracy": share of the composed patches of the first crop, among those inside the second, that
          are nearest to the teacher's token of exactly this place, out of all L of the second crop,
        * "decomposition_accuracy": the same of the decomposed parts of the second crop among the first crop's tokens,
        * "chance": what guessing gives for both, 1/L,
        * "global_information": alarm for a collapse of the global consistency. The Jensen-Shannon divergence of the
          teacher's distributions as a share of the largest possible, log D; 0 when all crops share one distribution.

    Example:
        >>> offset = torch.zeros(1, 2, dtype=torch.int64)  # one image of 2 x 2 patches
        >>> logits = torch.tensor([[[5.0], [1.0], [1.0], [1.0]]])
        >>> metrics = ace_metrics({"offset_1": offset, "offset_2": offset, "composition_logits": logits})
        >>> metrics
        {'composition_accuracy': tensor(1.), 'chance': tensor(0.2500)}
    """
    metrics = {}
    for part in ("composition", "decomposition"):
        if f"{part}_logits" in outputs:
            accuracy = correspondence_accuracy(*ace_correspondence(outputs, part))
            metrics[f"{part}_accuracy"] = accuracy
            metrics["chance"] = torch.full_like(accuracy, 1 / outputs[f"{part}_logits"].shape[1])
    if "global_teacher" in outputs:
        distributions = outputs["global_teacher"].flatten(0, 1)
        metrics["global_information"] = prototype_information(distributions)
    return metrics


class ACEMetrics(PretrainingMetrics):
    """The values of :func:`ace_metrics` over a validation, see :class:`PretrainingMetrics`."""

    names = ("composition_accuracy", "decomposition_accuracy", "chance", "global_information")
    batch_metrics = staticmethod(ace_metrics)


@torch.no_grad()
def ace_correspondence(
    outputs: Mapping[str, torch.Tensor], part: str = "composition"
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    The place of each composed (or decomposed) patch of the student among the teacher's patches of the other crop.

    Args:
        outputs: of the network.
        part: "composition": M = L/4 blocks of the first crop among the L patches of the second; "decomposition":
            M = 4 L parts of the second crop's patches among the L patches of the first.

    Returns:
        nearest: ``(B, M)`` int64, the most similar patch.
        matches: ``(B, M)`` int64, the patch that shows exactly the same place, -1 where there is none.
    """
    logits, offset_1, offset_2 = outputs[f"{part}_logits"], outputs["offset_1"], outputs["offset_2"]
    cells = grid_side(logits.shape[1])
    if part == "composition":
        matches = matching_patches(offset_1, offset_2, (cells, 2 * cells), (2, 2))
    else:
        matches = matching_patches(offset_2, offset_1, (2 * cells, cells), (1, 1))
    return logits.argmax(1), matches
