# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Thresholds of anomaly scores, and how many normal images stay below a score, as buffers of a detector."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from monai_afire.detection.conformal import conformal_p_values, normals_needed
from monai_afire.metrics.binary_classification import best_f1_threshold
from monai_afire.utils.few_images import FOR_VALIDATION, warn_if_few

logger = logging.getLogger(__name__)

_CALIBRATION_SIZE = 1024  # normal images whose scores are kept: a p-value can be as small as 0.001


class ScoreThresholds(nn.Module):
    """
    What a detector keeps of the scores of validation images: a threshold for each, and the normal ones' percentiles.

    ``normal_scores`` ``(101, scores)`` are what 0, 1, ..., 100 % of the normal validation images stay below. Not the
    images that the network was fitted to, whose scores are lower. ``calibration_scores`` ``(1024, scores)`` are the
    scores of such images themselves, NaN where there were fewer, for p-values; of more, a random part is kept.

    Args:
        score_names: names of the scores in their order, the fused one last.
    """

    thresholds: torch.Tensor
    normal_scores: torch.Tensor
    calibration_scores: torch.Tensor

    def __init__(self, score_names: Sequence[str]) -> None:
        super().__init__()
        self.score_names = tuple(score_names)
        number = len(self.score_names)
        self.register_buffer("thresholds", torch.full((number,), torch.nan))
        self.register_buffer("normal_scores", torch.full((101, number), torch.nan))
        self.register_buffer(
            "calibration_scores", torch.full((_CALIBRATION_SIZE, number), torch.nan)
        )

    @torch.no_grad()
    def fit_thresholds(
        self,
        scores: torch.Tensor,
        labels: torch.Tensor | None = None,
        specificity: float | None = 0.95,
    ) -> None:
        """
        Choose the threshold of each score on validation images.

        Args:
            scores: ``(M, scores)`` of validation images.
            labels: ``(M,)`` of 0 (normal) and 1; None: all are normal.
            specificity: share of the normal images that may stay below the threshold, which is their quantile, and NaN
                for fewer of them than ``normals_needed``; None takes the best F1, for which abnormal images are needed.

        Raises:
            ValueError: for scores that are no finite numbers, a specificity out of range, without a normal image, or
                without an abnormal one for the best F1.

        Example:
            >>> scores = ScoreThresholds(["fused"])
            >>> scores.fit_thresholds(torch.arange(101.0)[:, None], specificity=0.9)
            >>> scores.thresholds[0]
            tensor(90.)
        """
        scores = scores.detach().float().cpu()
        if bad := int((~scores.isfinite()).any(1).sum()):
            found = f"scores of {bad} of {len(scores)} validation images are NaN or infinite"
            raise ValueError(f"{found}: check images and weights")
        abnormal = torch.zeros(len(scores), dtype=torch.bool)
        if labels is not None:
            abnormal = labels.flatten().cpu() > 0
        normal = scores[~abnormal]
        if not len(normal):
            raise ValueError("no normal validation image for a threshold: add some with label 0")
        what = "thresholds and p-values are those of validation"
        warn_if_few(len(normal), what, which=FOR_VALIDATION)
        self._keep(normal)
        if specificity is not None:
            self._take_quantile(normal, specificity)
        elif abnormal.any():
            best = [best_f1_threshold(abnormal.numpy(), column.numpy()) for column in scores.T]
            self.thresholds.copy_(torch.tensor(best))
        else:
            raise ValueError("the best F1 needs abnormal validation images: give a specificity")

    def _keep(self, normal: torch.Tensor) -> None:
        """Percentiles of normal scores ``(n, scores)``, and the scores themselves that p-values compare with."""
        shares = torch.linspace(0, 1, len(self.normal_scores))
        self.normal_scores.copy_(torch.quantile(normal, shares, dim=0))
        if len(normal) > _CALIBRATION_SIZE:  # the largest or first would bias the p-values
            order = torch.randperm(len(normal), generator=torch.Generator().manual_seed(0))
            normal = normal[order[:_CALIBRATION_SIZE]]
        self.calibration_scores.fill_(torch.nan)
        self.calibration_scores[: len(normal)] = normal

    @torch.no_grad()
    def set_specificity(self, specificity: float) -> None:
        """
        Move every threshold to what another share of the normal validation images stays below.

        Between whole per cents the stored scores are interpolated. Where there are fewer images than
        ``normals_needed``, the thresholds become NaN.

        Args:
            specificity: share in (0, 1).

        Raises:
            ValueError: for a share out of range.
            RuntimeError: before :meth:`fit_thresholds`, or loading fitted ones.
        """
        if not self.normal_scores.isfinite().all():
            raise RuntimeError("the detector has no scores of normal images: fit its thresholds")
        # the rows are equally spaced quantiles, so a quantile of the rows is one of the images, up to rounding
        self._take_quantile(self.normal_scores.double(), specificity)

    def _take_quantile(self, normal: torch.Tensor, specificity: float) -> None:
        """Thresholds at a specificity, for which there must be enough normal images."""
        number, needed = len(self.calibration()), normals_needed(1 - specificity)
        if number >= needed:
            self.thresholds.copy_(torch.quantile(normal, specificity, dim=0))
            return
        self.thresholds.fill_(torch.nan)
        needs = f"needs {needed} normal validation images, not {number}"
        logger.warning(f"no threshold: a specificity of {specificity:g} {needs}")

    def normal_percentiles(self, scores: ArrayLike) -> NDArray[np.float64]:
        """
        Share of the normal validation images whose fused score is lower, in per cent, exact to 1; NaN for none.

        Example:
            >>> scores = ScoreThresholds(["fused"])
            >>> scores.fit_thresholds(torch.arange(11.0)[:, None])
            >>> scores.normal_percentiles([-1, 9.5, 99]).tolist()
            [0.0, 95.0, 100.0]
        """
        normal = self.normal_scores[:, -1].double().cpu().numpy()
        return np.interp(np.asarray(scores, dtype=float), normal, np.linspace(0, 100, len(normal)))

    def calibration(self) -> NDArray[np.float64]:
        """Fused scores ``(n,)`` of the normal validation images; none before :meth:`fit_thresholds`."""
        kept = self.calibration_scores[:, -1].double().cpu().numpy()
        return kept[np.isfinite(kept)]

    def p_values(self, scores: ArrayLike) -> NDArray[np.float64]:
        """
        Conformal p-values of fused scores, see :func:`monai_afire.detection.conformal_p_values`; NaN for none.

        Example:
            >>> scores = ScoreThresholds(["fused"])
            >>> scores.fit_thresholds(torch.arange(9.0)[:, None])
            >>> scores.p_values([-1, 100]).tolist()
            [1.0, 0.1]
        """
        return conformal_p_values(scores, self.calibration())
