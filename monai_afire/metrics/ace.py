# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Is ACE's pre-training learning something? Figures to watch, from the outputs of :class:`monai_afire.networks.ACE`."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from monai_afire.losses.ace import patches_per_axis
from monai_afire.metrics.pretraining import prototype_information
from monai_afire.transforms.grid_crop.correspondence import matching_patches

__all__ = ["ace_metrics", "matching_accuracy"]


def ace_metrics(outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """
    The figures to validate ACE's pre-training by.

    Args:
        outputs: of the network for pairs of crops.

    Returns:
        NaN where an ablation left out what they need, else

        * "composition_accuracy": share of the composed patches of the first crop, among those inside the second, that
          are nearest to the teacher's token of exactly this place, out of all L of the second crop,
        * "decomposition_accuracy": the same of the decomposed parts of the second crop among the first crop's tokens,
        * "chance": what guessing gives for both, 1/L,
        * "global_information": alarm for a collapse of the global consistency. The Jensen-Shannon divergence of the
          teacher's distributions as a share of the largest possible, log D; 0 when all crops share one distribution.

    Example:
        >>> offset = torch.zeros(1, 1, dtype=torch.int64)  # one image with one spatial axis of two patches
        >>> logits = torch.tensor([[[5.0], [1.0]]])
        >>> metrics = ace_metrics({"offset_1": offset, "offset_2": offset, "composition_logits": logits})
        >>> metrics["composition_accuracy"], metrics["chance"], metrics["decomposition_accuracy"]
        (tensor(1.), tensor(0.5000), tensor(nan))
    """
    offset_1, offset_2 = outputs["offset_1"], outputs["offset_2"]
    undefined = torch.tensor(float("nan"), device=offset_1.device)
    names = ("composition_accuracy", "decomposition_accuracy", "chance", "global_information")
    metrics = dict.fromkeys(names, undefined)
    for name in ("composition", "decomposition"):
        if f"{name}_logits" not in outputs:
            continue
        logits = outputs[f"{name}_logits"]
        cells = patches_per_axis(logits.shape[1], offset_1.shape[1])
        if name == "composition":
            matches = matching_patches(offset_1, offset_2, (cells, 2 * cells), (2, 2))
        else:
            matches = matching_patches(offset_2, offset_1, (2 * cells, cells), (1, 1))
        metrics[f"{name}_accuracy"] = matching_accuracy(logits, matches)
        metrics["chance"] = torch.full_like(undefined, 1 / logits.shape[1])
    if "global_teacher" in outputs:
        metrics["global_information"] = prototype_information(outputs["global_teacher"].flatten(0, 1))
    return metrics


@torch.no_grad()
def matching_accuracy(logits: torch.Tensor, matches: torch.Tensor) -> torch.Tensor:
    """
    Share of the student's patches whose most similar one of the teacher's shows the same place; chance is 1/N.

    Args:
        logits: ``(B, N, M)`` of the teacher's N and the student's M patches.
        matches: ``(B, M)`` int64, the teacher's patch that shows what each of the student's does, negative where there
            is none (:func:`monai_afire.transforms.matching_patches`).

    Returns:
        Scalar in [0, 1]; 0 when no patch has a match.

    Raises:
        ValueError: when the shapes do not fit.

    Example:
        >>> logits = torch.tensor([[[3.0, 1.0, 0.0], [2.0, 4.0, 9.0]]])
        >>> matching_accuracy(logits, torch.tensor([[0, 0, -1]]))
        tensor(0.5000)
    """
    if logits.ndim != 3 or matches.shape != logits.shape[::2]:
        raise ValueError(
            f"expected logits (B, N, M) and matches (B, M), got {tuple(logits.shape)} and {tuple(matches.shape)}"
        )
    right = logits.argmax(1) == matches
    return right.sum() / (matches >= 0).sum().clamp_min(1)
