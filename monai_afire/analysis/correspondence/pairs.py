# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Landmarks of pairs of images that show the same: two examinations of one eye, as in the FIRE data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from tqdm.auto import tqdm

from monai_afire.analysis.correspondence.measures import landmark_correspondence, same_place_correspondence
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder
from monai_afire.transforms.landmarks import landmark_array, pixels_of_file
from monai_afire.utils.text import image_name

__all__ = ["LandmarkPair", "pair_correspondence", "read_landmark_pairs"]

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
    encoder: RadiographEncoder, pairs: Sequence[LandmarkPair], stride: int | None = None, progress: bool = True
) -> pd.DataFrame:
    """
    Find the landmarks of the first image of each pair in the second by the most similar feature.

    Args:
        encoder: any :class:`monai_afire.networks.RadiographEncoder`.
        pairs: of :func:`read_landmark_pairs`, of the encoder's size.
        stride: see :func:`monai_afire.analysis.landmark_correspondence`.
        progress: whether to show a progress bar.

    Returns:
        A row for each landmark known in both, with "pair", "landmark", "error" (pixels of the encoder's input),
        "error_fraction" and "error_same_place", what copying the coordinates reaches.

    Raises:
        ValueError: as :func:`monai_afire.analysis.landmark_correspondence`; for no pair.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> pair = LandmarkPair(torch.rand(2, 1, 32, 32), 31 * torch.rand(2, 3, 2))
        >>> list(pair_correspondence(encoder, [pair], progress=False).columns)
        ['pair', 'landmark', 'error', 'error_fraction', 'error_same_place']
    """
    if not pairs:
        raise ValueError("there is no pair of images: give items with image, image_2, landmarks and landmarks_2")
    tables = []
    for number, pair in enumerate(tqdm(pairs, desc="pairs", unit="pair", disable=not progress)):
        found = landmark_correspondence(encoder, pair.images, pair.landmarks, [0], stride, progress=False)
        copied = same_place_correspondence(pair.landmarks, pair.images.shape[2:], [0])
        table = found[["landmark", "error", "error_fraction"]].assign(error_same_place=copied["error"].to_numpy())
        table.insert(0, "pair", number)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _read(item: Mapping[str, Any], transform: Callable[[dict[str, Any]], Mapping[str, Any]]) -> LandmarkPair:
    name = image_name(item)
    lacking = [key + end for key in ("image", "landmarks") for end in ("", _SECOND) if item.get(key + end) is None]
    if lacking:
        raise ValueError(f"{name}: has no {' and no '.join(lacking)}, which a pair of images needs")
    images, places = [], []
    for end in ("", _SECOND):
        image = transform({"image": item["image" + end]})["image"]
        points = landmark_array(item["landmarks" + end], image.ndim - 1)
        images.append(torch.as_tensor(image))
        places.append(torch.as_tensor(pixels_of_file(points, image)).float())
    if images[0].shape != images[1].shape or places[0].shape != places[1].shape:
        shapes = (
            f"images {tuple(images[0].shape)} and {tuple(images[1].shape)} with {len(places[0])} and {len(places[1])}"
        )
        raise ValueError(f"{name}: the pair has {shapes} landmarks: resize to one size, and list each landmark in both")
    plain = [image.as_subclass(torch.Tensor) for image in images]
    return LandmarkPair(torch.stack(plain), torch.stack(places))
