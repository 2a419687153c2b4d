# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Gradients of AFiRe's losses: by hand (loops over the derivative of every term) and by central differences.

Gradients flow through every occurrence of q, as anchor and as partner of another anchor; prototypes are constants (a
buffer).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from .afire import Array, category_anchors, cross_entropy, log_sum_exp

__all__ = [
    "anomaly_restoration_gradient",
    "category_consistency_gradient",
    "category_consistency_gradient_variants",
    "cross_entropy_gradients",
    "numerical_gradient",
    "softmax_gradient",
    "structure_consistency_gradient",
]


def numerical_gradient(fn: Callable[[Array], float], array: ArrayLike, step: float = 1e-5) -> Array:
    """Central differences of fourth order of a scalar function, one entry of `array` at a time.

    `fn` is called with arrays up to 2·step away, so entries inside a logarithm must stay above that.
    """
    point = np.array(array, dtype=np.float64)
    gradient = np.empty_like(point)
    for index in np.ndindex(*point.shape):
        value = {}
        for multiple in (-2, -1, 1, 2):
            moved = point.copy()
            moved[index] += multiple * step
            value[multiple] = fn(moved)
        gradient[index] = (8.0 * (value[1] - value[-1]) - (value[2] - value[-2])) / (12.0 * step)
    return gradient


def cross_entropy_gradients(
    first: Array, second: Array, similarity: str = "paper", eps: float = 1e-8
) -> tuple[Array, Array]:
    """Derivatives of `cross_entropy(first, second)` with respect to `first` and to `second`."""
    weight, inside = (first, second) if similarity == "paper" else (second, first)
    by_weight = np.array([-math.log(v + eps) for v in inside])
    by_inside = np.array([-w / (v + eps) for w, v in zip(weight, inside, strict=True)])
    return (by_weight, by_inside) if similarity == "paper" else (by_inside, by_weight)


def structure_consistency_gradient(
    q: ArrayLike,
    prototypes: ArrayLike,
    normal: ArrayLike,
    temperature: float = 1.0,
    similarity: str = "paper",
    eps: float = 1e-8,
) -> Array:
    """Derivative of `structure_consistency_loss` with respect to q: (B,L,K)."""
    values, c, is_normal = (
        np.asarray(q, dtype=np.float64),
        np.asarray(prototypes, dtype=np.float64),
        np.asarray(normal),
    )
    B, L, _ = values.shape
    gradient = np.zeros_like(values)
    num_normal = int(sum(bool(is_normal[i, j]) for i, j in np.ndindex(B, L)))
    for i, j in np.ndindex(B, L):
        if not is_normal[i, j]:
            continue
        scores = [
            -cross_entropy(values[i, j], c[m], similarity, eps) / temperature for m in range(L)
        ]
        total = log_sum_exp(scores)
        for m in range(L):
            by_score = math.exp(scores[m] - total) - (1.0 if m == j else 0.0)
            by_token, _ = cross_entropy_gradients(values[i, j], c[m], similarity, eps)
            gradient[i, j] += by_score * (-by_token / temperature) / num_normal
    return gradient


def category_consistency_gradient(
    q: ArrayLike,
    prototypes: ArrayLike,
    normal: ArrayLike,
    temperature: float = 1.0,
    similarity: str = "paper",
    include_abnormal_pairs: bool = False,
    eps: float = 1e-8,
) -> Array:
    """Derivative of `category_consistency_loss` with respect to q: (B,L,K)."""
    values, c = np.asarray(q, dtype=np.float64), np.asarray(prototypes, dtype=np.float64)
    gradient = np.zeros_like(values)
    anchors = list(category_anchors(np.asarray(normal, dtype=bool), include_abnormal_pairs))
    for j, positives, negatives in anchors:
        pairs = positives + negatives
        partners = [c[j] if second is None else values[second, j] for _, second in pairs]
        scores = [
            -cross_entropy(values[first, j], partner, similarity, eps) / temperature
            for (first, _), partner in zip(pairs, partners, strict=True)
        ]
        of_all, of_positives = log_sum_exp(scores), log_sum_exp(scores[: len(positives)])
        for position, ((first, second), partner) in enumerate(zip(pairs, partners, strict=True)):
            by_score = math.exp(scores[position] - of_all)
            if position < len(positives):
                by_score -= math.exp(scores[position] - of_positives)
            by_first, by_second = cross_entropy_gradients(
                values[first, j], partner, similarity, eps
            )
            gradient[first, j] -= by_score * by_first / temperature / len(anchors)
            if second is not None:
                gradient[second, j] -= by_score * by_second / temperature / len(anchors)
    return gradient


def category_consistency_gradient_variants(
    q: ArrayLike,
    prototypes: ArrayLike,
    normal: ArrayLike,
    temperature: float = 1.0,
    similarity: str = "paper",
    include_abnormal_pairs: bool = False,
    eps: float = 1e-8,
) -> Array:
    """Derivative of `category_consistency_loss_variants` with respect to q: (B,N,L,K)."""
    values, is_normal = np.asarray(q, dtype=np.float64), np.asarray(normal, dtype=bool)
    gradient = np.zeros_like(values)
    N = values.shape[1]
    for n in range(N):
        gradient[:, n] = category_consistency_gradient(
            values[:, n],
            prototypes,
            is_normal[:, n],
            temperature,
            similarity,
            include_abnormal_pairs,
            eps,
        )
    return gradient / N


def softmax_gradient(
    probabilities: ArrayLike, by_probabilities: ArrayLike, temperature: float = 1.0
) -> Array:
    """From the gradient with respect to `softmax(logits, temperature)` to the one with respect to the logits."""
    p, g = (
        np.asarray(probabilities, dtype=np.float64),
        np.asarray(by_probabilities, dtype=np.float64),
    )
    result = np.empty_like(p)
    for index in np.ndindex(*p.shape[:-1]):
        mean = sum(p[index][k] * g[index][k] for k in range(p.shape[-1]))
        for k in range(p.shape[-1]):
            result[index][k] = p[index][k] * (g[index][k] - mean) / temperature
    return result


def anomaly_restoration_gradient(
    restored: ArrayLike, target: ArrayLike, abnormal: ArrayLike, abnormal_weight: float = 5.0
) -> Array:
    """Derivative of `anomaly_restoration_loss` with respect to `restored`: (B,L,P)."""
    y, x, is_abnormal = (
        np.asarray(restored, dtype=np.float64),
        np.asarray(target, dtype=np.float64),
        np.asarray(abnormal),
    )
    B, L, P = y.shape
    weights = [[abnormal_weight if is_abnormal[i, j] else 1.0 for j in range(L)] for i in range(B)]
    total = sum(sum(row) for row in weights)
    gradient = np.zeros_like(y)
    for i, j, p in np.ndindex(B, L, P):
        if total:
            gradient[i, j, p] = weights[i][j] * 2.0 * (y[i, j, p] - x[i, j, p]) / P / total
    return gradient
