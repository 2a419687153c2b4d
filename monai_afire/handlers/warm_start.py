# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Handler that starts fine-tuning from a linear probe of the encoder."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from ignite.engine import Engine, Events
from numpy.typing import NDArray
from torch import nn

from monai_afire.handlers.feature_probe import labeled_features
from monai_afire.handlers.random_state import unchanged_random_state
from monai_afire.metrics.linear_probe import fit_linear_probe
from monai_afire.networks.nets.transfer_classifier import TransferClassifier
from monai_afire.utils.distributed import all_gather_object
from monai_afire.utils.eval_mode import eval_mode
from monai_afire.utils.uncertain_labels import check_label_kind

logger = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class HeadWarmStart:
    """
    Set a classifier's linear layer to a logistic regression on the features of its encoder, before the first step.

    Fine-tuning then starts at the linear probe (Kumar et al., ICLR 2022): random gradients of a new head do not harm
    the encoder, and rare findings start at their frequency instead of 0.5. The handler validates the probe before the
    first epoch, so the saved model cannot be worse than the probe on validation.

    Attach it to the trainer. A resumed run is left as it is. Under distributed training each process fits the same
    head, on all images.

    Args:
        network: unwrapped; its linear layer and the statistics of its feature standardization are set.
        train_batches: loader of the training images without random transforms: "image" and "label" ``(B, K)``.
        val_batches: loader of the validation images, which choose the penalty; None for that of the validator.
        validator: run once after the head is set; None for no validation.
        uncertain: what the label -1 counts as, see ``resolve_uncertain``.

    Raises:
        ValueError: for a network without feature standardization, or no validation images.
    """

    network: TransferClassifier
    train_batches: Iterable[Mapping[str, Any]]
    val_batches: Iterable[Mapping[str, Any]] | None = None
    validator: Engine | None = None
    uncertain: str = "ignore"

    def __post_init__(self) -> None:
        validation: Any = self.val_batches
        if validation is None:
            validation = getattr(self.validator, "data_loader", None)
        if validation is None:
            raise ValueError("a warm start needs validation images: give val_batches or validator")
        self.validation: Iterable[Mapping[str, Any]] = validation
        check_label_kind(self.network.label_kind, uncertain=self.uncertain)
        if isinstance(self.network.standardize, nn.Identity):
            raise ValueError(
                "a warm start needs standardize_features: set it to true, or disable warm_start"
            )

    def attach(self, engine: Engine) -> None:
        """Register with a trainer; after its start, when a checkpoint to resume has been loaded."""
        engine.add_event_handler(Events.EPOCH_STARTED(once=1), self)

    def __call__(self, engine: Any) -> None:
        """Fit the head, unless the run was resumed within its first epoch."""
        if engine.state.iteration > 0:
            return
        with unchanged_random_state():
            # the run's random numbers are those of a run without a warm start
            self.fit()
            if self.validator is not None:
                self.validator.run()

    @torch.no_grad()
    def fit(self) -> None:
        """Fit the head on the features as they are now."""
        with eval_mode(self.network):
            training = self._features(self.train_batches, "train_batches")
            validation = self._features(self.validation, "val_batches")
        probe = fit_linear_probe(*training, *validation, label_kind=self.network.label_kind)
        # one process's probe for all, as rounding differs between machines
        probe = all_gather_object(probe)[0]
        logger.info(f"linear probe of the encoder, validation AUC: {probe.validation_auc:.4f}")
        # only now: several GPUs exchange it for one that they share
        norm: Any = self.network.standardize
        deviation = torch.from_numpy(probe.deviation)
        variance = (deviation**2 - norm.eps).clamp(min=0)
        norm.get_buffer("running_mean").copy_(torch.from_numpy(probe.mean))
        norm.get_buffer("running_var").copy_(variance)
        # the norm divides by more than a deviation that is smaller than its epsilon
        scale = (variance + norm.eps).sqrt() / deviation
        self.network.classifier.weight.copy_(torch.from_numpy(probe.weight) * scale)
        self.network.classifier.bias.copy_(torch.from_numpy(probe.bias))

    def _features(self, batches: Iterable[Mapping[str, Any]], name: str) -> tuple[NDArray, NDArray]:
        """Features ``(M, D)`` and labels ``(M, K)`` of all batches."""
        device = self.network.classifier.weight.device
        features, labels = labeled_features(
            self.network.features, batches, device, name, self.uncertain
        )
        return features.float().cpu().numpy(), labels.numpy()
