# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Equations of anomaly scores: how they follow from tokens, patches and maps over the tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from monai_afire.losses.token_similarity import TokenSimilarity
from monai_afire.utils.precision import at_least_float32

AGGREGATIONS = ("mean", "interior_mean", "top_k")


@torch.no_grad()
def anomaly_score(
    restored: torch.Tensor, target: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""
    AFiRe's anomaly score of each image and its map over the tokens: the larger, the more abnormal.

    .. math:: s_i = \log \frac1L \sum_j \exp(d_{ij}), \qquad d_{ij} = \lVert y_{ij} - x_{ij} \rVert^2

    This is :math:`-\log A(x_i)` of Eq. 51, whose A is a normality that overflows from d = 89 in float32. The ranking
    of the images is the same; s stays within [0, max d] and is finite for any finite input (distances too large for
    the number format are set to its largest number).

    Args:
        restored: ``(B, L, P)`` restored patches y.
        target: ``(B, L, P)`` patches x of the image, in the same intensity.

    Returns:
        Scores s ``(B,)`` and maps d ``(B, L)``, both >= 0; float32 for half precision. NaN input gives NaN.

    Raises:
        ValueError: when the shapes differ or are not (B, L, P).

    Example:
        >>> score, token_map = anomaly_score(torch.tensor([[[0.0, 0.0], [3.0, 1.0]]]), torch.zeros(1, 2, 2))
        >>> score, token_map
        (tensor([9.3069]), tensor([[ 0., 10.]]))
    """
    if restored.ndim != 3 or restored.shape != target.shape or 0 in restored.shape[1:]:
        shapes = f"{tuple(restored.shape)} and target {tuple(target.shape)}"
        raise ValueError(
            f"restored has shape {shapes}, both must be the same (B, L, P) with L, P > 0"
        )
    distances = squared_distances(at_least_float32(restored) - at_least_float32(target))
    return log_mean_exp(distances), distances


def squared_distances(errors: torch.Tensor) -> torch.Tensor:
    """
    Squared length of the error of each token's patch.

    Args:
        errors: ``(B, L, P)``, in float32 or float64.

    Returns:
        ``(B, L)``, at most the largest number of the format.

    Example:
        >>> squared_distances(torch.tensor([[[3.0, -4.0]]]))
        tensor([[25.]])
    """
    distances = errors.square().sum(-1)
    return distances.clamp(max=torch.finfo(distances.dtype).max)


def log_mean_exp(distances: torch.Tensor) -> torch.Tensor:
    """
    Logarithm of the mean exponential over the tokens, which the largest distances rule.

    Args:
        distances: ``(B, L)``.

    Returns:
        ``(B,)``, finite for finite distances.

    Example:
        >>> log_mean_exp(torch.tensor([[0.0, 10.0]]))
        tensor([9.3069])
    """
    largest = distances.amax(-1, keepdim=True)
    # the mean of exponentials in [0, 1], at least one of them 1, before the logarithm: no large log L to cancel
    return largest.squeeze(-1) + (distances - largest).exp().mean(-1).log()


@torch.no_grad()
def prototype_distance(
    q: torch.Tensor, prototypes: torch.Tensor, similarity: str = "paper"
) -> torch.Tensor:
    r"""
    Cross-entropy of each token to the structural prototype of its own position: the larger, the more abnormal.

    .. math:: H(q_{ij}, c_j) = -\sum_k q_{ijk} \log(c_{jk} + \varepsilon)

    Args:
        q: ``(B, L, K)`` token probabilities.
        prototypes: ``(L, K)``, see :class:`monai_afire.networks.PrototypeBank`.
        similarity: of the contrastive losses the network was trained with, "paper" (above), "teacher_ce" (q and c
            exchanged) or "cosine" (the negative inner product of normalized features).

    Returns:
        ``(B, L)``; float32 for half precision.

    Raises:
        ValueError: when the shapes do not fit each other, and for an unknown similarity.

    Example:
        >>> q = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
        >>> prototype_distance(q, torch.tensor([[0.75, 0.25]]))
        tensor([[0.2877],
                [1.3863]])
    """
    if q.ndim != 3 or q.shape[1:] != prototypes.shape:
        shapes = f"{tuple(q.shape)} and the prototypes {tuple(prototypes.shape)}"
        raise ValueError(
            f"q has shape {shapes} instead of (B, L, K) and (L, K): take both from the same network"
        )
    # one pair per position, so both get an axis of length 1 for the pairs
    likeness = TokenSimilarity(1.0, similarity)(q.unsqueeze(-2), prototypes.unsqueeze(-2))
    return -likeness.squeeze(-1).squeeze(-1)


def interior_tokens(grid_size: Sequence[int]) -> torch.Tensor:
    """
    Which tokens lie off the border of the image, where arms, cables, markers and collimation are.

    Args:
        grid_size: patches along each of n axes; an axis of fewer than three is all interior.

    Returns:
        ``(L,)`` bool, L in row-major order.

    Example:
        >>> interior_tokens((3, 4)).int().tolist()
        [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    """
    inside = torch.ones(tuple(grid_size), dtype=torch.bool)
    for axis, size in enumerate(grid_size):
        if size >= 3:
            inside.select(axis, 0).fill_(False)
            inside.select(axis, size - 1).fill_(False)
    return inside.flatten()


def aggregate_tokens(
    token_map: torch.Tensor,
    how: str = "mean",
    k_fraction: float = 0.1,
    interior: torch.Tensor | None = None,
) -> torch.Tensor:
    """
    One score per image from a map over its tokens.

    Args:
        token_map: ``(B, L)``, the larger, the more abnormal.
        how: "mean" over the tokens (diffuse disease), "interior_mean" over those off the border, or "top_k", the mean
            of the largest values (a small lesion).
        k_fraction: share of the L tokens that "top_k" averages, in (0, 1]; k is rounded to the nearest, at least 1.
        interior: ``(L,)`` bool of :func:`interior_tokens`, for "interior_mean".

    Returns:
        ``(B,)``; float32 for half precision. NaN where a token is NaN.

    Raises:
        ValueError: when the map is not (B, L) with L > 0, for an unknown `how`, a fraction out of range, and for
            "interior_mean" without an interior.

    Example:
        >>> token_map = torch.tensor([[1.0, 2.0, 6.0, 3.0]])
        >>> [aggregate_tokens(token_map, how, k_fraction=0.5).item() for how in ("mean", "top_k")]
        [3.0, 4.5]
    """
    if token_map.ndim != 2 or token_map.shape[1] == 0:
        raise ValueError(
            f"token_map has shape {tuple(token_map.shape)} instead of (B, L) with L > 0"
        )
    if how not in AGGREGATIONS:
        raise ValueError(f"how must be one of {AGGREGATIONS}, got {how!r}")
    if not 0 < k_fraction <= 1:
        raise ValueError(f"k_fraction must be in (0, 1], got {k_fraction}")
    if how == "interior_mean" and interior is None:
        raise ValueError(
            "interior_mean needs to know which tokens are off the border: give interior"
        )
    token_map = at_least_float32(token_map)
    if how == "mean":
        return token_map.mean(-1)
    if how == "interior_mean":
        # a product with 0 or 1 has a fixed shape, which a graph needs; where keeps a border's NaN out
        weights = interior.to(token_map)  # type: ignore[union-attr]
        return torch.where(weights > 0, token_map, 0).sum(-1) / weights.sum()
    k = max(1, math.floor(k_fraction * token_map.shape[1] + 0.5))
    return token_map.topk(k, dim=-1, sorted=False).values.mean(-1)
