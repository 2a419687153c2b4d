# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Handler that fits a classifier's decision thresholds on the validation images."""

from __future__ import annotations

import torch
from ignite.engine import Engine, Events
from monai.utils import CommonKeys

from monai_afire.metrics.classification import best_thresholds
from monai_afire.networks.nets.transfer_classifier import TransferClassifier
from monai_afire.utils.labels import check_uncertain_policy

__all__ = ["ThresholdFit"]


class ThresholdFit:
    """
    Choose, after every validation, the probability from which each finding is called present: that of the best F1.

    The thresholds are part of the network's state, so that they are saved with the weights that they belong to, and
    neither test images nor users have to find them. Attach it to the validation evaluator, before what saves the
    network. Its output has the logits ``(B, K)`` as "pred" and the labels ``(B, K)`` as "label".

    Args:
        network: its ``thresholds`` are set.
        uncertain: what the label -1 counts as, see :func:`monai_afire.utils.resolve_uncertain`.

    Raises:
        ValueError: for an unknown policy.

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

    def __init__(self, network: TransferClassifier, uncertain: str = "ignore") -> None:
        check_uncertain_policy(uncertain)
        self.network = network
        self.uncertain = uncertain
        self.logits: list[torch.Tensor] = []
        self.labels: list[torch.Tensor] = []

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        engine.add_event_handler(Events.STARTED, self.start)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.collect)
        engine.add_event_handler(Events.COMPLETED, self.fit)

    def start(self, engine: Engine) -> None:
        """Forget the previous validation."""
        self.logits, self.labels = [], []

    def collect(self, engine: Engine) -> None:
        """Remember the outputs of a batch."""
        output = engine.state.output
        self.logits.append(output[CommonKeys.PRED].detach().float())  # type: ignore[index]
        self.labels.append(output[CommonKeys.LABEL])  # type: ignore[index]

    def fit(self, engine: Engine) -> None:
        """Choose the thresholds on all validation images."""
        probabilities = torch.cat(self.logits).sigmoid()
        thresholds = best_thresholds(torch.cat(self.labels), probabilities, self.uncertain)
        self.network.thresholds.copy_(torch.as_tensor(thresholds))
