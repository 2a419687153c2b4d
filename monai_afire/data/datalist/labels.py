# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Labels of items: their check, and which items are normal."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from monai_afire.data.datalist.class_names import numbered_names
from monai_afire.data.datalist.datalist_checks import DatalistError, item_name
from monai_afire.utils.text import counted, first_few
from monai_afire.utils.uncertain_labels import check_label_kind

_FINDINGS = frozenset((1, 0, -1, None))
_LABEL_KEYS = ("abnormal", "label")


# ---- check of labels


def check_label_table(
    items: Sequence[Mapping[str, Any]],
    num_classes: int,
    section: str = "training",
    source: str = "datalist",
    names: Sequence[str] | None = None,
    key: str = "label",
    label_kind: str = "multilabel",
) -> list[dict[str, Any]]:
    """
    New items with labels that are ``int``, or lists of ``int`` and None, all checked before a loss does it.

    "multilabel" labels are lists of ``num_classes`` values, 1 (present), 0 (absent), -1 (uncertain) or None (not
    mentioned), or each is the number of a class, or 1, 0 or -1 of the only one; "multiclass" ones are numbers of
    classes, or -1 where it is unknown. 1.0 counts as 1, NaN as None. A class without positives or negatives in
    "training" cannot be learned, one without positives in "validation" gets no threshold: a warning names them by
    ``names``. A wrong label is a ``DatalistError`` that names item and value.
    """
    names = numbered_names("label", num_classes) if names is None else list(names)
    check_label_kind(label_kind, num_classes)
    labels: list[Any] = []
    wrong: list[str] = []
    for number, item in enumerate(items):
        try:
            labels.append(_plain_label(item.get(key), num_classes, label_kind))
        except ValueError as error:
            wrong.append(f"{item_name(item, number)}: {error}")
    if wrong:
        raise DatalistError(
            f"{source}: section {section!r} has {counted(len(wrong), 'wrong label')}: {first_few(wrong)}; accepted are "
            f"{_accepted_labels(num_classes, label_kind)}."
        )
    is_list = [isinstance(label, list) for label in labels]
    if len(set(is_list)) > 1:
        lists, numbers = (item_name(items[k], k) for k in map(is_list.index, (True, False)))
        raise DatalistError(
            f"{source}: section {section!r} mixes lists of labels ({lists}) and class numbers ({numbers}); give all "
            "items labels of one kind."
        )
    if section in ("training", "validation") and labels:
        _warn_about_constant_classes(labels, names, source, section)
    return [{**item, key: label} for item, label in zip(items, labels, strict=True)]


def _accepted_labels(num_classes: int, label_kind: str) -> str:
    """What labels may be."""
    classes = f"numbers from 0 to {num_classes - 1}"
    if label_kind == "multiclass":
        return f"{classes}, or -1 (unknown), as label_kind is 'multiclass'"
    one = classes if num_classes > 1 else "single numbers of these"
    return f"1 (present), 0 (absent), -1 (uncertain) and null in lists of {num_classes}, or {one}"


def _plain_label(value: Any, num_classes: int, label_kind: str) -> int | list[int | None]:
    """A label as a plain number, or a list of plain numbers and None."""
    value = _plain(value)
    if isinstance(value, (list, tuple)):
        findings = [None if entry != entry else _integer(entry) for entry in value]
        if label_kind == "multiclass" or len(value) != num_classes:
            raise ValueError(f"{len(value)} values {value!r}")
        if not _FINDINGS.issuperset(findings):
            raise ValueError(repr(value))
        return findings
    number = _integer(value)
    lowest = -1 if label_kind == "multiclass" or num_classes == 1 else 0
    if number is None or not lowest <= number < max(num_classes, 2):
        raise ValueError("no label" if value is None else repr(value))
    return number


def _plain(value: Any) -> Any:
    """Numbers of an array or a tensor; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def _integer(value: Any) -> int | None:
    if value is None or type(value) is int:
        return value
    if not isinstance(value, float) or not value.is_integer():
        raise ValueError(repr(value))
    return int(value)


def _warn_about_constant_classes(
    labels: Sequence[Any], names: Sequence[str], source: str, section: str
) -> None:
    """Name the classes that cannot be learned from a training, or get no threshold from a validation."""
    table = np.array(labels, dtype=float).reshape(len(labels), -1)  # None is NaN
    if table.shape[1] < len(names):
        table = np.where(table < 0, np.nan, table == np.arange(len(names)))
    positive, negative = ((table == value).any(axis=0) for value in (1, 0))
    consequence = "cannot be learned"
    if section == "validation":
        consequence, negative = "get no threshold and no decision", np.ones_like(positive)
    for found, what in ((positive, "positives"), (negative, "negatives")):
        if lacking := [name for name, is_there in zip(names, found, strict=True) if not is_there]:
            warnings.warn(
                f"{source}: section {section!r} has no {what} of {len(lacking)} of {len(names)} classes, which "
                f"{consequence}: {first_few(lacking, 20)}.",
                stacklevel=3,
            )


# ---- normal and abnormal items


def abnormal_label(item: Mapping[str, Any]) -> int | None:
    """
    1 for an abnormal, 0 for a normal item, None where the list does not say.

    "abnormal" counts before "label", which may be a class (0 is normal) or a list of findings (none is normal). NaN is
    an empty cell, and -1 is uncertain. A finding that is uncertain or unknown leaves open whether the item is normal.

    Example:
        >>> [abnormal_label(item) for item in ({"label": 1}, {"label": [0, 0]}, {"label": [0, -1]}, {})]
        [1, 0, None, None]
    """
    given = [_plain(item.get(key)) for key in _LABEL_KEYS]
    value = next((each for each in given if each is not None and each == each), None)
    findings = value if isinstance(value, (list, tuple)) else [value]
    known = [finding for finding in findings if finding is not None and finding == finding]
    try:
        if any(finding > 0 for finding in known):
            return 1
        is_open = len(known) < len(findings) or any(finding < 0 for finding in known)
    except TypeError as error:
        raise DatalistError(
            f"{item.get('image', 'an item')}: the label {value!r} is no number: give 0 or 1"
        ) from error
    return None if is_open else 0


def without_doubtful(
    items: Sequence[Mapping[str, Any]], source: str | os.PathLike
) -> list[Mapping[str, Any]]:
    """Leave out items whose label is there, but says neither normal nor abnormal: NaN, or an "abnormal" of -1."""
    doubtful = {
        number
        for number, item in enumerate(items)
        if abnormal_label(item) is None and any(item.get(key) is not None for key in _LABEL_KEYS)
    }
    if doubtful:
        text = f"left {len(doubtful):,} of {len(items):,} items out, whose label says neither normal nor abnormal"
        warnings.warn(
            f"{source}: {text} (NaN or -1): item {first_few(sorted(doubtful))}.", stacklevel=3
        )
    return [item for number, item in enumerate(items) if number not in doubtful]


def normal_items(
    items: Sequence[Mapping[str, Any]], limit: int | None = None, quiet: bool = False
) -> list[dict[str, Any]]:
    """
    The items that are not labeled abnormal, nor as not known, evenly thinned out to at most ``limit``.

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
    known = without_doubtful(items, "the data")
    labeled = [{"image": item["image"], "label": abnormal_label(item) or 0} for item in known]
    normal = [item for item in labeled if not item["label"]]
    abnormal = [number for number, item in enumerate(labeled) if item["label"]]
    if abnormal and not quiet:
        found = f"left {len(abnormal)} abnormal of {len(labeled)} training items out"
        warnings.warn(f"the data: {found}: item {first_few(abnormal)}.", stacklevel=3)
    if not normal:
        raise DatalistError(
            "the data: no item has the label 0 of a normal image; check the labels."
        )
    count = len(normal) if limit is None else min(limit, len(normal))
    return [normal[number * len(normal) // count] for number in range(count)]
