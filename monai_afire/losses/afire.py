# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The losses of AFiRe: structure consistency, category consistency and anomaly restoration."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from monai_afire.losses.composite_loss import CompositeLoss, LossTerm
from monai_afire.losses.global_mean import global_mean, global_weighted_mean
from monai_afire.losses.loss_shapes import check_shapes
from monai_afire.losses.token_similarity import TokenSimilarity
from monai_afire.utils.distributed import all_gather, global_rank
from monai_afire.utils.precision import at_least_float32, without_autocast

# stands for -inf in masked logarithms of sums: large enough to vanish, small enough to stay finite in differences
NEGLIGIBLE = -1e30


class StructureConsistencyLoss(nn.Module):
    r"""
    Pull every normal token to its own position's prototype, away from the others' (AFiRe, Eq. 12).

    .. math::
        L_{stru} = \operatorname{mean}_{(i,j)\ \text{normal}}
        -\log \frac{f(q_{ij}, c_j)}{\sum_{l=1}^{L} f(q_{ij}, c_l)}, \qquad f(q, c) = e^{-H(q, c) / \tau}

    with q token probabilities, c prototypes and H the cross-entropy. The paper prints :math:`e^{+H/\tau}`, which grows
    with *dis*\ similarity and drives tokens away from their prototype; the sign is corrected here.

    Args:
        temperature: τ > 0.
        similarity: "paper" for :math:`H(q, c) = -\sum_k q_k \log c_k`, "teacher_ce" for
            :math:`-\sum_k c_k \log q_k` (the order of DINO), "cosine" for :math:`-H = \langle q, c \rangle`.

    Example:
        >>> q = torch.tensor([[[0.9, 0.1], [0.1, 0.9]]])
        >>> normal = torch.ones(1, 2, dtype=torch.bool)
        >>> loss = StructureConsistencyLoss()
        >>> bool(loss(q, q[0], normal) < loss(q, q[0].flip(0), normal))
        True
    """

    def __init__(self, temperature: float = 1.0, similarity: str = "paper") -> None:
        super().__init__()
        self.similarity = TokenSimilarity(temperature, similarity)

    def forward(self, q: Tensor, prototypes: Tensor, normal: Tensor) -> Tensor:
        """
        Args:
            q: token probabilities ``(B, L, K)``.
            prototypes: ``(L, K)``, or ``(B, L, K)`` for prototypes of each image.
            normal: ``(B, L)`` bool, True where no lesion covers the token.

        Returns:
            Scalar; 0 without a normal token.
        """
        _check_shapes(q, prototypes, normal)
        with without_autocast(q):
            scores = self.similarity(q, prototypes)
            own = torch.diagonal(scores, dim1=-2, dim2=-1)
            return global_mean(torch.logsumexp(scores, dim=-1) - own, normal)


class CategoryConsistencyLoss(nn.Module):
    r"""
    Pull normal tokens of one position together across patients, away from abnormal ones (AFiRe, Eq. 14-16).

    .. math::
        L_{cate} = \operatorname{mean}_{(i,j)} -\log \frac{\Delta_{pos}}{\Delta_{pos} + \Delta_{neg}}, \quad
        \Delta_{pos} = \sum_{b \ne i,\ \text{normal}} f(q_{ij}, q_{bj}), \quad
        \Delta_{neg} = \sum_{b\ \text{abnormal}} f(q_{ij}, q_{bj}) + f(q_{bj}, c_j)

    Anchors (i, j) are the normal tokens with at least one other normal token b at the same position. Abnormal tokens
    are never pulled together unless asked for. The cost is one (B, B) matrix per position: O(L B²) memory.

    In a process group i runs over this rank's images and b over those of all W ranks, whose tokens are gathered with
    their gradients: loss and gradients are those of one process with the W-fold batch, and a rank keeps a (B, W B)
    matrix per position. Every rank must bring equally many images.

    Args:
        temperature: τ > 0.
        similarity: "paper", "teacher_ce" or "cosine", see :class:`StructureConsistencyLoss`.
        include_abnormal_pairs: also pull abnormal tokens of a position together, against the normal ones and the
            prototype (ablation, Table 4 row 4; it harms).

    Example:
        >>> q, normal = torch.softmax(torch.rand(4, 9, 8), -1), torch.rand(4, 9) > 0.3
        >>> CategoryConsistencyLoss()(q, q.mean(0), normal).shape
        torch.Size([])
    """

    def __init__(
        self,
        temperature: float = 1.0,
        similarity: str = "paper",
        include_abnormal_pairs: bool = False,
    ) -> None:
        super().__init__()
        self.similarity = TokenSimilarity(temperature, similarity)
        self.include_abnormal_pairs = include_abnormal_pairs

    def forward(self, q: Tensor, prototypes: Tensor, normal: Tensor) -> Tensor:
        """
        Args:
            q: token probabilities ``(B, L, K)``.
            prototypes: ``(L, K)``, or ``(B, L, K)`` for prototypes of each image.
            normal: ``(B, L)`` bool, True where no lesion covers the token.

        Returns:
            Scalar; 0 without an anchor.
        """
        _check_shapes(q, prototypes, normal)
        with without_autocast(q):
            tokens = at_least_float32(q)
            others = all_gather(tokens)
            pairs, own_prototype = self._scores(tokens, others, prototypes)
            pairs = pairs.masked_fill(self._same_image(len(q), len(others), q.device), NEGLIGIBLE)
            is_normal = normal.transpose(0, 1)
            other_is_normal = all_gather(normal).transpose(0, 1)
            prototypes_of_others = all_gather(own_prototype.transpose(0, 1)).transpose(0, 1)
            pull = _masked_logsumexp(prototypes_of_others, ~other_is_normal).unsqueeze(1)
            loss, anchors = _contrast(pairs, is_normal, other_is_normal, pull)
            if self.include_abnormal_pairs:
                abnormal_loss, abnormal_anchors = _contrast(
                    pairs, ~is_normal, ~other_is_normal, own_prototype
                )
                loss = torch.where(is_normal, loss, abnormal_loss)
                anchors = anchors | abnormal_anchors
            return global_mean(loss, anchors)

    def _same_image(self, num_anchors: int, num_others: int, device: torch.device) -> Tensor:
        """``(B anchors, B others)``: where an anchor meets itself among the others."""
        first = global_rank() * num_anchors if num_others > num_anchors else 0
        anchors = torch.arange(first, first + num_anchors, device=device)
        return anchors.unsqueeze(1) == torch.arange(num_others, device=device)

    def _scores(self, tokens: Tensor, others: Tensor, prototypes: Tensor) -> tuple[Tensor, Tensor]:
        """Log f of all pairs ``(L, B anchors, B others)`` and of each anchor with its prototype ``(L, B anchors)``."""
        anchors, candidates = (x.transpose(0, 1).contiguous() for x in (tokens, others))
        own = prototypes.unsqueeze(1) if prototypes.ndim == 2 else prototypes.transpose(0, 1)
        # a prototype counts as one more token of its position: one product scores all
        scores = self.similarity(anchors, torch.cat([candidates, own.to(tokens.dtype)], dim=1))
        pairs, with_prototypes = scores[..., : len(others)], scores[..., len(others) :]
        if prototypes.ndim == 2:
            return pairs, with_prototypes.squeeze(-1)
        return pairs, torch.diagonal(with_prototypes, dim1=1, dim2=2)


class AnomalyRestorationLoss(nn.Module):
    r"""
    Squared error of the restored patches, with abnormal patches emphasized (AFiRe, Eq. 20).

    .. math:: L_{recon} = \frac{\sum_j w_j \operatorname{mean}_P (y_j - x_j)^2}{\sum_j w_j}, \quad
        w_j = w \text{ on abnormal patches, else } 1

    The paper prints :math:`\frac{1}{L} \sum_j w_j \lVert y_j - x_j \rVert^2`, the sum over a patch's P pixels and the
    number of patches as the divisor: P times this (256 with patches of 16 x 16), and more the more patches are
    abnormal. The mean depends on neither.

    Args:
        abnormal_weight: w >= 1, 5 by default (the paper gives no value).

    Example:
        >>> target = torch.zeros(1, 2, 4)
        >>> restored = torch.tensor([[[1.0] * 4, [0.0] * 4]])
        >>> loss = AnomalyRestorationLoss(abnormal_weight=3)
        >>> loss(restored, target, torch.tensor([[True, False]])), loss(restored, target, torch.tensor([[False, True]]))
        (tensor(0.7500), tensor(0.2500))
    """

    def __init__(self, abnormal_weight: float = 5.0) -> None:
        super().__init__()
        if not abnormal_weight > 0:
            raise ValueError(f"abnormal_weight must be positive, got {abnormal_weight}")
        self.abnormal_weight = abnormal_weight

    def forward(self, restored: Tensor, target: Tensor, abnormal: Tensor) -> Tensor:
        """
        Args:
            restored: patches ``(B, L, P)`` of the decoder, or ``(B, N, L, P)`` of several variants.
            target: patches of the normal image, of the same shape.
            abnormal: ``(B, L)`` or ``(B, N, L)`` bool, True where a lesion covers the patch.

        Returns:
            Scalar.
        """
        patches = "B, L" if abnormal.ndim == 2 else "B, N, L"
        check_shapes(
            restored=(restored, f"{patches}, P"),
            target=(target, f"{patches}, P"),
            abnormal=(abnormal, patches),
        )
        with without_autocast(restored):
            error = (at_least_float32(restored) - at_least_float32(target)).square()
            weight = torch.ones_like(error[..., 0]).masked_fill(abnormal, self.abnormal_weight)
            return global_weighted_mean(error.mean(-1), weight)


class AFiReLoss(CompositeLoss):
    r"""
    The whole AFiRe objective (Eq. 17 and 21) on the outputs of :class:`monai_afire.networks.AFiRe`.

    .. math:: L = w_s L_{stru} + w_c L_{cate} + w_r L_{recon}

    A term is left out if its weight is 0, or if the network leaves out what it needs. With N lesion variants per image
    the category loss is computed within each variant, over the B different patients, and averaged over the variants:
    two variants of one image are near-copies and would be trivial positives.

    Attributes:
        terms: detached values of the last call, for logging: "total" and the unweighted "structure", "category" and
            "restoration".

    Args:
        structure_weight: weight of the structure consistency loss.
        category_weight: weight of the category consistency loss.
        restoration_weight: weight of the restoration loss.
        temperature: τ of the two contrastive losses.
        similarity: "paper", "teacher_ce" or "cosine", see :class:`StructureConsistencyLoss`.
        include_abnormal_pairs: see :class:`CategoryConsistencyLoss`.
        abnormal_weight: see :class:`AnomalyRestorationLoss`.

    Example:
        >>> outputs = {
        ...     "abnormal": torch.rand(2, 3, 4) > 0.7, "q": torch.softmax(torch.rand(2, 3, 4, 8), -1),
        ...     "prototypes": torch.softmax(torch.rand(4, 8), -1),
        ...     "restored": torch.rand(2, 3, 4, 16), "target": torch.rand(2, 1, 4, 16),
        ... }
        >>> loss_function = AFiReLoss()
        >>> loss_function(outputs).shape, sorted(loss_function.terms)
        (torch.Size([]), ['category', 'restoration', 'structure', 'total'])
    """

    def __init__(
        self,
        structure_weight: float = 1.0,
        category_weight: float = 1.0,
        restoration_weight: float = 1.0,
        temperature: float = 1.0,
        similarity: str = "paper",
        include_abnormal_pairs: bool = False,
        abnormal_weight: float = 5.0,
    ) -> None:
        tokens, patches = ("q", "prototypes", "abnormal"), ("restored", "target", "abnormal")
        terms = {
            "structure": LossTerm(structure_weight, self._structure, tokens),
            "category": LossTerm(category_weight, self._category, tokens),
            "restoration": LossTerm(restoration_weight, self._restoration, patches),
        }
        super().__init__(terms)
        self.structure = StructureConsistencyLoss(temperature, similarity)
        self.category = CategoryConsistencyLoss(temperature, similarity, include_abnormal_pairs)
        self.restoration = AnomalyRestorationLoss(abnormal_weight)

    def _structure(self, q: Tensor, prototypes: Tensor, abnormal: Tensor) -> Tensor:
        if prototypes.ndim == 3:  # of each image: the same for its variants
            prototypes = prototypes.repeat_interleave(q.shape[1], 0)
        return self.structure(q.flatten(0, 1), prototypes, ~abnormal.flatten(0, 1))

    def _category(self, q: Tensor, prototypes: Tensor, abnormal: Tensor) -> Tensor:
        variants = zip(q.unbind(1), abnormal.unbind(1), strict=True)
        return torch.stack([self.category(x, prototypes, ~lesion) for x, lesion in variants]).mean()

    def _restoration(self, restored: Tensor, target: Tensor, abnormal: Tensor) -> Tensor:
        return self.restoration(restored, target.expand_as(restored), abnormal)


def _contrast(
    pairs: Tensor,
    in_category: Tensor,
    others_in_category: Tensor,
    against: Tensor,
) -> tuple[Tensor, Tensor]:
    """-log(pos / (pos + neg)) of each token as anchor."""
    positive = _masked_logsumexp(pairs, others_in_category.unsqueeze(1))
    # every other token of the position is either a positive or a negative
    everything = torch.logaddexp(torch.logsumexp(pairs, dim=-1), against)
    others = others_in_category.sum(-1, keepdim=True) - in_category.long()
    return everything - positive, in_category & (others > 0)


def _masked_logsumexp(x: Tensor, mask: Tensor) -> Tensor:
    """Logarithm of the sum of exp over the last axis where the mask is True; about NEGLIGIBLE where it nowhere is."""
    return torch.logsumexp(x.masked_fill(~mask, NEGLIGIBLE), dim=-1)


def _check_shapes(q: Tensor, prototypes: Tensor, normal: Tensor) -> None:
    shape = "L, K" if prototypes.ndim == 2 else "B, L, K"
    check_shapes(q=(q, "B, L, K"), prototypes=(prototypes, shape), normal=(normal, "B, L"))
    if normal.dtype != torch.bool:
        raise ValueError(f"normal must be a bool mask, got {normal.dtype}")
