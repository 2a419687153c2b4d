# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Equations of anomaly scores: how they follow from tokens, patches and maps over the tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from monai_afire.losses.token_similarity import TokenSimilarity
from monai_afire.utils.precision import at_least_float32


@torch.no_grad()
def anomaly_score(
    restored: torch.Tensor, target: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""
    AFiRe's anomaly score of each image and its map over the tokens: the larger, the more abnormal.

    .. math:: s_i = \log \frac1L \sum_j \exp(d_{ij}), \qquad d_{ij} = \lVert y_{ij} - x_{ij} \rVert^2

    This is :math:`-\log A(x_i)` of Eq. 51, whose A is a normality that overflows from d = 89 in float32. The ranking
    of the images is the same, and s is finite for any finite input.

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
        raise ValueError(f"restored has shape {shapes}, both must be the same (B, L, P)")
    distances = squared_distances(at_least_float32(restored) - at_least_float32(target))
    return log_mean_exp(distances), distances


def squared_distances(errors: torch.Tensor) -> torch.Tensor:
    """Squared lengths ``(B, L)`` of errors ``(B, L, P)``, at most the largest number of the format."""
    distances = errors.square().sum(-1)
    return distances.clamp(max=torch.finfo(distances.dtype).max)


def log_mean_exp(distances: torch.Tensor) -> torch.Tensor:
    """Logarithm ``(B,)`` of the mean exponential of distances ``(B, L)``; finite for finite ones."""
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
        ValueError: when the shapes do not fit each other.

    Example:
        >>> q = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
        >>> prototype_distance(q, torch.tensor([[0.75, 0.25]]))
        tensor([[0.2877],
                [1.3863]])
    """
    if q.ndim != 3 or q.shape[1:] != prototypes.shape:
        shapes = f"{tuple(q.shape)} and the prototypes {tuple(prototypes.shape)}"
        raise ValueError(f"q has shape {shapes} instead of (B, L, K) and (L, K)")
    # one pair per position, so both get an axis of length 1 for the pairs
    likeness = TokenSimilarity(1.0, similarity)(q.unsqueeze(-2), prototypes.unsqueeze(-2))
    return -likeness.squeeze(-1).squeeze(-1)


def interior_tokens(grid_size: Sequence[int]) -> torch.Tensor:
    """
    Which tokens lie off the border of the image, where arms, cables, markers and collimation are.

    Args:
        grid_size: patches along each axis; an axis of fewer than three is all interior.

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


def interior_mean(token_map: torch.Tensor, interior: torch.Tensor) -> torch.Tensor:
    """Mean ``(B,)`` of maps ``(B, L)`` over the interior tokens ``(L,)``; float32 for half precision."""
    token_map = at_least_float32(token_map)
    # a product with 0 or 1 has a fixed shape, which a graph needs; where keeps a border's NaN out
    weights = interior.to(token_map)
    return torch.where(weights > 0, token_map, 0).sum(-1) / weights.sum()


def top_mean(token_map: torch.Tensor, share: float) -> torch.Tensor:
    """
    Mean of the largest values of a map, for a single small lesion.

    Args:
        token_map: ``(B, L)``.
        share: of the L tokens in (0, 1]; rounded to the nearest number of tokens, at least 1.

    Returns:
        ``(B,)``; float32 for half precision.

    Example:
        >>> top_mean(torch.tensor([[1.0, 2.0, 6.0, 3.0]]), share=0.5)
        tensor([4.5000])
    """
    count = max(1, math.floor(share * token_map.shape[1] + 0.5))
    return at_least_float32(token_map).topk(count, dim=-1, sorted=False).values.mean(-1)
