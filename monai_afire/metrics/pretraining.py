# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of pre-training that several methods share: accuracy of pretext tasks, alarms for a collapse."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from ignite.engine import Engine
from ignite.exceptions import NotComputableError
from ignite.metrics import Average, Metric
from monai.utils import CommonKeys

from monai_afire.utils.precision import at_least_float32


@torch.no_grad()
def restoration_gain(
    restored: torch.Tensor, target: torch.Tensor, corrupted: torch.Tensor, abnormal: torch.Tensor
) -> torch.Tensor:
    r"""
    Share of the lesions' damage that the decoder repairs, on abnormal patches only.

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
    """
    weight = abnormal.unsqueeze(-1).to(target.dtype)
    error = ((restored.to(target.dtype) - target).square() * weight).sum()
    damage = ((corrupted.to(target.dtype) - target).square() * weight).sum()
    return torch.where(damage > 0, 1 - error / damage.where(damage > 0, 1), 0.0)


@torch.no_grad()
def correspondence_accuracy(nearest: torch.Tensor, matches: torch.Tensor) -> torch.Tensor:
    """
    Share of patches whose nearest patch in the other crop is the one that shows the same place.

    Unlike a consistency loss, this does not rise when all embeddings become the same; chance is 1/M for M patches.

    Args:
        nearest: ``(B, L)`` int64, the nearest patch in the other crop.
        matches: ``(B, L)`` int64, the patch that shows the same place, negative where there is none.

    Returns:
        Scalar in [0, 1]; NaN when nothing matches.
    """
    matched = matches >= 0
    return ((nearest == matches) & matched).sum() / matched.sum()


@torch.no_grad()
def prototype_entropy(prototypes: torch.Tensor) -> torch.Tensor:
    """
    Mean entropy of the prototypes ``(L, K)`` as a share of the largest possible, log K.

    1 means that every prototype is uniform and says nothing, 0 that each is a single cluster; NaN for prototypes of
    features, which are no probabilities.
    """
    return _entropy(prototypes).mean() / _largest_entropy(prototypes)


@torch.no_grad()
def prototype_information(prototypes: torch.Tensor) -> torch.Tensor:
    """
    Alarm for a collapse: how well the cluster predicts the position.

    The Jensen-Shannon divergence of the prototypes ``(L, K)`` as a share of the largest possible, log K. 0 when all
    positions share one prototype, be it uniform or a single cluster: training has collapsed.

    Example:
        >>> float(prototype_information(torch.eye(4))), float(prototype_information(torch.full((4, 4), 0.25)))
        (1.0, 0.0)
    """
    information = _entropy(prototypes.mean(0)) - _entropy(prototypes).mean()
    return (information / _largest_entropy(prototypes)).clamp_min(0)


@torch.no_grad()
def embedding_spread(embeddings: torch.Tensor) -> torch.Tensor:
    r"""
    Alarm for a collapse: spread of the embeddings after l2 normalization.

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


class NanMean(Average):
    """ignite's ``Average`` of a scalar per batch, over those batches where it is not NaN; NaN if there is none."""

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


class PretrainingMetrics(Metric):
    """
    Base of a method's validation metrics: computed together once per batch, averaged by name.

    Attach it under the name of one of them, as ``key_val_metric`` of MONAI's evaluator: that one is the key metric, and
    all of them appear in ``engine.state.metrics``. A metric that no batch defines, because an ablation has switched its
    part of the network off, is left out; if it is the key metric, the next one that is defined takes its place.

    A subclass has the ``names`` and computes them in :meth:`batch_metrics`. What is missing there, or NaN, is not
    defined.

    Example:
        >>> class Sizes(PretrainingMetrics):
        ...     names = ("mean", "spread")
        ...     def batch_metrics(self, outputs):
        ...         return {"mean": outputs["x"].mean()}
        >>> engine = Engine(lambda engine, batch: {"pred": {"x": batch}})
        >>> Sizes().attach(engine, "mean")
        >>> engine.run([torch.tensor([1.0]), torch.tensor([3.0])]).metrics
        {'mean': 2.0}
    """

    names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, device: str | torch.device = "cpu") -> None:
        self.averages = {name: NanMean(device=device) for name in self.names}
        # in a tuple: ignite looks for y_pred and y in a dictionary
        super().__init__(output_transform=lambda output: (output[CommonKeys.PRED],), device=device)

    @abstractmethod
    def batch_metrics(self, outputs: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Scalars by name for the network's outputs of a batch."""

    def reset(self) -> None:
        """Forget the former validation."""
        for average in self.averages.values():
            average.reset()

    def update(self, output: tuple[Mapping[str, torch.Tensor]]) -> None:
        """Take in the network's outputs of a batch."""
        for name, value in self.batch_metrics(output[0]).items():
            self.averages[name].update(value)

    def compute(self) -> dict[str, float]:
        """The metrics that are defined, of all ranks."""
        values = {name: float(average.compute()) for name, average in self.averages.items()}
        return {name: value for name, value in values.items() if not math.isnan(value)}

    def completed(self, engine: Engine, name: str) -> None:
        """Add all metrics to the engine's."""
        if name not in self.names:
            raise ValueError(f"{type(self).__name__} has {', '.join(self.names)}, but no {name!r}")
        values, state = self.compute() or {name: math.nan}, cast(Any, engine.state)
        if getattr(state, "key_metric_name", None) in self.names:
            state.key_metric_name = name if name in values else next(iter(values))
        for other in self.names:
            state.metrics.pop(other, None)
        state.metrics.update(values)


def _entropy(probabilities: torch.Tensor) -> torch.Tensor:
    entropy = torch.special.entr(probabilities).sum(-1)
    # negative numbers are no probabilities
    return torch.where(entropy.isfinite(), entropy, torch.nan)


def _largest_entropy(probabilities: torch.Tensor) -> torch.Tensor:
    return torch.tensor(float(probabilities.shape[-1]), device=probabilities.device).log()
