# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Handler that fits an anomaly detector's statistics and thresholds during training, and its validation metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from ignite.engine import Engine, Events
from ignite.metrics import EpochMetric
from monai.utils import CommonKeys
from tqdm import tqdm

from monai_afire.anomaly.detector import AnomalyDetector
from monai_afire.anomaly.score_thresholds import ScoreThresholds
from monai_afire.metrics.binary_classification import roc_auc

__all__ = ["DetectorAUC", "DetectorFit", "ThresholdsAt"]


class DetectorFit:
    """
    Fit a detector on normal images when its evaluator starts, and its thresholds on what the evaluator has seen.

    Args:
        detector: the evaluator's network.
        normal_batches: loader of normal images, dictionaries with "image" ``(B, C, *S)``.
        specificity: see :meth:`monai_afire.anomaly.AnomalyDetector.fit_thresholds`.
        shrinkage: of the token density's covariance.

    Example:
        >>> from monai_afire.networks import AFiRe, ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> detector = AnomalyDetector(AFiRe(encoder, 8, 16, 16, 1, 2)).eval()
        >>> normal = [{"image": torch.rand(8, 1, 32, 32)}]
        >>> def judge(engine, batch):
        ...     return {"pred": detector(batch["image"]), "label": torch.zeros(8)}
        >>> evaluator = Engine(judge)
        >>> DetectorFit(detector, normal).attach(evaluator)
        >>> _ = evaluator.run(normal)
        >>> bool(detector.thresholds.isfinite().all())
        True
    """

    def __init__(
        self,
        detector: AnomalyDetector,
        normal_batches: Iterable[dict[str, torch.Tensor]],
        specificity: float | None = 0.95,
        shrinkage: float = 0.05,
    ) -> None:
        self.detector = detector
        self.normal_batches = normal_batches
        self.specificity = specificity
        self.shrinkage = shrinkage
        self.scores: list[torch.Tensor] = []
        self.labels: list[torch.Tensor] = []

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        engine.add_event_handler(Events.STARTED, self.fit)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.collect)
        engine.add_event_handler(Events.COMPLETED, self.fit_thresholds)

    def fit(self, engine: Engine) -> None:
        """Take the statistics from the normal images."""
        self.scores, self.labels = [], []
        was_training = self.detector.training
        device = self.detector.thresholds.device
        self.detector.eval().fit(_Images(self.normal_batches, device), self.shrinkage)
        self.detector.train(was_training)

    def collect(self, engine: Engine) -> None:
        """Remember the scores of a validation batch."""
        output = engine.state.output
        self.scores.append(output[CommonKeys.PRED]["scores"].detach())  # type: ignore[index]
        self.labels.append(torch.as_tensor(output[CommonKeys.LABEL]).flatten())  # type: ignore[index]

    def fit_thresholds(self, engine: Engine) -> None:
        """Choose the thresholds on all validation images of this run."""
        self.detector.fit_thresholds(torch.cat(self.scores), torch.cat(self.labels), self.specificity)


class ThresholdsAt:
    """
    Give a fitted detector's thresholds another specificity when an evaluator starts; attach it behind what loads it.

    Args:
        detector: with the scores of normal validation images.
        specificity: see :meth:`monai_afire.anomaly.AnomalyDetector.set_specificity`; None leaves the thresholds alone.

    Example:
        >>> from monai_afire.anomaly.score_thresholds import ScoreThresholds
        >>> scores = ScoreThresholds(["fused"])
        >>> scores.fit_thresholds(torch.arange(101.0)[:, None], specificity=0.9)
        >>> ThresholdsAt(scores, 0.95).apply()
        >>> scores.thresholds[0]
        tensor(95.)
    """

    def __init__(self, detector: ScoreThresholds, specificity: float | None = None) -> None:
        self.detector = detector
        self.specificity = specificity

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        engine.add_event_handler(Events.STARTED, self.apply)

    def apply(self) -> None:
        """Set the thresholds."""
        if self.specificity is not None:
            self.detector.set_specificity(self.specificity)


class DetectorAUC(EpochMetric):
    """
    Area under the ROC curve of a detector's fused score over a validation.

    The evaluator's output has the detector's scores ``(B, M)`` as "pred", the fused one last, and "label" ``(B,)``.

    Example:
        >>> metric = DetectorAUC()
        >>> metric.update((torch.tensor([0.1, 0.7]), torch.tensor([0, 1])))
        >>> metric.compute()
        1.0
    """

    def __init__(self) -> None:
        super().__init__(
            # ignite hands the predictions over first
            lambda scores, labels: roc_auc(labels, scores),
            output_transform=lambda output: (output["pred"]["scores"][:, -1], output["label"].flatten()),
            check_compute_fn=False,
        )


class _Images:
    """The images of a loader on a device, to be iterated more than once."""

    def __init__(self, batches: Iterable[dict[str, torch.Tensor]], device: torch.device) -> None:
        self.batches = batches
        self.device = device

    def __iter__(self) -> Iterator[torch.Tensor]:
        for batch in tqdm(self.batches, desc="normal images", delay=3.0, leave=False, dynamic_ncols=True):
            yield batch[CommonKeys.IMAGE].to(self.device, non_blocking=True)
