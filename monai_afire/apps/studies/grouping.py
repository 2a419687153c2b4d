# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Groups: do features of one position, landmark or kind of image lie together?"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from monai_afire.apps.results.pictures.group_map import map_figure
from monai_afire.apps.studies.features.similarity import SAME_COSINE, l2_normalize
from monai_afire.apps.studies.features.tokens import (
    WINDOW,
    image_features,
    landmark_features,
    position_features,
    spread_positions,
)
from monai_afire.apps.studies.images.study_images import StudyImages, names_or_numbers
from monai_afire.apps.studies.study import NothingToCompareError, StudyResult, StudySettings
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.raw_pixels import with_raw_pixels

_MAX_SIMILARITIES = 2**24  # so many similarities are held at a time, 128 MiB of float64


@torch.no_grad()
def neighbor_purity(
    features: torch.Tensor, groups: Sequence[Hashable], num_neighbors: int = 5
) -> float:
    r"""
    Share of each item's nearest neighbors, by cosine, that are of its own group.

    .. math:: \frac{1}{N k} \sum_i \lvert \{ j \in \mathcal{N}_k(i) : g_j = g_i \} \rvert

    An item is no neighbor of its own. Where neighbors are equally near, each counts with the share with which a fair
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
    for rows in torch.arange(len(index), device=index.device).split(
        max(1, _MAX_SIMILARITIES // len(index))
    ):
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
    counts = pd.Series(list(groups), dtype=object).value_counts()
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
    points, index = _known(features, groups)
    return {
        "purity": neighbor_purity(points, index.tolist(), num_neighbors),
        "chance_purity": chance_purity(index.tolist()),
        "silhouette": _silhouette(points, index),
        "num_items": len(index),
        "num_groups": len(index.unique()),
    }


def tsne_map(
    features: torch.Tensor, seed: int = 0, perplexity: float = 30.0
) -> NDArray[np.float32]:
    """
    A map of features in the plane, for the eye: scikit-learn's t-SNE of them, l2-normalized.

    The squared distance of two normalized features is twice their cosine distance. What lies together in such a map
    lies together in the features, but sizes of groups and distances between them mean nothing: take
    :func:`group_separation` for the numbers.

    Args:
        features: ``(N, D)``, none of them NaN; some thousands of rows take a minute.
        seed: of the start and the descent.
        perplexity: about how many neighbors each item keeps; a third of the items, where they are few.

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
        raise ValueError(
            "features with NaN or infinity have no place in a map: leave their rows out"
        )
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
    """L2-normalized features (N', D) of those that are finite, and the index (N',) of their group."""
    if features.ndim != 2 or len(features) != len(groups):
        raise ValueError(
            f"expected features (N, D) and N groups, got {tuple(features.shape)} and {len(groups)} groups"
        )
    finite = features.isfinite().all(1)
    index, _ = pd.factorize(pd.Series(list(groups), dtype=object)[finite.cpu().numpy()])
    return l2_normalize(features[finite]), torch.as_tensor(
        index, dtype=torch.long, device=features.device
    )


def _silhouette(points: torch.Tensor, index: torch.Tensor) -> float:
    # scikit-learn takes a second to import
    from sklearn.metrics import silhouette_score

    if not 2 <= len(index.unique()) < len(index):
        return math.nan
    if (
        1 - points @ points[0]
    ).abs().max() <= SAME_COSINE:  # all are the same: scikit-learn would compare rounding
        return 0.0
    return float(silhouette_score(points.cpu().numpy(), index.cpu().numpy(), metric="cosine"))


_HOW = (
    " Purity is the share of the {k} nearest neighbors, by cosine, that are of the same group; chance_purity is that "
    "of features without meaning. The silhouette is 1 where groups are tight and far apart and 0 where they mix. Maps "
    "are t-SNE, for the eye: distances between groups and their sizes mean nothing. Raw pixels have learned nothing."
)


@dataclass(kw_only=True)
class _MapStudy(StudySettings, ABC):
    """What all the maps have in common."""

    title: ClassVar[str]
    question: ClassVar[str]
    caption: ClassVar[str]

    max_images: int = 200
    num_neighbors: int = 5

    @abstractmethod
    def features(
        self, encoder: RadiographEncoder, images: StudyImages
    ) -> tuple[torch.Tensor, list[str]]:
        """Features ``(N, D)`` and the group of each; NaN for what is not known."""

    def __call__(
        self, encoders: Mapping[str, RadiographEncoder], images: StudyImages
    ) -> StudyResult:
        """Make the study, see :class:`monai_afire.apps.studies.Study`."""
        sampled = images.sample(self.max_images, self.seed)
        maps, groups, metrics = {}, {}, {}
        for name, encoder in with_raw_pixels(encoders).items():
            features, group = self.features(encoder, sampled)
            known = features.isfinite().all(1).numpy()
            groups[name] = np.array(group, dtype=object)[known].tolist()
            number = len(set(groups[name]))
            if number < 2:
                few = f"its {len(groups[name])} items have {number} group"
                raise NothingToCompareError(f"{few}: give images of at least two")
            metrics[name] = group_separation(features[known], groups[name], self.num_neighbors)
            maps[name] = tsne_map(features[known], self.seed)
        captions = {name: f"purity {metric['purity']:.2f}" for name, metric in metrics.items()}
        question, table = (
            self.question + _HOW.format(k=self.num_neighbors),
            pd.DataFrame.from_dict(metrics, "index"),
        )
        return StudyResult(
            self.title, question, table, {self.caption: map_figure(maps, groups, captions)}
        )


@dataclass
class PositionMapStudy(_MapStudy):
    """
    Tokens by their position in the image (AFiRe, Fig. 5 b).

    Args:
        per_axis: positions along each axis, evenly spread; AFiRe shows 3 x 3.
        max_images: the most images to use; a seeded sample of more.
        num_neighbors: of the purity.
        seed: of the sampling of images and of t-SNE.
        batch_size: images in a pass of an encoder.
        progress: whether to show progress bars.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> result = PositionMapStudy(progress=False)({"untrained": encoder}, StudyImages(torch.rand(3, 1, 32, 32)))
        >>> list(result.table.index), result.table["num_groups"].tolist()
        (['untrained', 'raw pixels'], [9, 9])
    """

    title = "Tokens by position"
    question = (
        "Do tokens of the same place of different images lie together? An encoder that adds an embedding of the "
        "position to its tokens gets this for nothing: compare with the untrained one."
    )
    caption = "t-SNE of tokens, colored by their row and column in the grid of tokens"

    per_axis: int = 3

    def features(
        self, encoder: RadiographEncoder, images: StudyImages
    ) -> tuple[torch.Tensor, list[str]]:
        """Tokens of all images, position by position."""
        positions, names = spread_positions(encoder.grid_size, self.per_axis)
        features = position_features(encoder, images.image, positions, **self.encoding)
        return features.flatten(0, 1), names * len(features)


@dataclass
class LandmarkMapStudy(_MapStudy):
    """
    Windows around landmarks by landmark (PEAC, Fig. 6; ACE, Fig. 6).

    Args:
        window: side of the window as a fraction of the image's; ACE takes 448 of 1024 pixels.
        max_images: the most images to use; a seeded sample of more.
        num_neighbors: of the purity.
        seed: of the sampling of images and of t-SNE.
        batch_size: windows in a pass of an encoder.
        progress: whether to show progress bars.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> images = StudyImages(torch.rand(4, 1, 32, 32), landmarks=31 * torch.rand(4, 2, 2))
        >>> LandmarkMapStudy(progress=False)({"untrained": encoder}, images).table["num_items"].tolist()
        [8, 8]
    """

    needs = ("landmarks",)
    title = "Landmarks by their surroundings"
    question = (
        "Do windows around the same landmark of different patients lie together? Each window is cut out and enlarged "
        "to the encoder's input, so its place in the image is not known."
    )
    caption = "t-SNE of the mean tokens of windows around landmarks, colored by landmark"

    window: float = WINDOW

    def features(
        self, encoder: RadiographEncoder, images: StudyImages
    ) -> tuple[torch.Tensor, list[str]]:
        """Windows of all images, landmark by landmark."""
        assert images.landmarks is not None
        names = names_or_numbers(images.landmark_names, images.landmarks.shape[1])
        landmarks = images.detailed_landmarks()
        features = landmark_features(
            encoder, images.detailed, landmarks, self.window, **self.encoding
        )
        return features.flatten(0, 1), names * len(features)


class ImageMapStudy(_MapStudy):
    """
    Images by their disease set, or any other group (AFiRe, Fig. 5 a and appendix F).

    Args:
        max_images: the most images to use; a seeded sample of more.
        num_neighbors: of the purity.
        seed: of the sampling of images and of t-SNE.
        batch_size: images in a pass of an encoder.
        progress: whether to show progress bars.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> images = StudyImages(torch.rand(4, 1, 32, 32), group=["normal", "nodule"] * 2)
        >>> ImageMapStudy(progress=False)({"untrained": encoder}, images).table["chance_purity"].round(3).tolist()
        [0.333, 0.333]
    """

    needs = ("group",)
    title = "Images by group"
    question = (
        "Do images of the same group, e.g. with the same set of diseases, lie together? "
        "Features are mean tokens."
    )
    caption = "t-SNE of images, colored by group"

    def features(
        self, encoder: RadiographEncoder, images: StudyImages
    ) -> tuple[torch.Tensor, list[str]]:
        """Mean tokens of all images."""
        assert images.group is not None
        return image_features(encoder, images.image, **self.encoding), [
            str(group) for group in images.group
        ]
