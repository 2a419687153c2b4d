# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""How well a detector tells abnormal images from normal ones, as a metric of an evaluator."""

from __future__ import annotations

from ignite.metrics import EpochMetric

from monai_afire.metrics.binary_classification import roc_auc


class DetectorAUC(EpochMetric):
    """
    Area under the ROC curve of a detector's fused score over a validation.

    The evaluator's output has the detector's scores ``(B, M)`` as "pred", the fused one last, and "label" ``(B,)``.

    Example:
        >>> import torch
        >>> metric = DetectorAUC()
        >>> metric.update((torch.tensor([0.1, 0.7]), torch.tensor([0, 1])))
        >>> metric.compute()
        1.0
    """

    def __init__(self) -> None:
        super().__init__(
            # ignite hands the predictions over first
            lambda scores, labels: roc_auc(labels, scores),
            output_transform=lambda output: (
                output["pred"]["scores"][:, -1],
                output["label"].flatten(),
            ),
            check_compute_fn=False,
        )
