# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Handler that starts fine-tuning from a linear probe of the encoder."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from ignite.engine import Engine, Events
from numpy.typing import NDArray
from torch import nn

from monai_afire.handlers.feature_probe import labeled_features
from monai_afire.handlers.random_state import unchanged_random_state
from monai_afire.metrics.linear_probe import fit_linear_probe
from monai_afire.metrics.principal_components import pixel_components
from monai_afire.networks.nets.transfer_classifier import TransferClassifier
from monai_afire.utils.distributed import all_gather_object
from monai_afire.utils.eval_mode import eval_mode
from monai_afire.utils.uncertain_labels import check_label_kind

logger = logging.getLogger(__name__)

_PIXELS_PER_AXIS = 32


@dataclass(eq=False, repr=False)
class HeadWarmStart:
    """
    Set a classifier's linear layer to a logistic regression on the features of its encoder, before the first step.

    Fine-tuning then starts at the linear probe (Kumar et al., ICLR 2022): random gradients of a new head do not harm
    the encoder, and rare findings start at their frequency instead of 0.5. The handler validates the probe before the
    first epoch, so the saved model cannot be worse than the probe on validation. The log also has the validation AUC of
    a logistic regression on the pixels alone: an encoder that is no better has learned nothing that these labels need.

    Attach it to the trainer. A resumed run is left as it is. Under distributed training each process fits the same
    head, on all images.

    Args:
        network: unwrapped; its linear layer and the statistics of its feature standardization are set.
        train_batches: loader of the training images without random transforms: "image" and "label" ``(B, K)``.
        val_batches: loader of the validation images, which choose the penalty; None for that of the validator.
        validator: run once after the head is set; None for no validation.
        label_kind: "multilabel" or "multiclass"; None for that of the network.
        uncertain: what the label -1 counts as, see ``resolve_uncertain``.

    Raises:
        ValueError: for an unknown kind of labels, or a network without feature standardization.
    """

    network: TransferClassifier
    train_batches: Iterable[Mapping[str, Any]]
    val_batches: Iterable[Mapping[str, Any]] | None = None
    validator: Engine | None = None
    label_kind: str | None = None
    uncertain: str = "ignore"

    def __post_init__(self) -> None:
        validation: Any = self.val_batches
        if validation is None:
            validation = getattr(self.validator, "data_loader", None)
        if validation is None:
            raise ValueError("a warm start needs validation images: give val_batches or validator")
        self.validation: Iterable[Mapping[str, Any]] = validation
        self.kind = self.label_kind or self.network.label_kind
        check_label_kind(self.kind, uncertain=self.uncertain)
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
            training, train_pixels, labels = self._extract(self.train_batches, "train_batches")
            validation, val_pixels, val_labels = self._extract(self.validation, "val_batches")
        components = pixel_components(
            np.concatenate([train_pixels, val_pixels]), np.arange(len(labels))
        )
        pixels = np.split(components, [len(labels)])
        fits = [
            (training, labels, validation, val_labels),
            (pixels[0], labels, pixels[1], val_labels),
        ]
        # one process's probe for all, as rounding differs between machines
        probe, plain = all_gather_object(
            [fit_linear_probe(*fit, label_kind=self.kind) for fit in fits]
        )[0]
        aucs = f"encoder {probe.validation_auc:.4f}, pixels alone {plain.validation_auc:.4f}"
        logger.info(f"linear probe, validation AUC: {aucs}; fine-tuning starts at the encoder's")
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

    def _extract(
        self, batches: Iterable[Mapping[str, Any]], name: str
    ) -> tuple[NDArray, NDArray, NDArray]:
        """Features ``(M, D)``, pixels of the reduced images and labels ``(M, K)`` of all batches."""
        device, width = self.network.classifier.weight.device, self.network.classifier.in_features

        def features(images: torch.Tensor) -> torch.Tensor:
            return torch.cat([self.network.features(images).float(), _reduced(images)], dim=1)

        found, labels = labeled_features(features, batches, device, name, self.uncertain)
        values = found.cpu().numpy()
        return values[:, :width], values[:, width:], labels.numpy()


def _reduced(images: torch.Tensor) -> torch.Tensor:
    """Pixels ``(B, P)`` of images of at most 32 pixels along each axis."""
    size = [min(side, _PIXELS_PER_AXIS) for side in images.shape[2:]]
    return F.interpolate(images.float(), size=size, mode="area").flatten(1)
