# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Is PEAC learning something? Figures to watch, from the outputs of :class:`monai_afire.networks.PEAC`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from ignite.exceptions import NotComputableError
from ignite.metrics import Average

from monai_afire.metrics.pretraining import restoration_gain
from monai_afire.utils.precision import at_least_float32

__all__ = ["DefinedAverage", "correspondence_accuracy", "embedding_spread", "order_accuracy", "peac_metrics"]


def peac_metrics(outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """
    The figures to validate PEAC's pre-training by.

    Args:
        outputs: of the network in evaluation mode.

    Returns:
        Scalars, NaN where the batch has no such sample or a part of the network is switched off
        (:class:`DefinedAverage` leaves those batches out):

        * "order_accuracy" of the samples that were shuffled, see :func:`order_accuracy`,
        * "restoration_gain" of those that were not, see :func:`monai_afire.metrics.restoration_gain`,
        * "correspondence_accuracy" of the patches, undistorted, see :func:`correspondence_accuracy`,
        * "global_spread" and "local_spread" of the teacher's embeddings, see :func:`embedding_spread`.

    Example:
        >>> order, logits = torch.arange(4)[None], torch.eye(4)[None]
        >>> figures = peac_metrics({"order": order, "order_logits": logits, "shuffled": torch.tensor([True])})
        >>> figures["order_accuracy"], figures["restoration_gain"]
        (tensor(1.), tensor(nan))
    """
    shuffled = outputs["shuffled"]
    undefined = torch.tensor(float("nan"), device=shuffled.device)
    names = ("order_accuracy", "restoration_gain", "correspondence_accuracy", "global_spread", "local_spread")
    figures = dict.fromkeys(names, undefined)
    if "order_logits" in outputs:
        figures["order_accuracy"] = order_accuracy(outputs["order_logits"], outputs["order"], shuffled)
    if "restored" in outputs:
        restored, target, corrupted = outputs["restored"], outputs["target"], outputs["corrupted"]
        in_order = (~shuffled).unsqueeze(1).expand(restored.shape[:2])
        damage = ((corrupted - target).square().flatten(1).sum(1) * ~shuffled).sum()
        gain = restoration_gain(restored, target, corrupted, in_order)
        figures["restoration_gain"] = torch.where(damage > 0, gain, undefined)
    if "local_2" in outputs:
        student, teacher, matches = outputs["local_2"], outputs["teacher_local_1"], outputs["matches_2"]
        figures["correspondence_accuracy"] = correspondence_accuracy(student, teacher, matches)
        figures["local_spread"] = embedding_spread(teacher.flatten(0, 1))
    if "teacher_global_1" in outputs:
        figures["global_spread"] = embedding_spread(outputs["teacher_global_1"])
    return figures


@torch.no_grad()
def order_accuracy(logits: torch.Tensor, order: torch.Tensor, shuffled: torch.Tensor) -> torch.Tensor:
    """
    Share of patches whose original place the classifier names; chance is 1/N.

    Args:
        logits: ``(B, L, N)``.
        order: ``(B, L)`` int64, the original place of each patch.
        shuffled: ``(B,)`` bool, the samples that count: in the others a patch's place gives its order away.

    Returns:
        Scalar in [0, 1]; NaN when no sample counts.

    Example:
        >>> logits = torch.eye(4).repeat(2, 1, 1)
        >>> order = torch.tensor([[0, 1, 3, 2], [0, 1, 2, 3]])
        >>> order_accuracy(logits, order, torch.tensor([True, False]))
        tensor(0.5000)
    """
    right = (logits.argmax(-1) == order).float().mean(1)
    return torch.where(shuffled, right, 0.0).sum() / shuffled.sum()


@torch.no_grad()
def correspondence_accuracy(student: torch.Tensor, teacher: torch.Tensor, matches: torch.Tensor) -> torch.Tensor:
    """
    Share of patches whose nearest patch in the other crop, by cosine, is the one that shows the same place.

    Unlike the local consistency loss, this does not rise when all embeddings become the same; chance is 1/M.

    Args:
        student: embeddings ``(B, L, H)`` of one crop's patches.
        teacher: embeddings ``(B, M, H)`` of the other crop's patches.
        matches: ``(B, L)`` int64, the patch in [0, M) that shows the same place, negative where there is none.

    Returns:
        Scalar in [0, 1]; NaN when nothing matches.

    Example:
        >>> correspondence_accuracy(torch.eye(3)[None], torch.eye(3)[None], torch.tensor([[0, 1, -1]]))
        tensor(1.)
    """
    teacher = F.normalize(at_least_float32(teacher), dim=-1)  # the student's length does not change which is nearest
    nearest = (at_least_float32(student) @ teacher.transpose(1, 2)).argmax(-1)
    matched = matches >= 0
    return ((nearest == matches) & matched).sum() / matched.sum()


@torch.no_grad()
def embedding_spread(embeddings: torch.Tensor) -> torch.Tensor:
    r"""
    Alarm for a collapse: how far the directions of the embeddings lie apart.

    .. math:: 1 - \left\lVert \frac{1}{M} \sum_{i=1}^{M} \frac{y_i}{\lVert y_i \rVert_2} \right\rVert_2^2

    which is the mean of 1 - cos over all M² pairs.

    Args:
        embeddings: ``(M, H)``.

    Returns:
        Scalar in [0, 1]; 0 when all have one direction, NaN for fewer than two embeddings.

    Example:
        >>> embedding_spread(torch.eye(4)), embedding_spread(torch.ones(4, 4))
        (tensor(0.7500), tensor(0.))
    """
    spread = 1 - F.normalize(at_least_float32(embeddings), dim=-1).mean(0).square().sum()
    return spread.clamp_min(0) if len(embeddings) > 1 else torch.full_like(spread, torch.nan)


class DefinedAverage(Average):
    """
    ignite's ``Average`` of a scalar per batch, over those batches where it is not NaN; NaN if there is none.

    Example:
        >>> average = DefinedAverage()
        >>> for value in (1.0, float("nan"), 2.0):
        ...     average.update(value)
        >>> float(average.compute())
        1.5
    """

    def update(self, output: float | torch.Tensor) -> None:
        """Take in a batch's scalar."""
        if not torch.isnan(torch.as_tensor(output)):
            super().update(output)

    def compute(self) -> float | torch.Tensor:
        """Average the batches so far."""
        try:
            return super().compute()
        except NotComputableError:
            return float("nan")
