# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Cosine similarity: l2 normalization that keeps small differences, and spherical k-means."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from monai_afire.utils.precision import at_least_float32

SAME_COSINE = 1e-9
"""Cosines of :func:`l2_normalize` that differ by less are equal: their difference is rounding."""


def l2_normalize(features: torch.Tensor) -> torch.Tensor:
    """
    Divide features by their length, in double precision where the device has it.

    Encoders whose features are all alike have cosines between 0.999999 and 1, in which float32, and TF32 even more,
    sees what is not there.

    Args:
        features: ``(..., D)``.

    Returns:
        The same shape; zeros stay zeros.

    Example:
        >>> l2_normalize(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
        [[0.6, 0.8], [0.0, 0.0]]
    """
    precise = torch.float32 if features.device.type == "mps" else torch.float64
    return F.normalize(features.to(precise), dim=-1)


@torch.no_grad()
def spherical_kmeans(
    features: torch.Tensor,
    num_clusters: int,
    seed: int = 0,
    restarts: int = 4,
    max_iterations: int = 50,
) -> torch.Tensor:
    r"""
    k-means of directions: centers that maximize the features' mean cosine with the nearest of them.

    .. math:: \max_{c_1, \dots, c_K} \frac{1}{N} \sum_i \max_k \cos(x_i, c_k)

    Each start is drawn as in k-means++; the best of all is kept. Draws are made on the CPU, so that the device does
    not matter but for rounding.

    Args:
        features: ``(N, D)``, on any device, which the work is done on.
        num_clusters: K; where there are fewer different features, some centers are the same or of no feature.
        seed: of the starts.
        restarts: how many starts.
        max_iterations: of each start; it ends when no feature changes its center.

    Returns:
        Centers ``(K, D)`` of length 1, at least float32.

    Raises:
        ValueError: for features that are not finite or none, or a number below 1.

    Example:
        >>> features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
        >>> nearest_center(features, spherical_kmeans(features, 2)).bincount().sort().values
        tensor([1, 2])
    """
    if min(num_clusters, restarts, max_iterations) < 1:
        raise ValueError("num_clusters, restarts and max_iterations must be at least 1")
    if features.ndim != 2 or not len(features) or not features.isfinite().all():
        raise ValueError(f"expected finite features (N, D) with N > 0, got {tuple(features.shape)}")
    points = F.normalize(at_least_float32(features), dim=1)
    generator = torch.Generator().manual_seed(seed)
    best, best_cosine = None, -torch.inf
    for _ in range(restarts):
        centers = _improve(points, _start(points, num_clusters, generator), max_iterations)
        cosine = float((points @ centers.T).max(1).values.double().mean())
        if best is None or cosine > best_cosine:
            best, best_cosine = centers, cosine
    assert best is not None
    return best


def nearest_center(features: torch.Tensor, centers: torch.Tensor) -> torch.Tensor:
    """
    The center that each feature is most similar to.

    Args:
        features: ``(N, D)``.
        centers: ``(K, D)`` of length 1, on the same device.

    Returns:
        ``(N,)`` indices.

    Example:
        >>> nearest_center(torch.tensor([[0.1, 3.0]]), torch.eye(2))
        tensor([1])
    """
    return (features.to(centers) @ centers.T).argmax(1)  # the feature's length does not matter


def _start(points: torch.Tensor, num_clusters: int, generator: torch.Generator) -> torch.Tensor:
    """Centers among the points, each drawn with a probability that grows with its distance from the ones before."""
    chosen = [int(torch.randint(len(points), (1,), generator=generator))]
    distance = torch.full((len(points),), torch.inf, device=points.device)
    for _ in range(num_clusters - 1):
        distance = torch.minimum(distance, (1 - points @ points[chosen[-1]]).clamp_min(0).float())
        reach = distance.cpu().double().cumsum(0)
        draw = torch.rand((), generator=generator, dtype=torch.float64) * reach[-1]
        chosen.append(min(int(torch.searchsorted(reach, draw, right=True)), len(points) - 1))
    return points[chosen]


def _improve(points: torch.Tensor, centers: torch.Tensor, max_iterations: int) -> torch.Tensor:
    label = nearest_center(points, centers)
    for _ in range(max_iterations):
        sums = torch.zeros_like(centers).index_add_(0, label, points)
        # a center of no point, or of points that cancel out, stays where it is
        centers = torch.where(
            sums.norm(dim=1, keepdim=True) > 1e-6, F.normalize(sums, dim=1), centers
        )
        before, label = label, nearest_center(points, centers)
        if torch.equal(before, label):
            break
    return centers
