# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which images a detector is validated and evaluated on, and where their lesions are."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from monai_afire.data.datalist_checks import DatalistError, select_normal_items
from monai_afire.transforms.controlled_lesions import controlled_lesion_items
from monai_afire.transforms.radiograph_loading import LoadRadiograph
from monai_afire.utils.memory import garbage_collection_paused

__all__ = ["abnormal_label", "detection_items", "lesion_truth", "normal_items", "validation_items"]

_MASK_KEYS = ("lesion_truth", "mask")


def abnormal_label(item: Mapping[str, Any]) -> int | None:
    """
    1 for an abnormal, 0 for a normal item, None where the list does not say.

    "abnormal" counts before "label", which may be a class (0 is normal) or a list of findings (none is normal).

    Raises:
        DatalistError: for a label that is no number.

    Example:
        >>> [abnormal_label(item) for item in ({"label": 1}, {"label": [0, 0]}, {"abnormal": 1, "label": 0}, {})]
        [1, 0, 1, None]
    """
    value = next((item[key] for key in ("abnormal", "label") if item.get(key) is not None), None)
    if value is None or value != value:  # None and NaN: an empty cell
        return None
    try:
        return int(any(v is not None and v > 0 for v in (value if isinstance(value, (list, tuple)) else [value])))
    except TypeError as error:
        raise DatalistError(f"{item.get('image', 'an item')}: the label {value!r} is no number: give 0 or 1") from error


@garbage_collection_paused()
def normal_items(
    items: Sequence[Mapping[str, Any]], limit: int | None = None, quiet: bool = False
) -> list[dict[str, Any]]:
    """
    The items that are not labelled abnormal, evenly thinned out to at most ``limit``.

    Args:
        items: of a data list; those without a label are taken as normal.
        limit: largest number of items to return; None for all.
        quiet: False warns of abnormal items, which may be in a training section by mistake.

    Returns:
        New items with "image" and "label" alone.

    Raises:
        DatalistError: when none is left.
        ValueError: for a limit below 1.

    Example:
        >>> normal_items([{"image": "a", "label": 0}, {"image": "b"}], limit=1)
        [{'image': 'a', 'label': 0}]
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, or None for all, got {limit}")
    labelled = [{"image": item["image"], "label": abnormal_label(item) or 0} for item in items]
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore")
        normal = select_normal_items(labelled, source="the data")
    step = 1 if limit is None else -(-len(normal) // limit)
    return normal[::step]


def detection_items(
    items: Sequence[Mapping[str, Any]], lesions: Mapping[str, Any] | None = None, section: str = "test"
) -> list[dict[str, Any]]:
    """
    Labelled items for an evaluation, and copies of the normal ones to be painted with lesions.

    Args:
        items: of a data list, each with a label.
        lesions: "kinds", "contrasts" and "sizes" of :func:`monai_afire.transforms.controlled_lesion_items`; None or
            empty for no copies.
        section: name of the section, for messages.

    Returns:
        Items with "image", "label" (0 or 1), "lesion" (None, or what to paint) and "index" (their own number), and
        what the list says otherwise.

    Raises:
        DatalistError: when items have no label.

    Example:
        >>> items = detection_items([{"image": "a.png", "label": 0}, {"image": "b.png", "label": 1}])
        >>> [(item["index"], item["label"], item["lesion"]) for item in items]
        [(0, 0, None), (1, 1, None)]
    """
    unlabelled = [number for number, item in enumerate(items) if abnormal_label(item) is None]
    if unlabelled:
        raise DatalistError(
            f"{len(unlabelled)} of {len(items)} items of section {section!r} have no label (first: item "
            f"{unlabelled[0]}): give each 'label' or 'abnormal', 0 for normal"
        )
    known = [{**item, "label": abnormal_label(item), "lesion": None} for item in items]
    painted = []
    if lesions:
        normal = [item for item in known if not item["label"]]
        copies = controlled_lesion_items(normal, **lesions)
        painted = [{**item, "label": 1} for item in copies if item.get("lesion")]
    every = [{**item, "index": index} for index, item in enumerate([*known, *painted])]
    for item in every:
        item.pop("abnormal", None)
    return every


def validation_items(items: Sequence[Mapping[str, Any]], lesions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """
    Items to validate a detector on: as labelled, or, without an abnormal one, with painted lesions in their place.

    Args:
        items: of the section "validation"; an item without a label is taken as normal.
        lesions: see :func:`detection_items`.

    Example:
        >>> lesions = {"kinds": ["SoftNodule"], "contrasts": [0.2], "sizes": [0.1]}
        >>> [item["label"] for item in validation_items([{"image": "a.png"}, {"image": "b.png"}], lesions)]
        [0, 0, 1, 1]
    """
    labels = [abnormal_label(item) or 0 for item in items]
    labelled = [{**item, "abnormal": label} for item, label in zip(items, labels, strict=True)]
    return detection_items(labelled, None if 0 < sum(labels) < len(labels) else lesions, "validation")


def lesion_truth(item: Mapping[str, Any], spatial_shape: Sequence[int], size: Sequence[int]) -> np.ndarray | None:
    """
    Where an item's lesions are, by its mask ("lesion_truth" or "mask") or else by its boxes.

    Args:
        item: of a data list; "boxes" are [x, y, width, height] in pixels of the image.
        spatial_shape: (rows, columns) of the image.
        size: (rows, columns) of the mask wanted.

    Returns:
        ``(rows, columns)`` bool, None where the list does not say. A pixel that a box touches belongs to it.

    Example:
        >>> lesion_truth({"boxes": [[4, 0, 4, 4]]}, spatial_shape=(8, 8), size=(2, 4)).astype(int).tolist()
        [[0, 0, 1, 1], [0, 0, 0, 0]]
    """
    path = next((item[key] for key in _MASK_KEYS if item.get(key)), None)
    if path is not None:
        mask = torch.as_tensor(np.asarray(LoadRadiograph(scaling="none")(path))).float() > 0
        return (F.interpolate(mask[None].float(), size=tuple(size), mode="area")[0, 0] >= 0.5).numpy()
    boxes = item.get("boxes")
    if not boxes:
        return None
    truth = np.zeros(tuple(size), dtype=bool)
    for x, y, width, height in boxes:
        rows, columns = (
            # multiplied first: the quotient of whole numbers is exact where it is whole
            (start * target / int(source), (start + length) * target / int(source))
            for start, length, target, source in zip((y, x), (height, width), size, spatial_shape, strict=True)
        )
        truth[_touched(*rows), _touched(*columns)] = True
    return truth


def _touched(start: float, end: float) -> slice:
    """Pixels between two places along an axis; a slice's negative end would count from the other side."""
    return slice(max(int(np.floor(start)), 0), max(int(np.ceil(end)), 0))
