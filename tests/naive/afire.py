# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""AFiRe's equations as plain loops in float64, written from the paper without a look at the package.

Letters: B images, N lesion variants, L tokens, K clusters, D width, P pixels per patch; `i` and `b` count images, `j`
and `l` tokens. Everything takes and returns NumPy arrays, computes in float64 and leaves its arguments unchanged. For
small sizes only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Array",
    "anomaly_restoration_loss",
    "anomaly_score",
    "anomaly_score_by_definition",
    "category_anchors",
    "category_consistency_loss",
    "category_consistency_loss_variants",
    "cross_entropy",
    "lesion_components",
    "log_sum_exp",
    "patch_labels",
    "prototype_distance",
    "prototype_update",
    "sinkhorn_knopp",
    "softmax",
    "structure_consistency_loss",
    "token_probability_head",
]

Array = NDArray[np.float64]
Index = tuple[int, ...]
# A pair (first, second) of images at one position; `second` None stands for the position's prototype.
Pair = tuple[int, "int | None"]


def log_sum_exp(values: Sequence[float]) -> float:
    """log(Σ exp(v)) with the largest value taken out first; -inf for no value."""
    if len(values) == 0:
        return -math.inf
    largest = max(values)
    if math.isinf(largest):
        return float(largest)
    return largest + math.log(sum(math.exp(v - largest) for v in values))


def softmax(logits: ArrayLike, temperature: float = 1.0) -> Array:
    """Softmax over the last axis of `logits / temperature`: the student's q_S with temperature 0.1."""
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    result = np.empty_like(scaled)
    for index in np.ndindex(*scaled.shape[:-1]):
        total = log_sum_exp(list(scaled[index]))
        for k in range(scaled.shape[-1]):
            result[index][k] = math.exp(scaled[index][k] - total)
    return result


def sinkhorn_knopp(logits: ArrayLike, epsilon: float, num_iters: int) -> Array:
    """Teacher probabilities: M samples (rows) shared out evenly over K clusters (columns), as in SwAV and DINO.

    Q = exp(logits / epsilon), normalized to total 1; each iteration scales the columns to sum 1/K, then the rows to
    sum 1/M. The returned rows sum to 1; without any iteration this is the plain softmax. The largest logit is taken
    out before exp, which the normalization of the total cancels.
    """
    values = np.asarray(logits, dtype=np.float64)
    M, K = values.shape
    q = np.empty((M, K))
    for m, k in np.ndindex(M, K):
        q[m, k] = math.exp((values[m, k] - values.max()) / epsilon)
    q /= q.sum()
    for _ in range(num_iters):
        for k in range(K):
            q[:, k] = q[:, k] / q[:, k].sum() / K
        for m in range(M):
            q[m] = q[m] / q[m].sum() / M
    for m in range(M):
        q[m] = q[m] / q[m].sum()
    return q


def prototype_update(prototypes: ArrayLike | None, q: ArrayLike, momentum: float) -> Array:
    """Eq. 7: the batch mean of the teacher's q (B,L,K), copied at the first update (None), later mixed in: (L,K)."""
    values = np.asarray(q, dtype=np.float64)
    B, L, K = values.shape
    updated = np.empty((L, K))
    for j, k in np.ndindex(L, K):
        mean = sum(values[i, j, k] for i in range(B)) / B
        if prototypes is None:
            updated[j, k] = mean
        else:
            updated[j, k] = (
                momentum * np.asarray(prototypes, dtype=np.float64)[j, k] + (1.0 - momentum) * mean
            )
    return updated


def lesion_components(mask: NDArray) -> list[list[Index]]:
    """Connected groups of non-zero pixels of one map (*S); diagonal neighbors are connected."""
    remaining = {tuple(int(x) for x in index) for index in np.argwhere(mask != 0)}
    steps = [s for s in itertools.product((-1, 0, 1), repeat=mask.ndim) if any(s)]
    components = []
    while remaining:
        stack = [min(remaining)]
        remaining.remove(stack[0])
        component: list[Index] = []
        while stack:
            pixel = stack.pop()
            component.append(pixel)
            for step in steps:
                neighbor = tuple(p + s for p, s in zip(pixel, step, strict=True))
                if neighbor in remaining:
                    remaining.remove(neighbor)
                    stack.append(neighbor)
        components.append(component)
    return components


def patch_labels(
    masks: ArrayLike, patch_size: int | Sequence[int], lesion: str = "component"
) -> NDArray[np.bool_]:
    """Abnormal tokens (B,L) of lesion maps (B,1,*S): mean over the patch > mean over the image (text above Eq. 6).

    Patches are counted in row-major order. The means are compared as exact fractions, so that equal means never
    differ by rounding: a map of zeros has no abnormal token, and in a constant map no patch exceeds the mean. A
    non-zero lesion none of whose patches exceeds the mean marks the brightest of its patches (largest patch mean; the
    first of equals). `lesion="component"`: every connected group of non-zero pixels is a lesion of its own (a faint
    nodule beside a bright consolidation is kept). `lesion="map"`: all non-zero pixels of a map count as one lesion
    (the rule then acts only where all patch means are equal). Under both a constant non-zero map marks its first
    patch.
    """
    values = np.asarray(masks)
    if lesion not in ("component", "map"):
        raise ValueError(f"lesion must be 'component' or 'map', got {lesion!r}")
    space = values.shape[2:]
    size = (patch_size,) * len(space) if isinstance(patch_size, int) else tuple(patch_size)
    if values.shape[1] != 1 or any(s % p for s, p in zip(space, size, strict=True)):
        raise ValueError(
            f"masks of shape {values.shape} are not (B,1,*S) with sides divisible by {size}"
        )
    return np.array([_image_labels(image[0], size, lesion) for image in values], dtype=bool)


def _image_labels(mask: NDArray, size: Index, lesion: str) -> list[bool]:
    patches = list(np.ndindex(*(s // p for s, p in zip(mask.shape, size, strict=True))))
    means: dict[Index, Fraction] = {}
    for patch in patches:
        pixels = mask[tuple(slice(g * p, (g + 1) * p) for g, p in zip(patch, size, strict=True))]
        means[patch] = sum((Fraction(float(v)) for v in pixels.flat), Fraction(0)) / pixels.size
    threshold = sum(means.values(), Fraction(0)) / len(patches)
    abnormal = {patch: means[patch] > threshold for patch in patches}
    components = lesion_components(mask)
    if lesion == "map":
        components = [list(itertools.chain.from_iterable(components))] if components else []
    by_mean_rule = dict(abnormal)
    for component in components:
        touched = sorted(
            {tuple(x // p for x, p in zip(pixel, size, strict=True)) for pixel in component}
        )
        if not any(by_mean_rule[patch] for patch in touched):
            abnormal[max(touched, key=lambda patch: means[patch])] = True
    return [abnormal[patch] for patch in patches]


def token_probability_head(hidden: ArrayLike, vectors: ArrayLike) -> Array:
    """Last layer of the head, one K-way linear layer per token position: logits (B,L,K).

    `hidden` (B,L,D) is the MLP's raw output, `vectors` (L,K,D) the layers' un-normalized rows.
    logits[i,j,k] = <x / ‖x‖, v_jk / ‖v_jk‖>; a norm below 1e-12 counts as 1e-12, so that a zero vector gives zero.
    """
    x, v = np.asarray(hidden, dtype=np.float64), np.asarray(vectors, dtype=np.float64)
    (B, L, D), K = x.shape, v.shape[1]
    logits = np.empty((B, L, K))
    for i, j, k in np.ndindex(B, L, K):
        x_norm = max(math.sqrt(sum(x[i, j, d] ** 2 for d in range(D))), 1e-12)
        v_norm = max(math.sqrt(sum(v[j, k, d] ** 2 for d in range(D))), 1e-12)
        logits[i, j, k] = sum((x[i, j, d] / x_norm) * (v[j, k, d] / v_norm) for d in range(D))
    return logits


def cross_entropy(
    first: Array, second: Array, similarity: str = "paper", eps: float = 1e-8
) -> float:
    """H(first, second) of two probability vectors, [E4]: f(first, second) = exp(-H / τ).

    "paper": -Σ_k first_k log(second_k + eps). "teacher_ce", the arguments exchanged: -Σ_k second_k log(first_k +
    eps). `first` is always the token (the student's q) and `second` what it is compared with (a prototype or another
    token).
    """
    if similarity not in ("paper", "teacher_ce"):
        raise ValueError(f"similarity must be 'paper' or 'teacher_ce', got {similarity!r}")
    weight, inside = (first, second) if similarity == "paper" else (second, first)
    return -sum(
        float(weight[k]) * math.log(inside[k] + eps) for k in range(len(weight)) if weight[k] != 0
    )


def structure_consistency_loss(
    q: ArrayLike,
    prototypes: ArrayLike,
    normal: ArrayLike,
    temperature: float = 1.0,
    similarity: str = "paper",
    eps: float = 1e-8,
) -> float:
    """Eq. 12 with [E4] for q (B,L,K), prototypes (L,K), normal (B,L).

    The mean over all normal tokens (i,j) of -log(f(q_ij,c_j) / Σ_l f(q_ij,c_l)). One mean over the batch's normal
    tokens (not a mean per position). No normal token: 0. With N variants pass q as (B·N,L,K).
    """
    values, c, is_normal = (
        np.asarray(q, dtype=np.float64),
        np.asarray(prototypes, dtype=np.float64),
        np.asarray(normal),
    )
    B, L, _ = values.shape
    terms = []
    for i, j in np.ndindex(B, L):
        if is_normal[i, j]:
            scores = [
                -cross_entropy(values[i, j], c[m], similarity, eps) / temperature for m in range(L)
            ]
            terms.append(log_sum_exp(scores) - scores[j])
    return sum(terms) / len(terms) if terms else 0.0


def category_anchors(
    normal: NDArray, include_abnormal_pairs: bool = False
) -> Iterator[tuple[int, list[Pair], list[Pair]]]:
    """Position, positive pairs and negative pairs of each anchor with at least one positive, [E5].

    Anchors are the normal tokens (i,j). Positives: (i,b) for every other normal token b≠i at j. Negatives, for every
    abnormal token b at j: (i,b), and b with the prototype c_j (the same terms for all anchors at j).
    `include_abnormal_pairs` (ablation, Table 4 row 4, which prints no equation): the abnormal tokens become anchors
    as well, with the other abnormal tokens at j as positives and the normal tokens at j as negatives; no prototype
    takes part in these.
    """
    B, L = normal.shape
    for j, i in itertools.product(range(L), range(B)):
        others = [b for b in range(B) if b != i]
        positives: list[Pair] = [(i, b) for b in others if normal[b, j] == normal[i, j]]
        negatives: list[Pair] = [(i, b) for b in others if normal[b, j] != normal[i, j]]
        if normal[i, j]:
            negatives += [(b, None) for b in range(B) if not normal[b, j]]
        elif not include_abnormal_pairs:
            continue
        if positives:
            yield j, positives, negatives


def category_consistency_loss(
    q: ArrayLike,
    prototypes: ArrayLike,
    normal: ArrayLike,
    temperature: float = 1.0,
    similarity: str = "paper",
    include_abnormal_pairs: bool = False,
    eps: float = 1e-8,
) -> float:
    """Eq. 14-16 with [E5]: mean of -log(pos / (pos + neg)) over the anchors with a positive, see `category_anchors`.

    An anchor without a negative counts with its 0; an anchor without a positive does not count. No anchor: 0.
    """
    values, c = np.asarray(q, dtype=np.float64), np.asarray(prototypes, dtype=np.float64)
    terms = []
    for j, positives, negatives in category_anchors(
        np.asarray(normal, dtype=bool), include_abnormal_pairs
    ):
        scores = []
        for first, second in positives + negatives:
            other = c[j] if second is None else values[second, j]
            scores.append(-cross_entropy(values[first, j], other, similarity, eps) / temperature)
        terms.append(log_sum_exp(scores) - log_sum_exp(scores[: len(positives)]))
    return sum(terms) / len(terms) if terms else 0.0


def category_consistency_loss_variants(
    q: ArrayLike,
    prototypes: ArrayLike,
    normal: ArrayLike,
    temperature: float = 1.0,
    similarity: str = "paper",
    include_abnormal_pairs: bool = False,
    eps: float = 1e-8,
) -> float:
    """[E7]: q (B,N,L,K), normal (B,N,L): the loss over the B images of each variant, then the mean over variants.

    A variant without an anchor enters this mean with 0.
    """
    values, is_normal = np.asarray(q, dtype=np.float64), np.asarray(normal, dtype=bool)
    N = values.shape[1]
    total = 0.0
    for n in range(N):
        total += category_consistency_loss(
            values[:, n],
            prototypes,
            is_normal[:, n],
            temperature,
            similarity,
            include_abnormal_pairs,
            eps,
        )
    return total / N


def anomaly_restoration_loss(
    restored: ArrayLike, target: ArrayLike, abnormal: ArrayLike, abnormal_weight: float = 5.0
) -> float:
    """Eq. 20 for restored and target (B,L,P), abnormal (B,L): Σ w_ij e_ij / Σ w_ij over all images and patches.

    e_ij is the mean squared error over the P pixels of a patch, w_ij is `abnormal_weight` on abnormal patches and 1
    elsewhere. No weight at all (every patch abnormal with weight 0): 0.
    """
    y, x, is_abnormal = (
        np.asarray(restored, dtype=np.float64),
        np.asarray(target, dtype=np.float64),
        np.asarray(abnormal),
    )
    B, L, P = y.shape
    numerator = denominator = 0.0
    for i, j in np.ndindex(B, L):
        weight = abnormal_weight if is_abnormal[i, j] else 1.0
        numerator += weight * sum((y[i, j, p] - x[i, j, p]) ** 2 for p in range(P)) / P
        denominator += weight
    return float(numerator / denominator) if denominator else 0.0


def anomaly_score(
    restored: ArrayLike, target: ArrayLike, reduction: str = "sum"
) -> tuple[Array, Array]:
    """Eq. 51 with [E6] for (B,L,P): scores (B,) = log(1/L Σ_j exp(d_ij)) and map d (B,L); larger = more abnormal.

    d_ij = ‖y_ij - x_ij‖², the sum of squares over the P pixels ("sum", as printed) or their mean ("mean").
    """
    y, x = np.asarray(restored, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction must be 'sum' or 'mean', got {reduction!r}")
    B, L, P = y.shape
    distances, scores = np.empty((B, L)), np.empty(B)
    for i in range(B):
        for j in range(L):
            squares = sum((y[i, j, p] - x[i, j, p]) ** 2 for p in range(P))
            distances[i, j] = squares if reduction == "sum" else squares / P
        scores[i] = log_sum_exp(list(distances[i])) - math.log(L)
    return scores, distances


def anomaly_score_by_definition(
    restored: ArrayLike, target: ArrayLike, reduction: str = "sum"
) -> Array:
    """-log A(x) with A exactly as Eq. 51 prints it, exp and reciprocal included: overflows from a distance of 710."""
    _, distances = anomaly_score(restored, target, reduction)
    normality = [1.0 / (sum(math.exp(d) for d in row) / len(row)) for row in distances]
    return np.array([-math.log(a) for a in normality])


def prototype_distance(
    q: ArrayLike, prototypes: ArrayLike, similarity: str = "paper", eps: float = 1e-8
) -> Array:
    """H(q_ij, c_j) of each token to the prototype of its own position: (B,L), larger = more abnormal."""
    values, c = np.asarray(q, dtype=np.float64), np.asarray(prototypes, dtype=np.float64)
    B, L, _ = values.shape
    distances = np.empty((B, L))
    for i, j in np.ndindex(B, L):
        distances[i, j] = cross_entropy(values[i, j], c[j], similarity, eps)
    return distances
