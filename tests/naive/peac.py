# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""PEAC's losses (Eq. 1-3) as plain loops in float64, written from the paper without a look at the package.

Letters: B images, N patches per crop, E embedding width, P pixels per patch; `b` counts images, `m` and `n` patches.
Everything takes torch tensors, computes in float64, returns tensors that autograd can differentiate (nothing is
detached: a fixed teacher is the caller's) and leaves its arguments unchanged. For small sizes only.

Every mean over images comes in two readings. `reduce="active"`: over the images that the term concerns, 0 if there are
none. `reduce="all"`: over all B images, the others counting with 0, as the 1/B of the printed equations does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

__all__ = [
    "appearance_restoration_loss",
    "batch_mean",
    "cosine",
    "global_consistency_loss",
    "global_consistency_term",
    "local_consistency_loss",
    "local_consistency_term",
    "matched_patches",
    "order_classification_loss",
    "patch_cells",
    "sum_of",
    "total_loss",
]

Cell = tuple[int, ...]


def sum_of(terms: Iterable[Tensor]) -> Tensor:
    """Sum of scalars in float64, one after the other; 0 for none."""
    total = torch.zeros((), dtype=torch.float64)
    for term in terms:
        total = total + term
    return total


def batch_mean(terms: Sequence[Tensor], active: Sequence[bool], reduce: str) -> Tensor:
    """Mean of one term per image, those of images that are not active counting as said at the top."""
    if reduce not in ("active", "all"):
        raise ValueError(f"reduce must be 'active' or 'all', got {reduce!r}")
    kept = [term for term, is_active in zip(terms, active, strict=True) if is_active]
    count = len(kept) if reduce == "active" else len(terms)
    total = sum_of(kept)
    return total / count if count else total


def order_classification_loss(
    logits: Tensor, order: Tensor, shuffled: Tensor, reduce: str = "active"
) -> Tensor:
    """L_oc for logits (B,N,N), order (B,N) and shuffled (B,): mean over patches, then over the shuffled images.

    The class of patch `n` is `order[b, n]`. The paper sums over patches: N times this with `reduce="all"`.
    """
    B, N, _ = logits.shape
    terms = []
    for b in range(B):
        total = torch.zeros((), dtype=torch.float64)
        for n in range(N):
            row = logits[b, n].double()
            largest = row.max().detach()
            log_sum = largest + torch.log(sum_of((value - largest).exp() for value in row))
            total = total + log_sum - row[int(order[b, n])]
        terms.append(total / N)
    return batch_mean(terms, [bool(flag) for flag in shuffled], reduce)


def appearance_restoration_loss(
    restored: Tensor, target: Tensor, distorted: Tensor | None = None, reduce: str = "active"
) -> Tensor:
    """L_ar for restored and target (B,N,P): mean over pixels (squared error per patch), patches, then images.

    `distorted` (B,) restricts it to some of the images; None: all. The paper sums over a patch's pixels and over
    patches: N·P times this.
    """
    B, N, P = restored.shape
    terms = []
    for b in range(B):
        total = torch.zeros((), dtype=torch.float64)
        for n in range(N):
            for p in range(P):
                total = total + (restored[b, n, p].double() - target[b, n, p].double()) ** 2 / P
        terms.append(total / N)
    return batch_mean(
        terms, [True] * B if distorted is None else [bool(flag) for flag in distorted], reduce
    )


def cosine(first: Tensor, second: Tensor) -> Tensor:
    """<a, b> / (‖a‖·‖b‖) of two vectors; a norm below 1e-12 counts as 1e-12: with a zero vector the cosine is 0."""
    a, b = first.double(), second.double()
    lengths = (
        torch.linalg.vector_norm(a).clamp_min(1e-12),
        torch.linalg.vector_norm(b).clamp_min(1e-12),
    )
    return sum_of(a[e] / lengths[0] * (b[e] / lengths[1]) for e in range(len(a)))


def global_consistency_term(student: Tensor, teacher: Tensor) -> Tensor:
    """Eq. 1 for pooled, expanded embeddings (B,E): mean over images of 2 - 2·cos(y_s, y_t)."""
    terms = [2.0 - 2.0 * cosine(y_s, y_t) for y_s, y_t in zip(student, teacher, strict=True)]
    return batch_mean(terms, [True] * len(terms), "all")


def global_consistency_loss(
    student_1: Tensor, teacher_2: Tensor, student_2: Tensor, teacher_1: Tensor
) -> Tensor:
    """L_G: Eq. 1 with crop 1 in the student plus (a sum, not a mean) Eq. 1 with crop 2 in the student; all (B,E)."""
    return global_consistency_term(student_1, teacher_2) + global_consistency_term(
        student_2, teacher_1
    )


def patch_cells(offset: Tensor, crop: int) -> list[Cell]:
    """Cell of the image's grid under each patch of a crop of `crop` cells per axis at `offset` (dims,), row-major."""
    corner = [int(value) for value in offset]
    steps = itertools.product(range(crop), repeat=len(corner))
    return [tuple(c + s for c, s in zip(corner, step, strict=True)) for step in steps]


def matched_patches(offset_1: Tensor, offset_2: Tensor, crop: int) -> list[list[tuple[int, int]]]:
    """For each image the pairs (m, n) of patches of crop 1 and of crop 2 that show the same cell; offsets (B,dims)."""
    pairs: list[list[tuple[int, int]]] = []
    for first, second in zip(offset_1, offset_2, strict=True):
        cells_1, cells_2 = patch_cells(first, crop), patch_cells(second, crop)
        pairs.append(
            [
                (m, n)
                for m in range(len(cells_1))
                for n in range(len(cells_2))
                if cells_1[m] == cells_2[n]
            ]
        )
    return pairs


def local_consistency_term(
    student: Tensor,
    teacher: Tensor,
    pairs: Sequence[Sequence[tuple[int, int]]],
    shuffled: Tensor,
    reduce: str = "active",
    pair_reduction: str = "mean",
) -> Tensor:
    """Eq. 2 with [P1] for student and teacher (B,N,E) and each image's pairs (student's patch, teacher's patch).

    Mean over an image's pairs of 2 - 2·cos(p_m, p_n) (`pair_reduction="sum"`: their sum, as printed), times the
    indicator 1 - shuffled, then the mean over images; an image is active if it was not shuffled. An active image
    without a pair counts with 0.
    """
    if pair_reduction not in ("mean", "sum"):
        raise ValueError(f"pair_reduction must be 'mean' or 'sum', got {pair_reduction!r}")
    terms = []
    for b in range(len(student)):
        total = sum_of(2.0 - 2.0 * cosine(student[b, m], teacher[b, n]) for m, n in pairs[b])
        terms.append(total / len(pairs[b]) if pair_reduction == "mean" and pairs[b] else total)
    return batch_mean(terms, [not bool(flag) for flag in shuffled], reduce)


def local_consistency_loss(
    student_1: Tensor,
    teacher_2: Tensor,
    student_2: Tensor,
    teacher_1: Tensor,
    offset_1: Tensor,
    offset_2: Tensor,
    crop: int,
    shuffled: Tensor,
    shuffled_2: Tensor | None = None,
    reduce: str = "active",
    pair_reduction: str = "mean",
) -> Tensor:
    """L_L: Eq. 2 with crop 1 in the student plus (a sum) Eq. 2 with crop 2 in the student.

    Embeddings (B,N,E) of crops of `crop` cells per axis, one cell per patch; offsets (B,dims). `shuffled` (B,) says
    which first crops were shuffled before they entered the student, `shuffled_2` the same of the second crops; None:
    the same indicator in both directions.
    """
    pairs = matched_patches(offset_1, offset_2, crop)
    swapped = [[(n, m) for m, n in image] for image in pairs]
    options = (reduce, pair_reduction)
    first = local_consistency_term(student_1, teacher_2, pairs, shuffled, *options)
    second = shuffled if shuffled_2 is None else shuffled_2
    return first + local_consistency_term(student_2, teacher_1, swapped, second, *options)


def total_loss(
    order: Tensor,
    appearance: Tensor,
    global_consistency: Tensor,
    local_consistency: Tensor,
    weights: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
) -> Tensor:
    """Eq. 3: weighted sum of the four terms in the order of the arguments."""
    terms = (order, appearance, global_consistency, local_consistency)
    return sum_of(w * term for w, term in zip(weights, terms, strict=True))
