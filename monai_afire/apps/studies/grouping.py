# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Groups: do features of one position, landmark or kind of image lie together?"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from monai_afire.apps.results.pictures.group_map import map_figure
from monai_afire.apps.studies.features import (
    SAME_COSINE,
    image_features,
    l2_normalize,
    landmark_features,
)
from monai_afire.apps.studies.images import StudyImages, names_or_numbers
from monai_afire.apps.studies.study import NothingToCompareError, StudyResult, metrics_table
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.raw_pixels import with_raw_pixels

Encoders = Mapping[str, RadiographEncoder]
GroupedFeatures = Callable[[RadiographEncoder], tuple[torch.Tensor, list[str]]]

_NEIGHBORS = 5  # of the purity
_PER_AXIS = 3  # positions whose tokens are compared

_POSITION_QUESTION = (
    "Do tokens of the same place of different images lie together? An encoder that adds an embedding of the "
    "position to its tokens gets this for nothing: compare with the untrained one."
)
_LANDMARK_QUESTION = (
    "Do windows around the same landmark of different patients lie together? Each window is cut out and enlarged "
    "to the encoder's input, so its place in the image is not known."
)
_IMAGE_QUESTION = (
    "Do images of the same group, e.g. with the same set of diseases, lie together? "
    "Features are mean tokens."
)
_HOW = (
    " Purity is the share of the {k} nearest neighbors, by cosine, that are of the same group; chance_purity is that "
    "of features without meaning. The silhouette is 1 where groups are tight and far apart and 0 where they mix. Maps "
    "are t-SNE, for the eye: distances between groups and their sizes mean nothing. Raw pixels have learned nothing."
)


def position_map_study(
    encoders: Encoders,
    images: StudyImages,
    seed: int = 0,
    batch_size: int = 32,
) -> StudyResult:
    """Tokens by their position in the image (AFiRe, Fig. 5 b)."""

    def tokens(encoder: RadiographEncoder) -> tuple[torch.Tensor, list[str]]:
        positions, names = spread_positions(encoder.grid_size)
        features = image_features(
            encoder, images.image, batch_size, lambda every: every[:, positions]
        )
        return features.flatten(0, 1), names * len(features)

    title = "Tokens by position"
    caption = "t-SNE of tokens, colored by their row and column in the grid of tokens"
    return _map_study(title, _POSITION_QUESTION, caption, encoders, tokens, seed)


def landmark_map_study(
    encoders: Encoders,
    images: StudyImages,
    seed: int = 0,
    batch_size: int = 32,
) -> StudyResult:
    """Windows around landmarks by landmark (PEAC, Fig. 6; ACE, Fig. 6)."""
    places = images.detailed_landmarks()
    names = names_or_numbers(images.landmark_names, places.shape[1])

    def windows(encoder: RadiographEncoder) -> tuple[torch.Tensor, list[str]]:
        features = landmark_features(encoder, images.detailed, places, batch_size=batch_size)
        return features.flatten(0, 1), names * len(features)

    title = "Landmarks by their surroundings"
    caption = "t-SNE of the mean tokens of windows around landmarks, colored by landmark"
    return _map_study(title, _LANDMARK_QUESTION, caption, encoders, windows, seed)


def image_map_study(
    encoders: Encoders,
    images: StudyImages,
    seed: int = 0,
    batch_size: int = 32,
) -> StudyResult:
    """Images by their disease set, or any other group (AFiRe, Fig. 5 a and appendix F)."""
    groups = [str(group) for group in images.known("group")]

    def means(encoder: RadiographEncoder) -> tuple[torch.Tensor, list[str]]:
        return image_features(encoder, images.image, batch_size), groups

    title, caption = "Images by group", "t-SNE of images, colored by group"
    return _map_study(title, _IMAGE_QUESTION, caption, encoders, means, seed)


def _map_study(
    title: str,
    question: str,
    caption: str,
    encoders: Encoders,
    grouped_features: GroupedFeatures,
    seed: int,
) -> StudyResult:
    """What all the maps have in common."""
    maps, groups, metrics = {}, {}, {}
    for name, encoder in with_raw_pixels(encoders).items():
        features, of_features = grouped_features(encoder)
        known = features.isfinite().all(1)
        groups[name] = [of_features[row] for row in known.nonzero()[:, 0].tolist()]
        number = len(set(groups[name]))
        if number < 2:
            few = f"its {len(groups[name])} items have {number} group"
            raise NothingToCompareError(f"{few}: give images of at least two")
        metrics[name] = group_separation(features[known], groups[name])
        maps[name] = tsne_map(features[known], seed)
    captions = {name: f"purity {metric['purity']:.2f}" for name, metric in metrics.items()}
    figures = {caption: map_figure(maps, groups, captions)}
    asked = question + _HOW.format(k=_NEIGHBORS)
    return StudyResult(title, asked, metrics_table(metrics), figures)


def spread_positions(grid: Sequence[int]) -> tuple[list[int], list[str]]:
    """Indices (row-major) and names, "row, column" from 1, of positions in the middle of three parts of each axis."""
    numbers = [min(_PER_AXIS, size) for size in grid]
    rows, columns = (
        [(2 * part + 1) * size // (2 * number) for part in range(number)]
        for size, number in zip(grid, numbers, strict=True)
    )
    places = [(row, column) for row in rows for column in columns]
    positions = [row * grid[1] + column for row, column in places]
    return positions, [f"{row + 1}, {column + 1}" for row, column in places]


@torch.no_grad()
def group_separation(
    features: torch.Tensor, groups: Sequence[Hashable], num_neighbors: int = _NEIGHBORS
) -> dict[str, float]:
    r"""
    How well the groups of features ``(N, D)`` are apart; rows with NaN are left out.

    Returns:
        "purity", the share of the k nearest neighbors of each item, by cosine, that are of its own group,

        .. math:: \frac{1}{N k} \sum_i \lvert \{ j \in \mathcal{N}_k(i) : g_j = g_i \} \rvert

        (equally near neighbors count with the share with which a fair draw would take them); "chance_purity",
        :math:`\sum_g \frac{n_g}{N} \frac{n_g - 1}{N - 1}`, which features that are all the same reach exactly;
        "silhouette" (scikit-learn's, with the cosine distance: in [-1, 1]; NaN for a single group, and where each item
        is a group of its own), "num_items" and "num_groups" (of items that are not NaN).
    """
    finite = features.isfinite().all(1)
    own = pd.Series(list(groups), dtype=object)[finite.cpu().numpy()]
    index = torch.as_tensor(pd.factorize(own)[0], dtype=torch.long, device=features.device)
    points = l2_normalize(features[finite])
    number, counts = len(index), index.bincount()
    pairs = number * (number - 1)
    return {
        "purity": _purity(points, index, num_neighbors),
        "chance_purity": float((counts * (counts - 1)).sum()) / pairs if pairs else math.nan,
        "silhouette": _silhouette(points, index),
        "num_items": number,
        "num_groups": len(counts),
    }


def _purity(points: torch.Tensor, index: torch.Tensor, num_neighbors: int) -> float:
    """Of normalized features and the index of their group; an item is no neighbor of its own."""
    if len(index) < 2:
        return math.nan
    k = min(num_neighbors, len(index) - 1)
    similarity = (points @ points.T).fill_diagonal_(-torch.inf)
    last = similarity.topk(k, dim=1).values[:, -1:]
    nearer = similarity > last + SAME_COSINE
    tied = (similarity - last).abs() <= SAME_COSINE
    same = index[:, None] == index
    left = (k - nearer.sum(1)) / tied.sum(1)
    return float((((nearer & same).sum(1) + left * (tied & same).sum(1)) / k).mean())


def _silhouette(points: torch.Tensor, index: torch.Tensor) -> float:
    """Scikit-learn's, but 0 where all features are the same: it would compare rounding."""
    from sklearn.metrics import silhouette_score  # takes a second

    if not 2 <= len(index.unique()) < len(index):
        return math.nan
    if (1 - points @ points[0]).abs().max() <= SAME_COSINE:
        return 0.0
    return float(silhouette_score(points.cpu().numpy(), index.cpu().numpy(), metric="cosine"))


def tsne_map(features: torch.Tensor, seed: int = 0) -> NDArray[np.float32]:
    """
    A map ``(N, 2)`` of features in the plane, for the eye: scikit-learn's t-SNE of them, l2-normalized.

    What lies together in such a map lies together in the features, but sizes of groups and distances between them mean
    nothing: take :func:`group_separation` for the numbers.
    """
    from sklearn.manifold import TSNE  # takes a second

    points = l2_normalize(features.detach()).float().cpu().numpy()
    if len(points) < 4 or min(points.shape) < 2:
        return np.stack([np.arange(len(points)), np.zeros(len(points))], axis=1).astype(np.float32)
    # equal features start apart at random: scikit-learn divides by the spread of the principal components
    init = "pca" if np.ptp(points, axis=0).max() > 1e-6 else "random"
    perplexity = min(30.0, (len(points) - 1) / 3)
    return (
        TSNE(perplexity=perplexity, init=init, random_state=seed)
        .fit_transform(points)
        .astype(np.float32)
    )
