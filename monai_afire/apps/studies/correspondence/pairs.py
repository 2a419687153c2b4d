# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Places in pairs of images of one subject, found by the most similar feature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from tqdm.auto import tqdm

from monai_afire.apps.studies.correspondence.landmarks import (
    landmark_correspondence,
    same_place_correspondence,
)
from monai_afire.apps.studies.features.dense import finest_stride
from monai_afire.apps.studies.images.reading import disease_set
from monai_afire.apps.studies.images.study_images import StudyImages
from monai_afire.apps.studies.study import (
    SAME_PLACE,
    NothingToCompareError,
    StudyResult,
    StudySettings,
)
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.raw_pixels import with_raw_pixels
from monai_afire.transforms.landmark_heatmap import landmark_array, pixels_of_file
from monai_afire.utils.text import image_name

_SECOND = "_2"


@dataclass(frozen=True)
class LandmarkPair:
    """
    Two images and the places that are the same in both.

    Attributes:
        images: ``(2, C, *S)`` in [0, 1].
        landmarks: ``(2, P, n)`` in pixels of the images, NaN where a place is not known.
    """

    images: torch.Tensor
    landmarks: torch.Tensor


def read_landmark_pairs(
    items: Sequence[Mapping[str, Any]], transform: Callable[[dict[str, Any]], Mapping[str, Any]]
) -> list[LandmarkPair]:
    """
    Load pairs of images with their landmarks.

    Args:
        items: of a datalist, each with the files "image" and "image_2", and "landmarks" and "landmarks_2", as many, in
            pixels of their files, (row, column) or along three axes. A table of FIRE has columns before rows.
        transform: loads and resizes "image"; metadata must be kept.

    Returns:
        A pair for each item.

    Raises:
        ValueError: for an item that lacks something, other numbers of landmarks or images of different shapes.

    Example:
        >>> item = {"image": torch.rand(1, 8, 8), "image_2": torch.rand(1, 8, 8)}
        >>> item |= {"landmarks": [[1.0, 2.0]], "landmarks_2": [[1.5, 2.0]]}
        >>> read_landmark_pairs([item], dict)[0].landmarks.tolist()
        [[[1.0, 2.0]], [[1.5, 2.0]]]
    """
    return [_read(item, transform) for item in items]


def pair_correspondence(
    encoder: RadiographEncoder,
    pairs: Sequence[LandmarkPair],
    stride: int | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """
    Find the landmarks of the first image of each pair in the second by the most similar feature.

    Args:
        encoder: any :class:`monai_afire.networks.RadiographEncoder`.
        pairs: of :func:`read_landmark_pairs`, of the encoder's size.
        stride: see :func:`monai_afire.apps.studies.landmark_correspondence`.
        progress: whether to show a progress bar.

    Returns:
        A row for each landmark known in both, with "pair", "landmark", "error" (pixels of the encoder's input),
        "error_fraction" and "error_same_place", what copying the coordinates reaches.

    Raises:
        ValueError: as :func:`monai_afire.apps.studies.landmark_correspondence`; for no pair.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> pair = LandmarkPair(torch.rand(2, 1, 32, 32), 31 * torch.rand(2, 3, 2))
        >>> list(pair_correspondence(encoder, [pair], progress=False).columns)
        ['pair', 'landmark', 'error', 'error_fraction', 'error_same_place']
    """
    if not pairs:
        raise ValueError(
            "there is no pair of images: give items with image, image_2, landmarks and landmarks_2"
        )
    tables = []
    for number, pair in enumerate(tqdm(pairs, desc="pairs", unit="pair", disable=not progress)):
        found = landmark_correspondence(
            encoder, pair.images, pair.landmarks, [0], stride, progress=False
        )
        copied = same_place_correspondence(pair.landmarks, pair.images.shape[2:], [0])
        table = found[["landmark", "error", "error_fraction"]].assign(
            error_same_place=copied["error"].to_numpy()
        )
        table.insert(0, "pair", number)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _read(
    item: Mapping[str, Any], transform: Callable[[dict[str, Any]], Mapping[str, Any]]
) -> LandmarkPair:
    name = image_name(item)
    lacking = [
        key + end
        for key in ("image", "landmarks")
        for end in ("", _SECOND)
        if item.get(key + end) is None
    ]
    if lacking:
        raise ValueError(f"{name}: has no {' and no '.join(lacking)}, which a pair of images needs")
    images, places = [], []
    for end in ("", _SECOND):
        image = transform({"image": item["image" + end]})["image"]
        points = landmark_array(item["landmarks" + end])
        images.append(torch.as_tensor(image))
        places.append(torch.as_tensor(pixels_of_file(points, image)).float())
    if images[0].shape != images[1].shape or places[0].shape != places[1].shape:
        shapes = [tuple(part.shape) for part in (*images, *places)]
        raise ValueError(
            f"{name}: a pair of shapes {shapes}: resize to one size, and list each landmark in both"
        )
    return LandmarkPair(
        torch.stack([image.as_subclass(torch.Tensor) for image in images]), torch.stack(places)
    )


_QUESTION = (
    "Is a place of the first image of a pair found in the second by the most similar feature, with nothing trained? "
    "There are {pairs} pairs with {landmarks} places known in both. Errors are distances from the true place in pixels "
    "of images of {size} pixels, and as a fraction of the longest side; the lower, the better. Copying the coordinates "
    "('{same_place}') is the baseline that needs no encoder: it is as good as the two images lie alike."
)


@dataclass
class PairStudy(StudySettings):
    """
    Landmark correspondence within pairs of images, as in FIRE, as a study of the report.

    Args:
        items: of a datalist, with "image_2" and "landmarks_2", see
            :func:`monai_afire.apps.studies.read_landmark_pairs`; without any pair among them the study is left out.
        transform: loads and resizes "image"; metadata must be kept.
        stride: pixels between two places that are compared; where it does not divide an encoder's patch, the next
            smaller that does.
        progress: whether to show progress bars.

    Example:
        >>> import torch
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> item = {"image": torch.rand(1, 32, 32), "image_2": torch.rand(1, 32, 32)}
        >>> item |= {"landmarks": [[8.0, 9.0]], "landmarks_2": [[9.0, 9.0]]}
        >>> study, images = PairStudy([item], dict, progress=False), StudyImages(torch.rand(2, 1, 8, 8))
        >>> result = study({"untrained": encoder}, images)
        >>> list(result.table.index), float(result.table.loc["same place", "error"])
        (['untrained', 'raw pixels', 'same place'], 1.0)
    """

    items: Sequence[Mapping[str, Any]]
    transform: Callable[[dict[str, Any]], Mapping[str, Any]]
    stride: int = 8

    def __post_init__(self) -> None:
        self.items = [item for item in self.items if item.get("image_2") is not None]

    def __call__(
        self, encoders: Mapping[str, RadiographEncoder], images: StudyImages
    ) -> StudyResult:
        """Make the study, see :class:`monai_afire.apps.studies.Study`; the report's own images are not used."""
        if not self.items:
            raise NothingToCompareError("no item has an image_2, the second image of a pair")
        pairs = read_landmark_pairs(self.items, self.transform)
        tables: dict[str, pd.DataFrame] = {}
        for name, encoder in with_raw_pixels(encoders).items():
            stride = finest_stride(encoder, self.stride)
            tables[name] = pair_correspondence(encoder, pairs, stride, self.progress)
        any_table = next(iter(tables.values()))
        tables[SAME_PLACE] = any_table.assign(error=any_table["error_same_place"])
        size = pairs[0].images.shape[2:]
        metrics = pd.DataFrame(
            {name: table["error"].agg(["mean", "median"]) for name, table in tables.items()}
        ).T
        metrics = metrics.set_axis(["error", "median_error"], axis=1)
        metrics["error_fraction"] = metrics["error"] / max(size)
        shown = {"size": " x ".join(map(str, size)), "same_place": SAME_PLACE}
        question = _QUESTION.format(pairs=len(pairs), landmarks=len(any_table), **shown)
        return StudyResult(
            "Places in pairs of images", question, metrics, details=self._by_group(tables)
        )

    def _by_group(self, tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """Mean error of each group of pairs, if there are several."""
        groups = [str(disease_set(item)) for item in self.items]
        if len(set(groups)) < 2:
            return {}
        of_groups = {
            name: table.groupby(table["pair"].map(groups.__getitem__))
            for name, table in tables.items()
        }
        means = {name: grouped["error"].mean() for name, grouped in of_groups.items()}
        return {"Mean error in pixels by group": pd.DataFrame(means).rename_axis(None)}
