# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""ACE's losses (Eq. 1-8) as plain loops in float64, written from the paper without a look at the package.

Letters: B images, D width, K outputs; `b` counts images, `i` the teacher's patches, `j` the student's composed or
decomposed patches, both in row-major order. Crop 1 has k1 cells per axis and patches of one cell, crop 2 has k2 cells
and patches of two: k1 and k2/2 patches per axis (14 and 14 in the paper). Offsets (B,dims) are cells of the image's
grid. Everything takes torch tensors, computes in float64, returns tensors that autograd can differentiate (nothing is
detached: a fixed teacher is the caller's) and leaves its arguments unchanged. For small sizes only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import torch
from torch import Tensor

__all__ = [
    "crop_patches",
    "cross_entropy",
    "global_consistency_loss",
    "global_consistency_term",
    "log_sigmoid",
    "log_softmax",
    "matching_logits",
    "matching_loss",
    "matching_targets",
    "overlap_patches",
    "pool_overlap",
    "sum_of",
    "total_loss",
    "update_center",
]

Cell = tuple[int, ...]
Patch = list[Cell]


def sum_of(terms: Iterable[Tensor]) -> Tensor:
    """Sum of scalars in float64, one after the other; 0 for none."""
    total = torch.zeros((), dtype=torch.float64)
    for term in terms:
        total = total + term
    return total


def crop_patches(offset: Tensor, crop: int, side: int) -> list[Patch]:
    """Patches of `side` cells per axis, each the list of its cells, of a crop of `crop` cells per axis at `offset`."""
    if crop % side:
        raise ValueError(
            f"a crop of {crop} cells per axis cannot be cut into patches of {side} cells"
        )
    corner = [int(value) for value in offset]
    patches = []
    for index in itertools.product(range(crop // side), repeat=len(corner)):
        inside = itertools.product(range(side), repeat=len(corner))
        patches.append(
            [
                tuple(c + side * k + s for c, k, s in zip(corner, index, step, strict=True))
                for step in inside
            ]
        )
    return patches


def _center(patch: Patch, axis: int) -> Fraction:
    return Fraction(sum(cell[axis] for cell in patch), len(patch))


def _target(
    teacher: Sequence[Patch], student: Sequence[Patch], side: int, kernel_size: int, sigma: float
) -> Tensor:
    target = torch.zeros(len(teacher), len(student), dtype=torch.float64)
    for i, j in itertools.product(range(len(teacher)), range(len(student))):
        axes = range(len(teacher[i][0]))
        steps = [(_center(teacher[i], axis) - _center(student[j], axis)) / side for axis in axes]
        if all(abs(step) <= Fraction(kernel_size - 1, 2) for step in steps):
            target[i, j] = math.exp(-float(sum(step * step for step in steps)) / (2.0 * sigma**2))
    return target


def matching_targets(
    offset_1: Tensor,
    offset_2: Tensor,
    crops: tuple[int, int],
    kernel_size: int = 3,
    sigma: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Eq. 4 with [A3]: targets of composition (B, N2, N1/2^dims) and of decomposition (B, N1, N2·2^dims).

    T_ij = exp(-Σ Δ² / (2σ²)) if |Δ| <= (kernel_size - 1)/2 along every axis and 0 otherwise. Δ is the distance between
    the centers of teacher's patch i and student's patch j in the whole image, in sides of these patches. Composition:
    crop 2's patches and crop 1's patches merged 2 by 2, sides of two cells; where the crops' offsets differ by an odd
    number of cells, Δ is a multiple of one half. Decomposition: crop 1's patches and crop 2's patches split 2 by 2,
    sides of one cell. All pairs of patches take part, those outside the overlap as well.
    """
    k1, k2 = crops
    composition, decomposition = [], []
    for first, second in zip(offset_1, offset_2, strict=True):
        options = (kernel_size, sigma)
        composition.append(
            _target(crop_patches(second, k2, 2), crop_patches(first, k1, 2), 2, *options)
        )
        decomposition.append(
            _target(crop_patches(first, k1, 1), crop_patches(second, k2, 1), 1, *options)
        )
    return torch.stack(composition), torch.stack(decomposition)


def matching_logits(teacher: Tensor, student: Tensor, log_scale: Tensor | float) -> Tensor:
    """exp(s)·cos(t_i, s_j) of teacher (B,I,D) and student (B,J,D): (B,I,J), Eq. 3 before the sigmoid, with [A2].

    A norm below 1e-12 counts as 1e-12, so that a zero vector gives zero.
    """
    t, s = teacher.double(), student.double()
    scale = torch.exp(torch.as_tensor(log_scale).double())
    images = []
    for b in range(len(t)):
        rows = []
        for i in range(t.shape[1]):
            t_unit = t[b, i] / torch.linalg.vector_norm(t[b, i]).clamp_min(1e-12)
            units = [
                s[b, j] / torch.linalg.vector_norm(s[b, j]).clamp_min(1e-12)
                for j in range(s.shape[1])
            ]
            rows.append(torch.stack([scale * sum_of(t_unit * unit) for unit in units]))
        images.append(torch.stack(rows))
    return torch.stack(images)


def log_sigmoid(value: Tensor) -> Tensor:
    """log(1 / (1 + exp(-v))) of one number, without overflow."""
    if value >= 0:
        return -torch.log1p(torch.exp(-value))
    return value - torch.log1p(torch.exp(value))


def matching_loss(
    teacher: Tensor,
    student: Tensor,
    target: Tensor,
    log_scale: Tensor | float,
    alpha: float,
    reduction: str = "mean",
) -> Tensor:
    """Eq. 5 and 7, two-sided: α·T·(-log M) + (1-α)·(1-T)·(-log(1-M)) with M = sigmoid(exp(s)·cos).

    "mean": over all pairs (i,j) of all images. "row_sum": sum over the student's patches j, mean over the teacher's
    patches i and images, the reduction of the paper's pseudo-code.
    """
    if reduction not in ("mean", "row_sum"):
        raise ValueError(f"reduction must be 'mean' or 'row_sum', got {reduction!r}")
    logits = matching_logits(teacher, student, log_scale)
    B, I, J = logits.shape  # noqa: E741 - teacher's and student's patches
    total = torch.zeros((), dtype=torch.float64)
    for b, i, j in itertools.product(range(B), range(I), range(J)):
        hit = float(target[b, i, j])
        total = total - alpha * hit * log_sigmoid(logits[b, i, j])
        total = total - (1.0 - alpha) * (1.0 - hit) * log_sigmoid(-logits[b, i, j])
    return total / (B * I * J if reduction == "mean" else B * I)


def overlap_patches(
    offset_1: Tensor, offset_2: Tensor, crops: tuple[int, int]
) -> list[tuple[list[int], list[int]]]:
    """For each image the patches of crop 1 all of whose cells lie in crop 2, and those of crop 2 wholly in crop 1."""
    result = []
    for first, second in zip(offset_1, offset_2, strict=True):
        patches_1, patches_2 = crop_patches(first, crops[0], 1), crop_patches(second, crops[1], 2)
        cells_1 = {cell for patch in patches_1 for cell in patch}
        cells_2 = {cell for patch in patches_2 for cell in patch}
        inside_2 = [
            n for n, patch in enumerate(patches_1) if all(cell in cells_2 for cell in patch)
        ]
        inside_1 = [
            n for n, patch in enumerate(patches_2) if all(cell in cells_1 for cell in patch)
        ]
        result.append((inside_2, inside_1))
    return result


def pool_overlap(features: Tensor, patches: Sequence[Sequence[int]]) -> Tensor:
    """Mean of each image's listed patches of features (B,N,K): (B,K). An image without a patch is an error."""
    pooled = []
    for b, listed in enumerate(patches):
        if not listed:
            raise ValueError(f"the crops of image {b} do not share a whole patch: nothing to pool")
        total = torch.zeros(features.shape[2], dtype=torch.float64)
        for n in listed:
            total = total + features[b, n].double()
        pooled.append(total / len(listed))
    return torch.stack(pooled)


def log_softmax(values: Tensor) -> Tensor:
    """log(exp(v_k) / Σ_l exp(v_l)) of one vector, the largest value taken out first."""
    shifted = values.double() - values.double().max().detach()
    return shifted - torch.log(sum_of(value.exp() for value in shifted))


def cross_entropy(teacher: Tensor, student: Tensor) -> Tensor:
    """CE(a, b) = -Σ a·log b of log probabilities (K,) of teacher (a) and student (b)."""
    return -sum_of(teacher[k].exp() * student[k] for k in range(len(teacher)))


def global_consistency_term(
    student: Tensor,
    teacher: Tensor,
    student_temperature: float = 0.1,
    teacher_temperature: float = 0.04,
    center: Tensor | None = None,
) -> Tensor:
    """Eq. 1 for pooled outputs (B,K): mean over images of CE(P_t, P_s), P_s = softmax(y_s/τ_s).

    P_t = softmax((y_t - center)/τ_t), center (K,) or (1,K); None: no centering.
    """
    total = torch.zeros((), dtype=torch.float64)
    for y_s, y_t in zip(student.double(), teacher.double(), strict=True):
        centered = y_t if center is None else y_t - center.double().reshape(-1)
        log_p_t, log_p_s = (
            log_softmax(centered / teacher_temperature),
            log_softmax(y_s / student_temperature),
        )
        total = total + cross_entropy(log_p_t, log_p_s)
    return total / len(student)


def global_consistency_loss(
    student_1: Tensor,
    teacher_2: Tensor,
    student_2: Tensor,
    teacher_1: Tensor,
    offset_1: Tensor,
    offset_2: Tensor,
    crops: tuple[int, int],
    student_temperature: float = 0.1,
    teacher_temperature: float = 0.04,
    center: Tensor | None = None,
    symmetrise: str = "mean",
) -> Tensor:
    """Eq. 1 in both directions for features (B,N,K) of all patches, pooled over the overlap of the crops.

    Crop 1 in the student and crop 2 in the teacher, and the other way round: "mean" or "sum" of the two.
    """
    if symmetrise not in ("mean", "sum"):
        raise ValueError(f"symmetrise must be 'mean' or 'sum', got {symmetrise!r}")
    overlap = overlap_patches(offset_1, offset_2, crops)
    listed_1, listed_2 = [first for first, _ in overlap], [second for _, second in overlap]
    options = (student_temperature, teacher_temperature, center)
    there = global_consistency_term(
        pool_overlap(student_1, listed_1), pool_overlap(teacher_2, listed_2), *options
    )
    back = global_consistency_term(
        pool_overlap(student_2, listed_2), pool_overlap(teacher_1, listed_1), *options
    )
    return (there + back) / 2.0 if symmetrise == "mean" else there + back


def update_center(
    center: Tensor, teacher_outputs: Sequence[Tensor], momentum: float = 0.9
) -> Tensor:
    """DINO's center (K,): momentum·center + (1-momentum)·mean over all images of all the given outputs (B,K)."""
    rows = [row.double() for output in teacher_outputs for row in output]
    mean = sum(rows, torch.zeros_like(rows[0])) / len(rows)
    return momentum * center.double().reshape(-1) + (1.0 - momentum) * mean


def total_loss(
    global_consistency: Tensor,
    composition: Tensor,
    decomposition: Tensor,
    weights: Sequence[float] = (0.1, 1.0, 1.0),
) -> Tensor:
    """Eq. 8: weighted sum of the three terms in the order of the arguments."""
    terms = (global_consistency, composition, decomposition)
    return sum_of(w * term for w, term in zip(weights, terms, strict=True))
