# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of how features of one group lie together, and maps of features in the plane."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from monai_afire.analysis.features.similarity import SAME_COSINE, l2_normalize

__all__ = ["chance_purity", "group_separation", "neighbor_purity", "tsne_map"]

_MAX_SIMILARITIES = 2**24  # so many similarities are held at a time, 128 MiB of float64


@torch.no_grad()
def neighbor_purity(features: torch.Tensor, groups: Sequence[Hashable], num_neighbors: int = 5) -> float:
    r"""
    Share of each item's nearest neighbours, by cosine, that are of its own group.

    .. math:: \frac{1}{N k} \sum_i \lvert \{ j \in \mathcal{N}_k(i) : g_j = g_i \} \rvert

    An item is no neighbour of its own. Where neighbours are equally near, each counts with the share with which a fair
    draw would take it, so that features that are all the same reach exactly :func:`chance_purity`.

    Args:
        features: ``(N, D)``, on any device, which the work is done on; rows with NaN are left out.
        groups: the group of each row.
        num_neighbors: k; all others, where there are fewer.

    Returns:
        The share in [0, 1]; NaN for less than two items.

    Raises:
        ValueError: when there are not as many groups as features, or num_neighbors < 1.

    Example:
        >>> neighbor_purity(torch.tensor([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0]]), ["a", "a", "b"], num_neighbors=1)
        0.666...
    """
    if num_neighbors < 1:
        raise ValueError(f"num_neighbors must be at least 1, got {num_neighbors}")
    points, index = _known(features, groups)
    if len(index) < 2:
        return math.nan
    k = min(num_neighbors, len(index) - 1)
    shares = []
    for rows in torch.arange(len(index), device=index.device).split(max(1, _MAX_SIMILARITIES // len(index))):
        similarity = points[rows] @ points.T
        similarity[torch.arange(len(rows), device=rows.device), rows] = -torch.inf
        last = similarity.topk(k, dim=1).values[:, -1:]
        nearer = similarity > last + SAME_COSINE
        tied = (similarity - last).abs() <= SAME_COSINE
        same = index[rows, None] == index
        left = (k - nearer.sum(1)) / tied.sum(1)
        shares.append(((nearer & same).sum(1) + left * (tied & same).sum(1)) / k)
    return float(torch.cat(shares).mean())


def chance_purity(groups: Sequence[Hashable]) -> float:
    r"""
    The purity that features without any meaning reach, :math:`\sum_g \frac{n_g}{N} \frac{n_g - 1}{N - 1}`.

    Args:
        groups: the group of each item.

    Returns:
        The expected share; NaN for less than two items.

    Example:
        >>> chance_purity(["a", "a", "b"])
        0.333...
    """
    number = len(groups)
    if number < 2:
        return math.nan
    counts = np.bincount(_group_index(groups)).astype(np.float64)
    return float((counts * (counts - 1)).sum() / (number * (number - 1)))


@torch.no_grad()
def group_separation(
    features: torch.Tensor, groups: Sequence[Hashable], num_neighbors: int = 5
) -> dict[str, float | int]:
    """
    How well the groups are apart.

    Args:
        features: ``(N, D)``; rows with NaN are left out.
        groups: the group of each row.
        num_neighbors: of :func:`neighbor_purity`.

    Returns:
        "purity", "chance_purity", "silhouette" (scikit-learn's, with the cosine distance: in [-1, 1]; NaN for a single
        group, and where each item is a group of its own), "num_items" and "num_groups" (of items that are not NaN).

    Raises:
        ValueError: as :func:`neighbor_purity`.

    Example:
        >>> group_separation(torch.eye(2).repeat(2, 1), [0, 1, 0, 1], num_neighbors=1)
        {'purity': 1.0, 'chance_purity': 0.333..., 'silhouette': 1.0, 'num_items': 4, 'num_groups': 2}
    """
    purity = neighbor_purity(features, groups, num_neighbors)
    known = [group for group, valid in zip(groups, features.isfinite().all(1).tolist(), strict=True) if valid]
    return {
        "purity": purity,
        "chance_purity": chance_purity(known),
        "silhouette": _silhouette(*_known(features, groups)),
        "num_items": len(known),
        "num_groups": len(set(known)),
    }


def tsne_map(features: torch.Tensor, seed: int = 0, perplexity: float = 30.0) -> NDArray[np.float32]:
    """
    A map of features in the plane, for the eye: scikit-learn's t-SNE of them, l2-normalised.

    The squared distance of two normalised features is twice their cosine distance. What lies together in such a map
    lies together in the features, but sizes of groups and distances between them mean nothing: take
    :func:`group_separation` for the numbers.

    Args:
        features: ``(N, D)``, none of them NaN; some thousands of rows take a minute.
        seed: of the start and the descent.
        perplexity: about how many neighbours each item keeps; a third of the items, where they are few.

    Returns:
        ``(N, 2)``.

    Raises:
        ValueError: for features that are not finite.

    Example:
        >>> tsne_map(torch.rand(12, 5)).shape
        (12, 2)
    """
    # scikit-learn takes a second to import, and whoever wants numbers alone never needs it
    from sklearn.manifold import TSNE

    if not features.isfinite().all():
        raise ValueError("features with NaN or infinity have no place in a map: leave their rows out")
    points = l2_normalize(features.detach()).float().cpu().numpy()
    # equal features start apart at random: scikit-learn divides by the spread of the principal components
    spread = np.ptp(points, axis=0).max() if points.size else 0.0
    if len(points) < 4 or min(points.shape) < 2:
        return np.stack([np.arange(len(points)), np.zeros(len(points))], axis=1).astype(np.float32)
    tsne = TSNE(
        perplexity=min(perplexity, (len(points) - 1) / 3),
        init="pca" if spread > 1e-6 else "random",
        random_state=seed,
    )
    return tsne.fit_transform(points).astype(np.float32)


def _known(features: torch.Tensor, groups: Sequence[Hashable]) -> tuple[torch.Tensor, torch.Tensor]:
    """L2-normalised features (N', D) of those that are finite, and the index (N',) of their group."""
    if features.ndim != 2 or len(features) != len(groups):
        raise ValueError(f"expected features (N, D) and N groups, got {tuple(features.shape)} and {len(groups)} groups")
    finite = features.isfinite().all(1)
    kept = [group for group, valid in zip(groups, finite.tolist(), strict=True) if valid]
    return l2_normalize(features[finite]), torch.as_tensor(_group_index(kept), dtype=torch.long, device=features.device)


def _silhouette(points: torch.Tensor, index: torch.Tensor) -> float:
    # scikit-learn takes a second to import
    from sklearn.metrics import silhouette_score

    if not 2 <= len(index.unique()) < len(index):
        return math.nan
    if (1 - points @ points[0]).abs().max() <= SAME_COSINE:  # all are the same: scikit-learn would compare rounding
        return 0.0
    return float(silhouette_score(points.cpu().numpy(), index.cpu().numpy(), metric="cosine"))


def _group_index(groups: Sequence[Hashable]) -> NDArray[np.int64]:
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in groups], dtype=np.int64)
