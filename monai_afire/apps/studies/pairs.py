# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Places in pairs of images of one subject, found by the most similar feature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from monai.utils import convert_to_tensor

from monai_afire.apps.studies.correspondence import (
    landmark_correspondence,
    same_place_correspondence,
)
from monai_afire.apps.studies.features import finest_stride
from monai_afire.apps.studies.images import Item, StudyImages, disease_set
from monai_afire.apps.studies.study import (
    SAME_PLACE,
    NothingToCompareError,
    StudyResult,
    metrics_table,
)
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.raw_pixels import with_raw_pixels
from monai_afire.transforms.landmark_heatmap import landmark_array, pixels_of_file
from monai_afire.utils.text import image_name

_QUESTION = (
    "Is a place of the first image of a pair found in the second by the most similar feature, with nothing trained? "
    "There are {pairs} pairs with {landmarks} places known in both. Errors are distances from the true place in pixels "
    "of images of {size} pixels, and as a fraction of the longest side; the lower, the better. Copying the coordinates "
    "('{same_place}') is the baseline that needs no encoder: it is as good as the two images lie alike."
)


def pair_study(
    encoders: Mapping[str, RadiographEncoder],
    images: StudyImages,
    items: Sequence[Item],
    transform: Callable[[dict[str, Any]], Item],
    stride: int = 8,
    batch_size: int = 32,
) -> StudyResult:
    """
    Landmark correspondence within pairs of images, as in FIRE.

    Args:
        items: of a datalist. A pair has the files "image" and "image_2", and "landmarks" and "landmarks_2", as many, in
            pixels of their files, (row, column); without any pair among them the study is left out.
        transform: loads and resizes "image"; metadata must be kept.
        stride: pixels between two places that are compared; where it does not divide an encoder's patch, the next
            smaller that does.

    Raises:
        ValueError: for pairs that lack landmarks, or have images or landmarks of different shapes.
    """
    items = [item for item in items if item.get("image_2") is not None]
    if not items:
        raise NothingToCompareError("no item has an image_2, the second image of a pair")
    pairs = [_read_pair(item, transform) for item in items]
    size = pairs[0][0].shape[2:]
    tables = {}
    for name, encoder in with_raw_pixels(encoders).items():
        step = finest_stride(encoder, stride)
        tables[name] = _of_pairs(
            landmark_correspondence(encoder, *pair, [0], step, batch_size=batch_size)
            for pair in pairs
        )
    copied = (same_place_correspondence(places, size, [0]) for _, places in pairs)
    tables[SAME_PLACE] = _of_pairs(copied)
    errors = {name: table.set_index("pair")["error"] for name, table in tables.items()}
    metrics = {
        name: {
            "error": error.mean(),
            "median_error": error.median(),
            "error_fraction": error.mean() / max(size),
        }
        for name, error in errors.items()
    }
    question = _QUESTION.format(
        pairs=len(pairs),
        landmarks=len(tables[SAME_PLACE]),
        size=" x ".join(map(str, size)),
        same_place=SAME_PLACE,
    )
    groups = [str(disease_set(item)) for item in items]
    details = {}
    if len(set(groups)) > 1:
        means = {name: error.groupby(groups.__getitem__).mean() for name, error in errors.items()}
        details["Mean error in pixels by group"] = pd.DataFrame(means).rename_axis(None)
    title = "Places in pairs of images"
    return StudyResult(title, question, metrics_table(metrics), details=details)


def _read_pair(
    item: Item, transform: Callable[[dict[str, Any]], Item]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (2, C, H, W) and landmarks (2, P, 2) in their pixels, NaN where a place is not known."""
    images, places = [], []
    for end in ("", "_2"):
        if item.get(f"landmarks{end}") is None:
            name = image_name(item)
            raise ValueError(f"{name}: has no landmarks{end}, which a pair of images needs")
        image = transform({"image": item[f"image{end}"]})["image"]
        images.append(convert_to_tensor(image, track_meta=False))
        points = pixels_of_file(landmark_array(item[f"landmarks{end}"]), image)
        places.append(torch.as_tensor(points).float())
    if images[0].shape != images[1].shape or places[0].shape != places[1].shape:
        shapes = [tuple(part.shape) for part in (*images, *places)]
        remedy = "resize to one size, and list each landmark in both"
        raise ValueError(f"{image_name(item)}: a pair of shapes {shapes}: {remedy}")
    return torch.stack(images), torch.stack(places)


def _of_pairs(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The rows of all pairs, with the number of their "pair"."""
    return pd.concat(dict(enumerate(tables)), names=["pair", None]).reset_index("pair")
