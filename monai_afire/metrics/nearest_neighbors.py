# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""k-nearest-neighbor classification of frozen features."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from monai_afire.utils.precision import at_least_float32

_LARGEST_BLOCK = 2**25  # similarities held at once, 128 MB of them


@torch.no_grad()
def knn_predict(
    train_features: torch.Tensor,
    train_labels: torch.Tensor,
    features: torch.Tensor,
    num_neighbors: int = 20,
    temperature: float = 0.07,
) -> torch.Tensor:
    r"""
    Vote of the nearest neighbors by cosine similarity, for each label on its own.

    .. math:: p_k(x) = \frac{\sum_{i \in \mathcal{N}_k(x)} y_{ik} \exp(\cos(x, x_i) / \tau)}
        {\sum_{i \in \mathcal{N}_k(x)} \exp(\cos(x, x_i) / \tau)}

    :math:`\mathcal{N}_k(x)` are the nearest training images whose label k is known; the weights are those of Caron et
    al., DINO, ICCV 2021.

    Args:
        train_features: ``(N, D)``.
        train_labels: ``(N, K)`` of 0 and 1; NaN is missing and has no vote.
        features: ``(M, D)`` of the images to classify, on the same device.
        num_neighbors: how many vote; all, where fewer labels are known.
        temperature: τ; the smaller, the more the nearest count.

    Returns:
        ``(M, K)`` in [0, 1], at least float32; NaN for a label that no training image has.

    Raises:
        ValueError: for features that are not finite, or other labels.
    """
    for name, values in (("train_features", train_features), ("features", features)):
        if not values.isfinite().all():
            raise ValueError(f"{name} are not finite: the network has diverged")
    if not ((train_labels == 0) | (train_labels == 1) | train_labels.isnan()).all():
        raise ValueError("train_labels must be 0, 1 or NaN: see resolve_uncertain()")
    reference = F.normalize(at_least_float32(train_features), dim=1)
    queries = F.normalize(at_least_float32(features), dim=1).to(reference.dtype)
    votes = train_labels.to(reference.dtype)
    # labels that are known for the same images have the same neighbors
    patterns, pattern_of_label = torch.unique(~votes.isnan(), dim=1, return_inverse=True)
    probabilities = queries.new_full((len(queries), votes.shape[1]), torch.nan)
    for number, known in enumerate(patterns.unbind(1)):
        if known.any():
            columns = (pattern_of_label == number).nonzero()[:, 0]
            probabilities[:, columns] = _vote(
                reference[known], votes[known][:, columns], queries, num_neighbors, temperature
            )
    return probabilities


def _vote(
    reference: torch.Tensor,
    votes: torch.Tensor,
    queries: torch.Tensor,
    num_neighbors: int,
    temperature: float,
) -> torch.Tensor:
    """Weighted mean label of the neighbors, (N, D), (N, K) and (M, D) to (M, K); all labels are known."""
    count = min(num_neighbors, len(reference))
    results = []
    for block in queries.split(max(1, _LARGEST_BLOCK // len(reference))):
        similarity, nearest = (block @ reference.T).topk(count, dim=1)
        # softmax is the same ratio of exponentials without their overflow at a small temperature
        weights = (similarity / temperature).softmax(1)
        results.append(torch.einsum("mn,mnk->mk", weights, votes[nearest]))
    return torch.cat(results).clamp(0, 1)  # a sum of weights may exceed 1 by rounding
