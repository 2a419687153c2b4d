# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The loss of DINO: the student's crops against the teacher's."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from monai_afire.losses.composite_loss import CompositeLoss, LossTerm
from monai_afire.losses.global_mean import global_mean
from monai_afire.utils.precision import at_least_float32, without_autocast


class MultiCropCrossEntropy(nn.Module):
    r"""
    Cross-entropy of the student's distributions with the teacher's of all other crops of the same image (DINO, Eq. 3).

    .. math::
        L = -\frac{1}{B\,|\{(g, v) : v \ne g\}|} \sum_{b=1}^{B} \sum_{g=1}^{G} \sum_{v \ne g} \sum_{k=1}^{K}
        P_t^{(k)}(x_{bg}) \log P_s^{(k)}(x_{bv})

    The teacher sees the crops 1 to G, the student those and more. The paper prints the sum over the pairs; as in its
    published code this is the mean. Of several processes the mean is that of the global batch.

    Example:
        >>> teacher = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
        >>> student = torch.tensor([[[0.5, 0.5], [0.5, 0.5], [0.25, 0.75]]])
        >>> MultiCropCrossEntropy()(student.log(), teacher)  # (2 log 2 + 2 log 4) / 4
        tensor(1.0397)
    """

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        """
        Args:
            student: logarithms of the student's probabilities for all crops, ``(B, V, K)``, the teacher's crops first.
            teacher: the teacher's probabilities for its crops, ``(B, G, K)``, G <= V.

        Returns:
            Scalar.
        """
        crops, seen = student.shape[1], teacher.shape[1]
        with without_autocast(student):
            student = at_least_float32(student)
            cross_entropy = -torch.bmm(teacher.to(student.dtype), student.mT)
            others = ~torch.eye(seen, crops, dtype=torch.bool, device=student.device)
            return global_mean(cross_entropy, others.expand_as(cross_entropy))


class DINOLoss(CompositeLoss):
    r"""
    The DINO objective on the outputs of :class:`monai_afire.networks.DINO`, in its two parts (Sec. 5.3).

    .. math:: H(P_t, P_s) = h(P_t) + D_{KL}(P_t \| P_s)

    The first part is the entropy of the teacher and has no gradient; it is there to be watched. A divergence of zero is
    a collapse: with an entropy of 0 onto one prototype, with one of log K onto the uniform distribution.

    Attributes:
        terms: detached values of the last call in nats, for logging: "total" (see :class:`MultiCropCrossEntropy`),
            "divergence" and "entropy".

    Example:
        >>> outputs = {"student": torch.randn(2, 6, 8).log_softmax(-1), "teacher": torch.randn(2, 2, 8).softmax(-1)}
        >>> loss_function = DINOLoss()
        >>> loss_function(outputs).shape, sorted(loss_function.terms)
        (torch.Size([]), ['divergence', 'entropy', 'total'])
    """

    def __init__(self) -> None:
        terms = {
            "divergence": LossTerm(1.0, self._divergence, ("student", "teacher")),
            "entropy": LossTerm(1.0, self._entropy, ("teacher",)),
        }
        super().__init__(terms)
        self.cross_entropy = MultiCropCrossEntropy()

    def _divergence(self, student: Tensor, teacher: Tensor) -> Tensor:
        return self.cross_entropy(student, teacher) - self._entropy(teacher)

    def _entropy(self, teacher: Tensor) -> Tensor:
        """Each of the teacher's crops is in equally many pairs, so that the mean over the pairs is that over them."""
        return global_mean(torch.special.entr(at_least_float32(teacher)).sum(-1))
