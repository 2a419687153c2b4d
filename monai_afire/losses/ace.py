# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The losses of ACE: global consistency, composition and decomposition."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from monai_afire.losses.composite_loss import CompositeLoss, LossTerm
from monai_afire.losses.dino import MultiCropCrossEntropy
from monai_afire.losses.global_mean import global_mean
from monai_afire.losses.loss_shapes import check_shapes
from monai_afire.utils.precision import at_least_float32, without_autocast

# pairs of patches that are compared at once: 64 MB of each of some ten intermediate results
PAIRS_AT_ONCE = 2**24


def matching_target(
    offset_1: Tensor,
    offset_2: Tensor,
    crops: Sequence[int],
    patch_cells: int = 1,
    sigma: float = 1.0,
    kernel_size: int = 3,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    r"""
    Matching target of the patches of two crops, a Gaussian of their distance in the image (ACE, Eq. 4).

    .. math::
        T_{ij} = \begin{cases}
        \exp\left(-\frac{\Delta x_{ij}^2 + \Delta y_{ij}^2}{2 \sigma^2}\right) &
        \text{if } |\Delta x_{ij}| \le \frac{k-1}{2} \text{ and } |\Delta y_{ij}| \le \frac{k-1}{2} \\
        0 & \text{otherwise} \end{cases}

    with :math:`\Delta` the distances, in patches, between patch i of the first and patch j of the second crop on the
    grid that the crops were cut from. 1 is the same place; neighbors count less. (The paper prints 0 ``if |Δx| and
    |Δy| > (k-1)/2``, which leaves the case open in which one distance is larger: it is 0 here.) As printed, the places
    alone decide: a patch just outside the overlap is the neighbor of one inside.

    Both crops are divided into patches of the same size. ACE's two targets are, for crops of k1 = 14 and k2 = 28 cells,

    * composition: ``matching_target(offset_1, offset_2, (14, 28), patch_cells=2)`` ``(B, 49, 196)``; the first crop's
      patches are the composed ones,
    * decomposition: ``matching_target(offset_1, offset_2, (14, 28), patch_cells=1)`` ``(B, 196, 784)``; the second
      crop's patches are the decomposed ones.

    Args:
        offset_1: places of the first crops in cells, ``(B, 2)``, integer.
        offset_2: places of the second crops in cells, ``(B, 2)``, integer.
        crops: cells per axis of the first and the second crop, (k1, k2).
        patch_cells: cells per axis of a patch of either crop. Where the offsets differ by no multiple of it, no two
            patches show the same place and the distances are fractions.
        sigma: width of the Gaussian in patches, σ > 0.
        kernel_size: k, odd; 1 leaves the exact matches only.
        dtype: floating-point type of the result.

    Returns:
        T in [0, 1], ``(B, L1, L2)``, patches in row-major order.
    """
    if not sigma > 0 or kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(
            f"sigma must be positive and kernel_size odd, got {sigma} and {kernel_size}"
        )
    n1, n2 = (cells // patch_cells for cells in crops)
    shift = ((offset_1 - offset_2).to(dtype) / patch_cells).unsqueeze(-1).unsqueeze(-1)
    first = torch.arange(n1, device=shift.device, dtype=dtype).unsqueeze(1)
    second = torch.arange(n2, device=shift.device, dtype=dtype)
    distance = shift + first - second
    kernel = torch.exp(-distance.square() / (2 * sigma**2)) * (
        distance.abs() <= (kernel_size - 1) / 2
    )
    rows, columns = kernel.unbind(1)
    return torch.einsum("bij,bkl->bikjl", rows, columns).flatten(3, 4).flatten(1, 2)


class MatchingLoss(nn.Module):
    r"""
    Balanced binary cross-entropy of a matching matrix (ACE, Eq. 5 and 7).

    .. math::
        L = -\frac{1}{B N} \sum_{b=1}^{B} \sum_{i=1}^{N} \sum_{j=1}^{M}
        \alpha\, T_{bij} \log \sigma(x_{bij}) + (1 - \alpha) (1 - T_{bij}) \log(1 - \sigma(x_{bij}))

    with x the logits, T the target, i the teacher's and j the student's patches: the sum over the student's patches
    and the mean over the teacher's, as in the paper's Algorithm 1. Positives and negatives share this divisor, since
    α itself makes up for their numbers: on the paper's grid of 14 x 14 there are 49 student's patches for each of the
    teacher's in the composition (α = 0.9) and 784 in the decomposition (α = 0.99), of which up to 9 are positive. On
    another grid :func:`composition_alpha` and :func:`decomposition_alpha` keep this balance. The printed
    equations weight the cross-entropy by α alone, the algorithm has the positive part alone, and the text says that α
    "balances the positive and negative samples": both parts are here.

    Args:
        alpha: α in (0, 1), weight of the positives; 1 - α is that of the negatives.

    Example:
        >>> target = torch.eye(3)[None]
        >>> loss = MatchingLoss(alpha=0.5)
        >>> loss(torch.zeros(1, 3, 3), target)  # 3 log(2) / 2
        tensor(1.0397)
        >>> bool(loss(20 * target - 10, target) < 0.001 < loss(10 - 20 * target, target))
        True
    """

    def __init__(self, alpha: float = 0.9) -> None:
        super().__init__()
        if not 0 < alpha < 1:
            raise ValueError(f"alpha must be between 0 and 1, got {alpha}")
        self.alpha = alpha

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """
        Args:
            logits: ``(B, N, M)`` of the teacher's N and the student's M patches.
            target: T in [0, 1], ``(B, N, M)``.

        Returns:
            Scalar.
        """
        return global_mean(self.of_teacher_patches(logits, target))

    def of_teacher_patches(self, logits: Tensor, target: Tensor) -> Tensor:
        """The sums ``(B, N)`` whose mean is the loss."""
        check_shapes(logits=(logits, "B, N, M"), target=(target, "B, N, M"))
        with without_autocast(logits):
            logits = at_least_float32(logits)
            target = target.to(logits.dtype)
            negative = (1 - self.alpha) * (1 - target)
            # -log(1 - sigmoid(x)) = x - log(sigmoid(x))
            loss = negative * logits - (self.alpha * target + negative) * F.logsigmoid(logits)
            return loss.sum(-1)


class ACELoss(CompositeLoss):
    r"""
    The whole ACE objective (Eq. 8) on the outputs of :class:`monai_afire.networks.ACE`.

    .. math:: L = \lambda_1 L_{global} + \lambda_2 L_{comp} + \lambda_3 L_{decomp}

    The global term is :class:`MultiCropCrossEntropy` of the two crops. The paper prints one direction (Eq. 1), here it
    is the mean of both.

    A term of weight 0 is not computed, and the outputs that it needs may be missing. The decomposition has inputs of
    its own (the paper's Algorithm 1 computes it from those of the composition). Both have a factor of 1/2 in that
    algorithm and none in Eq. 8 with λ2 = λ3 = 1, which is the default here; weights of 0.5 are the algorithm's.

    Attributes:
        terms: detached values of the last call, for logging: "total" and the unweighted "global", "composition" and
            "decomposition".

    Args:
        global_weight: λ1.
        composition_weight: λ2.
        decomposition_weight: λ3.
        composition_alpha: α of the composition, see :class:`MatchingLoss`.
        decomposition_alpha: α of the decomposition.
        sigma: width of the matching targets' Gaussian in patches, see :func:`matching_target`.
        kernel_size: edge length of its support in patches; 1 for exact matches only.

    Example:
        >>> outputs = {
        ...     "offset_1": torch.tensor([[2, 0]]), "offset_2": torch.tensor([[0, 2]]),
        ...     "composition_logits": torch.rand(1, 16, 4), "decomposition_logits": torch.rand(1, 16, 64),
        ... }
        >>> loss_function = ACELoss(global_weight=0)
        >>> loss_function(outputs).shape, sorted(loss_function.terms)
        (torch.Size([]), ['composition', 'decomposition', 'total'])
    """

    def __init__(
        self,
        global_weight: float = 0.1,
        composition_weight: float = 1.0,
        decomposition_weight: float = 1.0,
        composition_alpha: float = 0.9,
        decomposition_alpha: float = 0.99,
        sigma: float = 1.0,
        kernel_size: int = 3,
    ) -> None:
        offsets = ("offset_1", "offset_2")
        composition = partial(self._mean, self._composition)
        decomposition = partial(self._mean, self._decomposition)
        crops = ("global_student", "global_teacher")
        terms = {
            "global": LossTerm(global_weight, MultiCropCrossEntropy(), crops),
            "composition": LossTerm(
                composition_weight, composition, ("composition_logits", *offsets)
            ),
            "decomposition": LossTerm(
                decomposition_weight, decomposition, ("decomposition_logits", *offsets)
            ),
        }
        super().__init__(terms)
        self.composition = MatchingLoss(composition_alpha)
        self.decomposition = MatchingLoss(decomposition_alpha)
        self.sigma = sigma
        self.kernel_size = kernel_size

    def _mean(self, sums: Callable[..., Tensor], logits: Tensor, *offsets: Tensor) -> Tensor:
        """The mean of sums, of a few images at a time where all pairs of patches are too many."""
        if logits.numel() <= PAIRS_AT_ONCE:
            return global_mean(sums(logits, *offsets))
        images = max(1, PAIRS_AT_ONCE // logits[0].numel())
        parts = zip(*(each.split(images) for each in (logits, *offsets)), strict=True)
        few = [checkpoint(sums, *part, use_reentrant=False) for part in parts]
        return global_mean(torch.cat(few))

    def _composition(self, logits: Tensor, *offsets: Tensor) -> Tensor:
        """Sums of the composition, ``(B, N)``; the teacher's patches are the second crop's."""
        target = self._target(2, logits, *offsets)
        return self.composition.of_teacher_patches(logits, target.mT)

    def _decomposition(self, logits: Tensor, *offsets: Tensor) -> Tensor:
        """Sums of the decomposition, ``(B, N)``."""
        target = self._target(1, logits, *offsets)
        return self.decomposition.of_teacher_patches(logits, target)

    def _target(
        self, patch_cells: int, logits: Tensor, offset_1: Tensor, offset_2: Tensor
    ) -> Tensor:
        cells = grid_side(logits.shape[1])
        dtype = torch.promote_types(logits.dtype, torch.float32)
        settings = (cells, 2 * cells), patch_cells, self.sigma, self.kernel_size, dtype
        return matching_target(offset_1, offset_2, *settings)


def grid_side(num_tokens: int) -> int:
    """Patches along each axis of a square grid."""
    side = math.isqrt(num_tokens)
    if side**2 != num_tokens:
        raise ValueError(f"{num_tokens} tokens fill no square grid")
    return side


# crops of 14 x 14 cells of 32 pixels, each cell one patch: what the paper's values were chosen for
_PAPER_GRID = 14


def composition_alpha(grid: int) -> float:
    """
    α of the composition with which negatives weigh as much as on the paper's grid of 14 x 14 with α = 0.9.

    Args:
        grid: patches of a crop along each axis, even and at least 6.

    Example:
        >>> round(composition_alpha(14), 4), round(composition_alpha(28), 4)
        (0.9, 0.975)
    """
    return _balanced_alpha(0.9, _PAPER_GRID // 2, grid // 2)


def decomposition_alpha(grid: int) -> float:
    """The same of the decomposition, whose paper's α is 0.99; ``grid`` is at least 2."""
    return _balanced_alpha(0.99, 2 * _PAPER_GRID, 2 * grid)


def _balanced_alpha(paper_alpha: float, paper_patches: int, patches: int) -> float:
    r"""
    The alpha with which negatives weigh as much as in the paper, against the positives.

    A teacher's patch all of whose neighbors are among the student's :math:`M^2` has positives of the weight
    :math:`S^2, S = 1 + 2 e^{-1/2}`, so that :math:`(1 - \alpha) (M^2 - S^2) / (\alpha S^2)` has to stay.
    """
    positive = (1 + 2 * math.exp(-0.5)) ** 2
    ratio = (patches**2 - positive) / (paper_patches**2 - positive)
    return ratio * paper_alpha / (1 - paper_alpha + ratio * paper_alpha)
