# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loss of exclusive classes, some of them unknown, and the choice between it and that of several findings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from monai_afire.losses.global_mean import global_mean
from monai_afire.losses.multilabel import MaskedMultilabelLoss
from monai_afire.utils.labels import check_label_kind
from monai_afire.utils.precision import at_least_float32

__all__ = ["MaskedMulticlassLoss", "classification_loss"]


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

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """
        Compute the loss.

        Args:
            logits: ``(B, K)``.
            labels: ``(B, K)``, 1 for the image's class and 0 for the others; NaN where the class is not known
                (:class:`monai_afire.transforms.LabelVector` makes them of class numbers).

        Returns:
            Scalar, at least float32.

        Raises:
            ValueError: for shapes that do not fit, or (checked on a CPU only) labels of no or several classes.
        """
        if logits.ndim != 2 or logits.shape != labels.shape:
            raise ValueError(
                f"logits have shape {tuple(logits.shape)} and labels {tuple(labels.shape)}, both must be (B, K): give "
                "the network as many outputs as there are classes"
            )
        known = ~labels.isnan().any(1)
        one_hot = torch.where(known.unsqueeze(1), labels, 0.0)
        if labels.device.type == "cpu":
            _check_one_hot(one_hot, known)
        with torch.autocast(logits.device.type, enabled=False):
            # a logit that is not finite must not reach the gradients by way of 0 * NaN
            scores = torch.where(known.unsqueeze(1), at_least_float32(logits), 0.0)
            return global_mean(F.cross_entropy(scores, one_hot.argmax(1), reduction="none"), known)


def classification_loss(label_kind: str = "multilabel", uncertain: str = "ignore") -> nn.Module:
    """
    The loss of a kind of labels.

    Args:
        label_kind: "multilabel" for :class:`MaskedMultilabelLoss`, "multiclass" for :class:`MaskedMulticlassLoss`.
        uncertain: what the label -1 counts as; of exclusive classes it is ignored.

    Returns:
        The loss on logits ``(B, K)`` and labels ``(B, K)``.

    Raises:
        ValueError: for another kind, or a policy that it cannot have.

    Example:
        >>> type(classification_loss("multiclass")).__name__
        'MaskedMulticlassLoss'
    """
    check_label_kind(label_kind, uncertain=uncertain)
    return MaskedMulticlassLoss() if label_kind == "multiclass" else MaskedMultilabelLoss(uncertain)


def _check_one_hot(one_hot: torch.Tensor, known: torch.Tensor) -> None:
    wrong = known & ~(((one_hot == 0) | (one_hot == 1)).all(1) & (one_hot.sum(1) == 1))
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"{int(wrong.sum())} of {len(wrong)} images have not exactly one class, the first of them {row}: "
            f"{one_hot[row].tolist()}; lists of findings are label_kind 'multilabel'"
        )
