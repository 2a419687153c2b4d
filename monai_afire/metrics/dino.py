# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of DINO's pre-training, from the outputs of :class:`monai_afire.networks.DINO`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F

from monai_afire.metrics.pretraining import (
    PretrainingMetrics,
    embedding_spread,
    prototype_entropy,
    prototype_information,
)


@torch.no_grad()
def crop_accuracy(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    r"""
    Share of the student's crops that are recognized: whose own image has the teacher's most similar distribution.

    Each crop v of the student is compared with the teacher's crop g != v of every image of the batch, by the cosine of

    .. math:: d = \ell - \operatorname{mean}_b \ell, \qquad \ell = \log P - \operatorname{mean}_k \log P

    which is what makes this image's scores differ from those of others: neither the temperatures nor what all images
    have in common count. Chance is 1/B; a collapsed network is at chance.

    Args:
        student: logarithms of the student's probabilities, ``(B, V, K)``, the teacher's crops first.
        teacher: the teacher's probabilities, ``(B, G, K)``.

    Returns:
        Scalar in [0, 1], over all pairs (v, g).

    Example:
        >>> teacher = torch.eye(3).unsqueeze(1).repeat(1, 2, 1)
        >>> crop_accuracy((teacher * 5).log_softmax(-1), teacher)
        tensor(1.)
    """
    images, crops, seen = student.shape[0], student.shape[1], teacher.shape[1]
    teacher = teacher.to(student.dtype)
    own_scores = _deviations(student)
    known_scores = _deviations(teacher.clamp_min(torch.finfo(teacher.dtype).tiny).log())
    own = torch.arange(images, device=student.device).unsqueeze(1)
    right = torch.zeros((), device=student.device)
    for place in range(seen):
        others = [crop for crop in range(crops) if crop != place]
        similarity = own_scores[:, others] @ known_scores[:, place].T
        right += (similarity.argmax(-1) == own).sum()
    return right / (images * seen * (crops - 1))


def dino_metrics(outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """
    Metrics to validate DINO's pre-training by.

    Args:
        outputs: of the network in evaluation mode for the crops of B images, B > 1.

    Returns:
        * "crop_accuracy", see :func:`crop_accuracy`,
        * "chance": what guessing gives for it, 1/B,
        * "teacher_information": alarm for a collapse. The Jensen-Shannon divergence of the teacher's distributions as a
          share of log K; 0 when all crops share one distribution, be it uniform or a single prototype, and at most
          log(G B) / log K,
        * "teacher_entropy": mean entropy of the teacher's distributions as a share of log K: 0 a single prototype
          each, 1 uniform,
        * "feature_spread": alarm for a collapse of the encoder itself, the spread of the mean tokens
          (:func:`monai_afire.metrics.embedding_spread`).
    """
    student, teacher = outputs["student"], outputs["teacher"]
    distributions = teacher.flatten(0, 1)
    return {
        "crop_accuracy": crop_accuracy(student, teacher),
        "chance": torch.full((), 1 / teacher.shape[0]),
        "teacher_information": prototype_information(distributions),
        "teacher_entropy": prototype_entropy(distributions),
        "feature_spread": embedding_spread(outputs["teacher_tokens"].mean(2).flatten(0, 1)),
    }


class DINOMetrics(PretrainingMetrics):
    """The values of :func:`dino_metrics` over a validation, see :class:`PretrainingMetrics`."""

    names = ("crop_accuracy", "chance", "teacher_information", "teacher_entropy", "feature_spread")
    batch_metrics = staticmethod(dino_metrics)


def _deviations(logarithms: torch.Tensor) -> torch.Tensor:
    """Of (B, crops, K) from the mean over the images, with unit norm; 0 where there is none."""
    scores = logarithms - logarithms.mean(-1, keepdim=True)
    return F.normalize(scores - scores.mean(0), dim=-1, eps=1e-6)
