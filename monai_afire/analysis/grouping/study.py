# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Studies of the grouping of features for the report: by position, by landmark, by group of images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch

from monai_afire.analysis.features.raw_pixels import with_raw_pixels
from monai_afire.analysis.features.tokens import (
    WINDOW,
    image_features,
    landmark_features,
    position_features,
    spread_positions,
)
from monai_afire.analysis.grouping.figures import map_figure
from monai_afire.analysis.grouping.measures import group_separation, tsne_map
from monai_afire.analysis.images.study_images import StudyImages, names_or_numbers
from monai_afire.analysis.study import NothingToCompareError, StudyResult
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["ImageMapStudy", "LandmarkMapStudy", "PositionMapStudy"]

_HOW = (
    " Purity is the share of the {k} nearest neighbours, by cosine, that are of the same group, and chance_purity what "
    "features without meaning reach; the silhouette is 1 where groups are tight and far apart and 0 where they mix. "
    "Both are metrics of the features themselves: the maps, by t-SNE, are for the eye, and distances between groups "
    "and their sizes mean nothing in them. Raw pixels are the baseline that has learned nothing."
)


class _MapStudy(ABC):
    """
    What all the maps have in common.

    Args:
        max_images: how many images to look at; a seeded sample where there are more.
        num_neighbors: of the purity.
        seed: of the sampling of images and of t-SNE.
        batch_size: pictures in a pass of an encoder.
        progress: whether to show progress bars.
    """

    needs: Sequence[str] = ()
    title: str
    question: str
    caption: str

    def __init__(
        self,
        max_images: int = 200,
        num_neighbors: int = 5,
        seed: int = 0,
        batch_size: int = 32,
        progress: bool = True,
    ) -> None:
        self.max_images = max_images
        self.num_neighbors = num_neighbors
        self.seed = seed
        self.options: dict[str, Any] = {"batch_size": batch_size, "progress": progress}

    @abstractmethod
    def features(self, encoder: RadiographEncoder, images: StudyImages) -> tuple[torch.Tensor, list[str]]:
        """Features ``(N, D)`` and the group of each; NaN for what is not known."""

    def __call__(self, encoders: Mapping[str, RadiographEncoder], images: StudyImages) -> StudyResult:
        """
        Make the study, see :class:`monai_afire.analysis.Study`.

        Raises:
            NothingToCompareError: when fewer than two groups are known: there is nothing to tell apart.
        """
        sampled = images.sample(self.max_images, self.seed)
        maps, groups, metrics = {}, {}, {}
        for name, encoder in with_raw_pixels(encoders).items():
            features, group = self.features(encoder, sampled)
            known = features.isfinite().all(1)
            groups[name] = [own for own, valid in zip(group, known.tolist(), strict=True) if valid]
            if len(set(groups[name])) < 2:
                raise NothingToCompareError(
                    f"its {len(groups[name])} items have {len(set(groups[name]))} group, so there is nothing to tell "
                    "apart: give images of at least two"
                )
            metrics[name] = group_separation(features[known], groups[name], self.num_neighbors)
            maps[name] = tsne_map(features[known], self.seed)
        captions = {name: f"purity {metric['purity']:.2f}" for name, metric in metrics.items()}
        table = pd.DataFrame.from_dict(metrics, orient="index")
        return StudyResult(
            self.title,
            self.question + _HOW.format(k=self.num_neighbors),
            table,
            {self.caption: map_figure(maps, groups, captions)},
        )


class PositionMapStudy(_MapStudy):
    """
    Tokens by their position in the image (AFiRe, Fig. 5 b).

    Args:
        per_axis: positions along each axis, evenly spread; AFiRe shows 3 x 3.
        max_images: how many images to look at; a seeded sample where there are more.
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
    caption = "t-SNE of tokens, coloured by their row and column in the grid of tokens"

    def __init__(
        self,
        per_axis: int = 3,
        max_images: int = 200,
        num_neighbors: int = 5,
        seed: int = 0,
        batch_size: int = 32,
        progress: bool = True,
    ) -> None:
        super().__init__(max_images, num_neighbors, seed, batch_size, progress)
        self.per_axis = per_axis

    def features(self, encoder: RadiographEncoder, images: StudyImages) -> tuple[torch.Tensor, list[str]]:
        """Tokens of all images, position by position."""
        positions, names = spread_positions(encoder.grid_size, self.per_axis)
        features = position_features(encoder, images.image, positions, **self.options)
        return features.flatten(0, 1), names * len(features)


class LandmarkMapStudy(_MapStudy):
    """
    Windows around landmarks by landmark (PEAC, Fig. 6; ACE, Fig. 6).

    Args:
        window: side of the window as a fraction of the image's; ACE takes 448 of 1024 pixels.
        max_images: how many images to look at; a seeded sample where there are more.
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
    caption = "t-SNE of the mean tokens of windows around landmarks, coloured by landmark"

    def __init__(
        self,
        window: float = WINDOW,
        max_images: int = 200,
        num_neighbors: int = 5,
        seed: int = 0,
        batch_size: int = 32,
        progress: bool = True,
    ) -> None:
        super().__init__(max_images, num_neighbors, seed, batch_size, progress)
        self.window = window

    def features(self, encoder: RadiographEncoder, images: StudyImages) -> tuple[torch.Tensor, list[str]]:
        """Windows of all images, landmark by landmark."""
        assert images.landmarks is not None
        names = names_or_numbers(images.landmark_names, images.landmarks.shape[1])
        features = landmark_features(encoder, images.image, images.landmarks, self.window, **self.options)
        return features.flatten(0, 1), names * len(features)


class ImageMapStudy(_MapStudy):
    """
    Images by their disease set, or any other group (AFiRe, Fig. 5 a and appendix F).

    Args:
        max_images: how many images to look at; a seeded sample where there are more.
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
        "Do images of the same group, e.g. with the same set of diseases, lie together? Features are mean tokens."
    )
    caption = "t-SNE of images, coloured by group"

    def features(self, encoder: RadiographEncoder, images: StudyImages) -> tuple[torch.Tensor, list[str]]:
        """Mean tokens of all images."""
        assert images.group is not None
        return image_features(encoder, images.image, **self.options), [str(group) for group in images.group]
