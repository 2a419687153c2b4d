# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The losses of PEAC: order, appearance, global and local consistency."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from monai_afire.losses.composite_loss import CompositeLoss, LossTerm
from monai_afire.losses.global_mean import global_mean
from monai_afire.losses.loss_shapes import check_shapes
from monai_afire.utils.precision import at_least_float32, without_autocast

# no embedding counts as shorter: an embedding of zeros then has a finite loss and gradient
SHORTEST = 1e-6


def on_sphere(vectors: Tensor) -> Tensor:
    """Vectors ``(..., H)`` after L2 normalization."""
    return F.normalize(at_least_float32(vectors), dim=-1, eps=SHORTEST)


def sphere_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Squared distance ``(...,)`` on the unit sphere, where the teacher's ``(..., H)`` are already, as 2 - 2 cos."""
    student = at_least_float32(student)
    # divided afterwards: a normalized student would be kept for the backward pass
    length = torch.linalg.vector_norm(student, dim=-1).clamp_min(SHORTEST)
    return 2 - 2 * (student * teacher).sum(-1) / length


class OrderClassificationLoss(nn.Module):
    r"""
    Cross-entropy of every patch's original place among the N of its crop (PEAC, :math:`L_{oc}`).

    .. math:: L_{oc} = -\frac{1}{BN} \sum_{b=1}^{B} \sum_{l=1}^{N} \log P_{bl}(\text{order}_{bl})

    with P the softmax of the classifier's logits and B the samples that count. The paper sums over the patches of a
    crop; the mean does not depend on their number.

    Example:
        >>> logits = 10 * torch.eye(4)[None]
        >>> loss = OrderClassificationLoss()
        >>> bool(loss(logits, torch.arange(4)[None]) < 0.01 < loss(logits, torch.tensor([[1, 0, 3, 2]])))
        True
    """

    def forward(self, logits: Tensor, order: Tensor, samples: Tensor | None = None) -> Tensor:
        """
        Args:
            logits: ``(B, L, N)``, L = N.
            order: ``(B, L)`` int64 in [0, N), the original place of the patch that is now at each place.
            samples: ``(B,)`` bool, the samples that count; None for all.

        Returns:
            Scalar; 0 when no sample counts.
        """
        with without_autocast(logits):
            scores = at_least_float32(logits).flatten(0, 1)
            loss = F.cross_entropy(scores, order.long().flatten(), reduction="none").view(
                order.shape
            )
            return global_mean(loss.mean(1), samples)


class AppearanceRestorationLoss(nn.Module):
    r"""
    Squared error of the restored patches (PEAC, :math:`L_{ar}`).

    .. math:: L_{ar} = \frac{1}{BNP} \sum_{b=1}^{B} \sum_{j=1}^{N} \lVert p_{bj} - p_{bj}^a \rVert_2^2

    with p the original patch and :math:`p^a` its restoration. The paper sums over the patches
    and their P pixels; the mean does not depend on their number.

    Example:
        >>> AppearanceRestorationLoss()(torch.ones(2, 4, 9), torch.full((2, 4, 9), 3.0))
        tensor(4.)
    """

    def forward(self, restored: Tensor, target: Tensor) -> Tensor:
        """
        Args:
            restored: patches ``(B, L, P)`` of the restoration head.
            target: patches ``(B, L, P)`` of the undistorted crop, in the same intensity.

        Returns:
            Scalar.
        """
        check_shapes(restored=(restored, "B, L, P"), target=(target, "B, L, P"))
        with without_autocast(restored):
            error = (at_least_float32(restored) - at_least_float32(target)).square()
            return global_mean(error.flatten(1).mean(1))


class GlobalConsistencyLoss(nn.Module):
    r"""
    Squared distance of two crops' embeddings on the unit sphere (PEAC, Eq. 1, one direction).

    .. math::
        L_{global} = \frac{1}{B} \sum_{b=1}^{B} \left\lVert \frac{y_s}{\lVert y_s \rVert_2} -
        \frac{y_t}{\lVert y_t \rVert_2} \right\rVert_2^2 = \frac{1}{B} \sum_{b=1}^{B} 2 - 2 \cos(y_s, y_t)

    Example:
        >>> student, teacher = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 5.0]])
        >>> loss = GlobalConsistencyLoss()
        >>> loss(student, teacher), loss(student, -3 * student)
        (tensor(2.), tensor(4.))
    """

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        """
        Args:
            student: embeddings ``(B, H)`` of one crop of each image.
            teacher: embeddings ``(B, H)`` of the other crop of the same images; detach them (PEAC's network does).

        Returns:
            Scalar in [0, 4].
        """
        check_shapes(student=(student, "B, H"), teacher=(teacher, "B, H"))
        with without_autocast(student):
            return global_mean(sphere_distance(student, on_sphere(teacher)))


class LocalConsistencyLoss(nn.Module):
    r"""
    Squared distance, on the unit sphere, of the patches that two crops have in common (PEAC, Eq. 2, one direction).

    .. math::
        L_{local} = \frac{1}{B} \sum_{b=1}^{B} I_b \frac{1}{z_b} \sum_{i=1}^{z_b}
        \left\lVert \bar p_{m_i} - \bar p_{n_i} \right\rVert_2^2

    with :math:`(m_i, n_i)` the :math:`z_b` pairs of matching patches and I the samples that count. The paper sums over
    the pairs; with their mean the loss does not depend on the size of the overlap. (For crops of 14 x 14 out of 18 x 18
    cells the sum is that of 154 pairs in the mean.)

    The teacher's rows are gathered by index for all of the batch at once: shapes do not depend on the overlap, and
    nothing waits for the device.

    Example:
        >>> teacher = torch.eye(4)[None]
        >>> student = teacher.roll(1, dims=1)  # its patch l shows what the teacher's patch l - 1 does
        >>> LocalConsistencyLoss()(student, teacher, torch.tensor([[-1, 0, 1, 2]]))
        tensor(0.)
    """

    def forward(
        self,
        student: Tensor,
        teacher: Tensor,
        matches: Tensor,
        samples: Tensor | None = None,
    ) -> Tensor:
        """
        Args:
            student: embeddings ``(B, L, H)`` of one crop's patches.
            teacher: embeddings ``(B, M, H)`` of the other crop's patches; detach them (PEAC's network does).
            matches: ``(B, L)`` int64, the teacher's patch in [0, M) that matches each of the student's; negative
                where there is none (:func:`monai_afire.transforms.matching_patches`).
            samples: ``(B,)`` bool, I; None for all. Those that do not count enter the mean as 0.

        Returns:
            Scalar in [0, 4]; 0 where nothing matches.
        """
        check_shapes(
            student=(student, "B, L, H"), teacher=(teacher, "B, M, H"), matches=(matches, "B, L")
        )
        with without_autocast(student):
            matched = matches >= 0
            images = torch.arange(len(teacher), device=matches.device).unsqueeze(1)
            partners = on_sphere(teacher)[images, matches.clamp_min(0)]
            distance = torch.where(matched, sphere_distance(student, partners), 0.0)
            of_sample = distance.sum(1) / matched.sum(1).clamp_min(1)
            return global_mean(
                of_sample if samples is None else torch.where(samples, of_sample, 0.0)
            )


class PEACLoss(CompositeLoss):
    r"""
    The whole PEAC objective (Eq. 3) on the outputs of :class:`monai_afire.networks.PEAC`.

    .. math::
        L = w_o L_{oc} + w_a L_{ar} + w_g (L_{global} + \tilde L_{global}) + w_l (L_{local} + \tilde L_{local})

    The tilde is the swapped pass, where the student sees the second crop and the teacher the first. A sample whose
    patches were shuffled has no local loss in either pass (I = 0). A term is left out if its weight is 0, or if the
    network leaves out what it needs.

    The order is classified where it was shuffled: elsewhere a patch's own place is its target, which a position
    embedding gives away, and half of the gradients would teach to rely on it. Restored are all samples, those that
    were shuffled in their right order, too.

    Attributes:
        terms: detached values of the last call, for logging: "total" and the unweighted "order", "restoration",
            "global" and "local" (the latter two of both passes together).

    Args:
        order_weight: weight of the order classification.
        restoration_weight: weight of the appearance restoration.
        global_weight: weight of the global consistency.
        local_weight: weight of the local consistency.

    Example:
        >>> outputs = {
        ...     "order": torch.tensor([[1, 0], [0, 1]]), "shuffled": torch.tensor([True, False]),
        ...     "order_logits": torch.rand(2, 2, 2), "restored": torch.rand(2, 2, 9), "target": torch.rand(2, 2, 9),
        ... }
        >>> loss_function = PEACLoss(global_weight=0, local_weight=0)
        >>> loss_function(outputs).shape, sorted(loss_function.terms)
        (torch.Size([]), ['order', 'restoration', 'total'])
    """

    def __init__(
        self,
        order_weight: float = 1.0,
        restoration_weight: float = 1.0,
        global_weight: float = 1.0,
        local_weight: float = 1.0,
    ) -> None:
        crops = ("{}_1", "{}_2", "teacher_{}_1", "teacher_{}_2")
        of_crops = tuple(name.format("global") for name in crops)
        of_patches = tuple(name.format("local") for name in crops)
        matches = ("matches_1", "matches_2", "shuffled")
        order, patches = ("order_logits", "order", "shuffled"), ("restored", "target")
        terms = {
            "order": LossTerm(order_weight, OrderClassificationLoss(), order),
            "restoration": LossTerm(restoration_weight, AppearanceRestorationLoss(), patches),
            "global": LossTerm(global_weight, self._global, of_crops),
            "local": LossTerm(local_weight, self._local, (*of_patches, *matches)),
        }
        super().__init__(terms)
        self.global_consistency = GlobalConsistencyLoss()
        self.local_consistency = LocalConsistencyLoss()

    def _global(
        self, first: Tensor, second: Tensor, teacher_1: Tensor, teacher_2: Tensor
    ) -> Tensor:
        as_drawn = self.global_consistency(first, teacher_2)
        return as_drawn + self.global_consistency(second, teacher_1)

    def _local(
        self,
        first: Tensor,
        second: Tensor,
        teacher_1: Tensor,
        teacher_2: Tensor,
        matches_1: Tensor,
        matches_2: Tensor,
        shuffled: Tensor,
    ) -> Tensor:
        as_drawn = self.local_consistency(first, teacher_2, matches_1, ~shuffled)
        return as_drawn + self.local_consistency(second, teacher_1, matches_2, ~shuffled)
