# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Losses of labels that may be missing: of several findings, and of exclusive classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from monai_afire.losses.global_mean import global_mean
from monai_afire.losses.loss_shapes import check_shapes
from monai_afire.utils.precision import at_least_float32, without_autocast
from monai_afire.utils.uncertain_labels import (
    check_label_kind,
    check_uncertain_policy,
    resolve_uncertain,
)

_ONE_OUTPUT_PER_CLASS = "give the network as many outputs as the datalist has classes"


class MaskedMultilabelLoss(nn.Module):
    r"""
    Binary cross-entropy, averaged over the known labels of a batch.

    .. math:: -\frac{1}{|\mathcal{K}|} \sum_{(b, m) \in \mathcal{K}}
        w_m\, y_{bm} \log \sigma(z_{bm}) + (1 - y_{bm}) \log(1 - \sigma(z_{bm}))

    with the logits z, the labels y, the weights w of the positive labels and the set :math:`\mathcal{K}` of known
    labels; without a known label in the batch the loss and its gradients are 0. In a process group the batch is that of
    all processes.

    Args:
        uncertain: what the label -1 counts as: "ignore" (missing), "ones" or "zeros", the policies of Irvin et al.,
            CheXpert, AAAI 2019.
        positive_weight: ``(M,)`` factors of the positive labels, for rare findings; None weighs all alike.

    Example:
        >>> loss = MaskedMultilabelLoss()
        >>> loss(torch.zeros(2, 2), torch.tensor([[1.0, torch.nan], [0.0, -1.0]]))
        tensor(0.6931)
    """

    positive_weight: Tensor | None

    def __init__(
        self,
        uncertain: str = "ignore",
        positive_weight: Sequence[float] | Tensor | None = None,
    ) -> None:
        super().__init__()
        check_uncertain_policy(uncertain)
        self.uncertain = uncertain
        weight = None
        if positive_weight is not None:
            weight = torch.as_tensor(positive_weight, dtype=torch.float32)
            if weight.ndim != 1 or not weight.isfinite().all() or (weight < 0).any():
                wanted = "one finite number >= 0 per class"
                raise ValueError(f"positive_weight must be {wanted}, got {positive_weight}")
        self.register_buffer("positive_weight", weight, persistent=False)

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """
        Args:
            logits: ``(B, M)``.
            labels: ``(B, M)``: 1 present, 0 absent, -1 uncertain, NaN missing.

        Returns:
            Scalar, at least float32.
        """
        check_shapes(_ONE_OUTPUT_PER_CLASS, logits=(logits, "B, M"), labels=(labels, "B, M"))
        labels = resolve_uncertain(labels, self.uncertain)
        logits = at_least_float32(logits)
        known = ~labels.isnan()
        weight = self.positive_weight
        losses = F.binary_cross_entropy_with_logits(
            # a logit that is not finite must not reach the gradients by way of 0 * NaN
            torch.where(known, logits, 0.0),
            torch.where(known, labels, 0.0).to(logits.dtype),
            reduction="none",
            pos_weight=None if weight is None else weight.to(logits, non_blocking=True),
        )
        return global_mean(losses, known)


class MaskedMulticlassLoss(nn.Module):
    r"""
    Cross-entropy of the softmax, averaged over the images of a batch whose class is known.

    .. math:: -\frac{1}{|\mathcal{K}|} \sum_{b \in \mathcal{K}} \log \frac{\exp z_{b y_b}}{\sum_m \exp z_{bm}}

    with the logits z, the classes y and the set :math:`\mathcal{K}` of images whose class is known; without one in the
    batch the loss and its gradients are 0. In a process group the batch is that of all processes.

    Example:
        >>> labels = torch.tensor([[0.0, 1.0], [torch.nan, torch.nan]])
        >>> MaskedMulticlassLoss()(torch.zeros(2, 2), labels)
        tensor(0.6931)
    """

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """
        Args:
            logits: ``(B, K)``.
            labels: ``(B, K)``, 1 for the image's class and 0 for the others; NaN where the class is not known
                (:class:`monai_afire.transforms.LabelVector` makes them of class numbers).

        Returns:
            Scalar, at least float32.
        """
        check_shapes(_ONE_OUTPUT_PER_CLASS, logits=(logits, "B, K"), labels=(labels, "B, K"))
        known = ~labels.isnan().any(1)
        one_hot = torch.where(known.unsqueeze(1), labels, 0.0)
        if labels.device.type == "cpu":
            _check_one_hot(one_hot, known)
        with without_autocast(logits):
            # a logit that is not finite must not reach the gradients by way of 0 * NaN
            scores = torch.where(known.unsqueeze(1), at_least_float32(logits), 0.0)
            return global_mean(F.cross_entropy(scores, one_hot.argmax(1), reduction="none"), known)


def classification_loss(
    label_kind: str = "multilabel",
    uncertain: str = "ignore",
    positive_weight: Sequence[float] | Tensor | None = None,
) -> nn.Module:
    """
    The loss of a kind of labels.

    Args:
        label_kind: "multilabel" for :class:`MaskedMultilabelLoss`, "multiclass" for :class:`MaskedMulticlassLoss`.
        uncertain: what the label -1 counts as; of exclusive classes it is ignored.
        positive_weight: ``(M,)`` factors of the positive labels of several findings.

    Returns:
        The loss on logits ``(B, K)`` and labels ``(B, K)``.

    Example:
        >>> type(classification_loss("multiclass")).__name__
        'MaskedMulticlassLoss'
    """
    check_label_kind(label_kind, uncertain=uncertain)
    if label_kind == "multilabel":
        return MaskedMultilabelLoss(uncertain, positive_weight)
    if positive_weight is not None:
        raise ValueError(
            "positive_weight is for several findings (label_kind 'multilabel'); leave it out"
        )
    return MaskedMulticlassLoss()


def _check_one_hot(one_hot: Tensor, known: Tensor) -> None:
    wrong = known & ~(((one_hot == 0) | (one_hot == 1)).all(1) & (one_hot.sum(1) == 1))
    if wrong.any():
        row = int(wrong.nonzero()[0])
        found = f"image {row} has not exactly one class: {one_hot[row].tolist()}"
        raise ValueError(f"{found}; lists of findings are label_kind 'multilabel'")
