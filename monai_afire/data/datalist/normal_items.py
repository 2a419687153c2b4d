# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The normal items of a datalist, which AFiRe is pre-trained on and a detector is fitted to."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from monai_afire.data.datalist.checks import DatalistError
from monai_afire.utils.garbage_collection import garbage_collection_paused
from monai_afire.utils.text import first_few

__all__ = ["abnormal_label", "normal_items", "select_normal_items", "without_doubtful"]

_LABEL_KEYS = ("abnormal", "label")
_UNCERTAIN = -1  # of "abnormal", where the labels do not tell


def abnormal_label(item: Mapping[str, Any]) -> int | None:
    """
    1 for an abnormal, 0 for a normal item, None where the list does not say.

    "abnormal" counts before "label", which may be a class (0 is normal) or a list of findings (none is normal). NaN is
    an empty cell; an "abnormal" of -1 says that the labels do not tell.

    Raises:
        DatalistError: for a label that is no number.

    Example:
        >>> [abnormal_label(item) for item in ({"label": 1}, {"label": [0, 0]}, {"abnormal": -1, "label": 0}, {})]
        [1, 0, None, None]
    """
    given = [value for key in _LABEL_KEYS if (value := item.get(key)) is not None and value == value]
    if not given or item.get("abnormal") == _UNCERTAIN:
        return None
    value = given[0]
    try:
        return int(any(v is not None and v > 0 for v in (value if isinstance(value, (list, tuple)) else [value])))
    except TypeError as error:
        raise DatalistError(f"{item.get('image', 'an item')}: the label {value!r} is no number: give 0 or 1") from error


def without_doubtful(items: Sequence[Mapping[str, Any]], source: str | os.PathLike) -> list[Mapping[str, Any]]:
    """
    Leave out items whose label is there, but says neither normal nor abnormal: NaN, or an "abnormal" of -1.

    Items without a label are kept. A warning counts what is left out.

    Raises:
        DatalistError: for a label that is no number.

    Example:
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     without_doubtful([{"image": "a.png"}, {"image": "b.png", "abnormal": float("nan")}], "list.json")
        [{'image': 'a.png'}]
    """
    doubtful = {
        number
        for number, item in enumerate(items)
        if abnormal_label(item) is None and any(item.get(key) is not None for key in _LABEL_KEYS)
    }
    if doubtful:
        text = f"left {len(doubtful):,} of {len(items):,} items out, whose label says neither normal nor abnormal"
        warnings.warn(f"{source}: {text} (NaN or -1): item {first_few(sorted(doubtful))}.", stacklevel=3)
    return [item for number, item in enumerate(items) if number not in doubtful]


@garbage_collection_paused()
def normal_items(
    items: Sequence[Mapping[str, Any]], limit: int | None = None, quiet: bool = False
) -> list[dict[str, Any]]:
    """
    The items that are not labelled abnormal, nor as not known, evenly thinned out to at most ``limit``.

    Args:
        items: of a datalist; those without a label are taken as normal.
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
    told = without_doubtful(items, "the data")
    labelled = [{"image": item["image"], "label": abnormal_label(item) or 0} for item in told]
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore")
        normal = select_normal_items(labelled, source="the data")
    step = 1 if limit is None else -(-len(normal) // limit)
    return normal[::step]


def select_normal_items(
    items: Sequence[Mapping[str, Any]], *, key: str = "label", normal: int = 0, source: str | os.PathLike = "datalist"
) -> list[dict[str, Any]]:
    """
    Leave abnormal items out of the training list of an anomaly detector, which learns from normal ones only.

    Items without a label are kept. A warning counts and names what is left out.

    Raises:
        DatalistError: When no item remains.

    Example:
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     select_normal_items([{"image": "a.png", "label": 0}, {"image": "b.png", "label": 1}])
        [{'image': 'a.png', 'label': 0}]
    """
    abnormal = [number for number, item in enumerate(items) if item.get(key, normal) != normal]
    if abnormal:
        text = f"left {len(abnormal)} abnormal of {len(items)} training items out: item {first_few(abnormal)}"
        warnings.warn(f"{source}: {text}.", stacklevel=2)
    if len(abnormal) == len(items):
        raise DatalistError(f"{source}: no item has the label {key}={normal} of a normal picture; check the labels.")
    left_out = set(abnormal)
    return [dict(item) for number, item in enumerate(items) if number not in left_out]
