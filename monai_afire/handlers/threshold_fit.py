# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Handlers that fit on validation images: a classifier's thresholds, a detector and its thresholds."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from ignite.engine import Engine, Events
from ignite.handlers import EpochOutputStore
from monai.utils import CommonKeys
from tqdm import tqdm

from monai_afire.detection.detector import AnomalyDetector
from monai_afire.detection.score_thresholds import ScoreThresholds
from monai_afire.metrics.multilabel import best_thresholds
from monai_afire.networks.nets.transfer_classifier import TransferClassifier
from monai_afire.utils.eval_mode import eval_mode
from monai_afire.utils.few_images import distinct_images
from monai_afire.utils.text import counted
from monai_afire.utils.uncertain_labels import (
    class_probabilities,
    resolve_uncertain,
)

logger = logging.getLogger(__name__)


class ValidationFit(ABC):
    """Base of handlers that collect the predictions and labels of a validation, and fit on all of them at its end."""

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        self.batches = EpochOutputStore(self.needed)
        self.batches.attach(engine)
        engine.add_event_handler(Events.COMPLETED, self.complete)

    def needed(self, output: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Predictions and labels of a batch."""
        return self.predictions(output).detach(), torch.as_tensor(output[CommonKeys.LABEL])

    def complete(self) -> None:
        """Fit on all images."""
        self.fit(*map(torch.cat, zip(*self.batches.data, strict=True)))

    @abstractmethod
    def predictions(self, output: Mapping[str, Any]) -> torch.Tensor:
        """What of a batch's output the fit needs, ``(B, ...)``."""

    @abstractmethod
    def fit(self, predictions: torch.Tensor, labels: torch.Tensor) -> None:
        """Fit on the predictions and labels of all images."""


@dataclass(eq=False)
class ThresholdFit(ValidationFit):
    """
    Choose the threshold of each finding after every validation: the probability with the best F1.

    The thresholds are part of the network's state, so that they are saved with the weights that they belong to, and
    neither test images nor users have to find them. A finding without positives has none: NaN. Attach it to the
    validation evaluator, before what saves the network. Its output has the logits ``(B, K)`` as "pred" and the labels
    ``(B, K)`` as "label".

    Args:
        network: its ``thresholds`` are set, unless its labels are "multiclass": the largest probability decides there.
        uncertain: what the label -1 counts as, see ``resolve_uncertain``.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = TransferClassifier(encoder, num_classes=1)
        >>> output = {"pred": torch.tensor([[-2.0], [-1.0]]), "label": torch.tensor([[0.0], [1.0]])}
        >>> engine = Engine(lambda engine, batch: output)
        >>> ThresholdFit(network).attach(engine)
        >>> _ = engine.run([0])
        >>> network.thresholds  # the sigmoid of -1
        tensor([0.2689])
    """

    network: TransferClassifier
    uncertain: str = "ignore"

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        if self.network.label_kind != "multiclass":
            super().attach(engine)

    def predictions(self, output: Mapping[str, Any]) -> torch.Tensor:
        """The logits."""
        return output[CommonKeys.PRED].float()

    def fit(self, predictions: torch.Tensor, labels: torch.Tensor) -> None:
        """Choose the thresholds on all validation images."""
        exact = torch.as_tensor(
            best_thresholds(labels, class_probabilities(predictions), self.uncertain)
        )
        has_positives = (resolve_uncertain(labels, self.uncertain) == 1).any(0).cpu()
        rounded = torch.where(has_positives, exact, torch.nan).float()
        # rounded up, a threshold would be above the probability that it was found at
        below = torch.nextafter(rounded, torch.zeros_like(rounded))
        self.network.thresholds.copy_(torch.where(rounded > exact, below, rounded))


@dataclass(eq=False)
class DetectorFit(ValidationFit):
    """
    Fit a detector on normal images when its evaluator starts, and its thresholds on the images of the evaluator.

    Args:
        detector: the evaluator's network.
        normal_batches: loader of normal images, dictionaries with "image" ``(B, C, H, W)``.
        specificity: see :meth:`monai_afire.detection.AnomalyDetector.fit_thresholds`.
    """

    detector: AnomalyDetector
    normal_batches: Iterable[dict[str, torch.Tensor]]
    specificity: float | None = 0.95

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        super().attach(engine)
        engine.add_event_handler(Events.STARTED, self.start)

    def start(self, engine: Engine) -> None:
        """Fit the statistics to the normal images."""
        device = self.detector.thresholds.device
        loader = engine.state.dataloader
        held_out = distinct_images(getattr(loader, "dataset", None)) or 0
        with eval_mode(self.detector):
            self.detector.fit(_Images(self.normal_batches, device), held_out)
        learned = distinct_images(getattr(self.normal_batches, "dataset", None))
        if learned:
            images = counted(learned, "normal image")
            logger.info(f"learned {images}; held out {held_out} more for threshold and p-values")

    def predictions(self, output: Mapping[str, Any]) -> torch.Tensor:
        """The scores."""
        return output[CommonKeys.PRED]["scores"]

    def fit(self, predictions: torch.Tensor, labels: torch.Tensor) -> None:
        """Choose the thresholds on all validation images of this run."""
        self.detector.fit_thresholds(predictions, labels.flatten(), self.specificity)


@dataclass(eq=False)
class ThresholdsAt:
    """
    Set the specificity of a fitted detector when an evaluator starts; attach it after the handler that loads it.

    Args:
        detector: with the scores of normal validation images.
        specificity: see :meth:`monai_afire.detection.AnomalyDetector.set_specificity`; None leaves the thresholds
            alone.
    """

    detector: ScoreThresholds
    specificity: float | None = None

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        engine.add_event_handler(Events.STARTED, self.apply)

    def apply(self) -> None:
        """Set the thresholds."""
        if self.specificity is not None:
            self.detector.set_specificity(self.specificity)


@dataclass
class _Images:
    """The images of a loader on a device, to be iterated more than once."""

    batches: Iterable[dict[str, torch.Tensor]]
    device: torch.device

    def __iter__(self) -> Iterator[torch.Tensor]:
        for batch in tqdm(
            self.batches, desc="normal images", delay=3.0, leave=False, dynamic_ncols=True
        ):
            yield batch[CommonKeys.IMAGE].to(self.device, non_blocking=True)
