# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Items that a detector is validated and evaluated on, and the masks of their lesions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.labels import abnormal_label, without_doubtful
from monai_afire.transforms.controlled_lesions import controlled_lesion_items
from monai_afire.transforms.radiograph_loading import LoadRadiograph

_MASK_KEYS = ("lesion_truth", "mask")


def detection_items(
    items: Sequence[Mapping[str, Any]],
    lesions: Mapping[str, Any] | None = None,
    section: str = "test",
) -> list[dict[str, Any]]:
    """
    Labeled items for an evaluation, and copies of the normal ones to be painted with lesions.

    Args:
        items: of a datalist, each with a label.
        lesions: "kinds", "contrasts" and "sizes" of ``controlled_lesion_items``; None or
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
    unlabeled = [number for number, item in enumerate(items) if abnormal_label(item) is None]
    if unlabeled:
        missing = f"{len(unlabeled)} of {len(items)} items of section {section!r} have no label"
        raise DatalistError(
            f"{missing} (first: item {unlabeled[0]}): give each 'label' or 'abnormal', 0 for normal"
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


def validation_items(
    items: Sequence[Mapping[str, Any]], lesions: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """
    Items to validate a detector on: as labeled, or, without an abnormal one, with painted lesions in their place.

    Args:
        items: of the section "validation"; an item without a label is taken as normal.
        lesions: see :func:`detection_items`.

    Example:
        >>> lesions = {"kinds": ["SoftNodule"], "contrasts": [0.2], "sizes": [0.1]}
        >>> [item["label"] for item in validation_items([{"image": "a.png"}, {"image": "b.png"}], lesions)]
        [0, 0, 1, 1]
    """
    certain = without_doubtful(items, "the section 'validation'")
    labels = [abnormal_label(item) or 0 for item in certain]
    labeled = [{**item, "abnormal": label} for item, label in zip(certain, labels, strict=True)]
    return detection_items(
        labeled, None if 0 < sum(labels) < len(labels) else lesions, "validation"
    )


def lesion_truth(
    item: Mapping[str, Any],
    spatial_shape: Sequence[int],
    size: Sequence[int],
) -> np.ndarray | None:
    """
    Mask of an item's lesions, from its mask ("lesion_truth" or "mask") or else by its boxes.

    Args:
        item: of a datalist; "boxes" are [x, y, width, height] in pixels of the image.
        spatial_shape: (rows, columns) of the image.
        size: (rows, columns) of the mask wanted.

    Returns:
        Bool of this size, None where the list does not say. A pixel that a box touches belongs to it.

    Example:
        >>> lesion_truth({"boxes": [[4, 0, 4, 4]]}, spatial_shape=(8, 8), size=(2, 4)).astype(int).tolist()
        [[0, 0, 1, 1], [0, 0, 0, 0]]
    """
    path = next((item[key] for key in _MASK_KEYS if item.get(key)), None)
    if path is not None:
        mask = torch.as_tensor(np.asarray(LoadRadiograph(scaling="none")(path))).float() > 0
        return (
            F.interpolate(mask[None].float(), size=tuple(size), mode="area")[0, 0] >= 0.5
        ).numpy()
    boxes = item.get("boxes")
    if not boxes:
        return None
    truth = np.zeros(tuple(size), dtype=bool)
    for box in boxes:
        starts, lengths = (box[1], box[0]), (box[3], box[2])
        sides = [
            # multiplied first: the quotient of whole numbers is exact where it is whole
            _touched(start * target / int(source), (start + length) * target / int(source))
            for start, length, target, source in zip(
                starts, lengths, size, spatial_shape, strict=True
            )
        ]
        truth[tuple(sides)] = True
    return truth


def _touched(start: float, end: float) -> slice:
    """Pixels between two places along an axis; a slice's negative end would count from the other side."""
    return slice(max(int(np.floor(start)), 0), max(int(np.ceil(end)), 0))
