# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Is pre-training learning something? Figures to watch, from the outputs of :class:`monai_afire.networks.AFiRe`."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from monai_afire.losses.token_similarity import TokenSimilarity

__all__ = ["afire_metrics", "position_accuracy", "prototype_entropy", "prototype_information", "restoration_gain"]


def afire_metrics(outputs: Mapping[str, torch.Tensor], similarity: str = "paper") -> dict[str, torch.Tensor]:
    """
    The figures to validate AFiRe's pre-training by.

    Args:
        outputs: of the network in evaluation mode.
        similarity: of the contrastive losses.

    Returns:
        "restoration_gain" and "position_accuracy", NaN where an ablation left out what they need.

    Example:
        >>> afire_metrics({"abnormal": torch.zeros(1, 1, 4, dtype=torch.bool)})["position_accuracy"]
        tensor(nan)
    """
    undefined = torch.tensor(float("nan"))
    gain, accuracy = undefined, undefined
    abnormal = outputs["abnormal"]
    if "restored" in outputs:
        gain = restoration_gain(outputs["restored"], outputs["target"], outputs["corrupted"], abnormal)
    if "q" in outputs:
        prototypes = outputs["prototypes"]
        prototypes = prototypes.unsqueeze(1) if prototypes.ndim == 3 else prototypes  # of each image: for all variants
        accuracy = position_accuracy(outputs["q"], prototypes, ~abnormal, similarity)
    return {"restoration_gain": gain, "position_accuracy": accuracy}


@torch.no_grad()
def restoration_gain(
    restored: torch.Tensor, target: torch.Tensor, corrupted: torch.Tensor, abnormal: torch.Tensor
) -> torch.Tensor:
    r"""
    How much of a lesion's damage the decoder repairs, on abnormal patches only.

    .. math:: 1 - \frac{\sum_{\text{abnormal}} \lVert y_j - x_j \rVert^2}
        {\sum_{\text{abnormal}} \lVert x'_j - x_j \rVert^2}

    1 is a perfect restoration, 0 no better than copying the input, negative worse than that.

    Args:
        restored: ``(..., L, P)`` restored patches y.
        target: ``(..., L, P)`` patches x of the normal image.
        corrupted: ``(..., L, P)`` patches x' of the image with lesions, in the same intensity.
        abnormal: ``(..., L)`` bool, the patches that count.

    Returns:
        Scalar; 0 when no patch counts.

    Example:
        >>> target, corrupted = torch.zeros(1, 2, 4), torch.ones(1, 2, 4)
        >>> restoration_gain(corrupted / 2, target, corrupted, torch.tensor([[True, False]]))
        tensor(0.7500)
    """
    weight = abnormal.unsqueeze(-1).to(target.dtype)
    error = ((restored.to(target.dtype) - target).square() * weight).sum()
    damage = ((corrupted.to(target.dtype) - target).square() * weight).sum()
    return torch.where(damage > 0, 1 - error / damage.clamp_min(torch.finfo(damage.dtype).tiny), 0.0)


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


@torch.no_grad()
def prototype_entropy(prototypes: torch.Tensor) -> torch.Tensor:
    """
    Mean entropy of the prototypes as a share of the largest possible, log K.

    1 means that every prototype is uniform and says nothing, 0 that each is a single cluster.

    Args:
        prototypes: ``(L, K)`` probability vectors.

    Returns:
        Scalar in [0, 1]; NaN for prototypes of features, which are no probabilities.

    Example:
        >>> round(float(prototype_entropy(torch.full((3, 8), 1 / 8))), 4)
        1.0
    """
    return _entropy(prototypes).mean() / _largest_entropy(prototypes)


@torch.no_grad()
def prototype_information(prototypes: torch.Tensor) -> torch.Tensor:
    """
    Alarm for a collapse: what the cluster tells about the position.

    The Jensen-Shannon divergence of the prototypes as a share of the largest possible, log K.

    0 when all positions share one prototype, be it uniform or a single cluster: training has collapsed.

    Args:
        prototypes: ``(L, K)`` probability vectors.

    Returns:
        Scalar in [0, 1].

    Example:
        >>> float(prototype_information(torch.eye(4))), float(prototype_information(torch.full((4, 4), 0.25)))
        (1.0, 0.0)
    """
    information = _entropy(prototypes.mean(0)) - _entropy(prototypes).mean()
    return (information / _largest_entropy(prototypes)).clamp_min(0)


def _entropy(probabilities: torch.Tensor) -> torch.Tensor:
    entropy = torch.special.entr(probabilities).sum(-1)
    return torch.where(entropy.isfinite(), entropy, torch.nan)  # negative numbers are no probabilities


def _largest_entropy(probabilities: torch.Tensor) -> torch.Tensor:
    return torch.tensor(float(probabilities.shape[-1]), device=probabilities.device).log()
