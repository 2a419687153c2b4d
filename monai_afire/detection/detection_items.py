# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Items that a detector is validated and evaluated on, and the masks of their lesions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.labels import abnormal_label, without_doubtful
from monai_afire.transforms.controlled_lesions import controlled_lesion_items


def detection_items(
    items: Sequence[Mapping[str, Any]],
    lesions: Mapping[str, Any] | None = None,
    section: str = "test",
) -> list[dict[str, Any]]:
    """
    Labeled items for an evaluation, and copies of the normal ones to be painted with lesions.

    Args:
        items: of a datalist, each with a label.
        lesions: "kinds", "contrasts" and "sizes" of ``controlled_lesion_items``; None for no copies.
        section: name of the section, for messages.

    Returns:
        The items with "label" (0 or 1), "lesion" (None, or what to paint) and "index" (their own number).

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
