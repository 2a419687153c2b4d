# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Labels of items: names of classes, their check, and which items are normal."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from monai_afire.data.datalist.datalist_checks import NAMES_HEADERS, DatalistError, item_name
from monai_afire.data.datalist.loading import DrawnSet, read_sections
from monai_afire.utils.garbage_collection import garbage_collection_paused
from monai_afire.utils.text import counted, first_few
from monai_afire.utils.uncertain_labels import check_label_kind

_HEADERS = {
    "label": ("finding_names", "labels"),
    "findings": ("finding_names",),
    **{key: (header,) for key, header in NAMES_HEADERS.items()},
}
_FINDINGS = frozenset((1, 0, -1, None))
_LABEL_KEYS = ("abnormal", "label")


# ---- names of classes


def class_names(
    datalist: str | None = None,
    dataset_dir: str | None = None,
    num_classes: int | None = None,
    key: str = "label",
    weights: str | None = None,
    phantom: DrawnSet | None = None,
) -> list[str]:
    """
    Names of the classes, organs or landmarks of a data set.

    Args:
        datalist: JSON file whose header may hold them: "finding_names" or "labels" for "label", "finding_names" for
            "findings", "organ_names" and "landmark_names" for the others.
        dataset_dir: folder of images.
        num_classes: how many names are expected; None for as many as there are. With one class, the second of two
            names: that of the positives.
        key: "label", "findings", "organs" or "landmarks", or another key, whose names are numbered.
        weights: file of a network that knows names, in whose order they are then; a list without names gets its.
        phantom: whose names are taken without datalist and dataset_dir.

    Returns:
        The names, "class 0", "class 1", ... where there are none.

    Raises:
        DatalistError: when the datalist cannot be read, or its names are not as many as expected, or not those of the
            weights.

    Example:
        >>> class_names(dataset_dir="radiographs", num_classes=2)
        ['class 0', 'class 1']
    """
    if weights:
        return classes_of_weights(weights, datalist, dataset_dir, num_classes, key, phantom)[0]
    source, names = datalist or dataset_dir or "the phantom", []
    if datalist:
        names = _listed_names(read_sections(Path(datalist).expanduser()), key, num_classes)
    elif not dataset_dir and phantom:
        names = phantom.class_names(key)
    if not names and num_classes is None:
        header = _HEADERS.get(key, ("the names",))[0]
        raise DatalistError(
            f'{source}: has no names for {key!r}: add "{header}": ["first", "second", ...] to a datalist, or give '
            "num_classes, to number them."
        )
    if not names:
        return _numbered(key, num_classes or 0)
    if num_classes == 1 and len(names) == 2:
        return names[1:]
    if num_classes not in (None, len(names)):
        raise DatalistError(
            f"{source}: has {len(names)} names for {key!r} ({first_few(names)}), but {num_classes} classes are "
            "expected; correct num_classes or the list's header."
        )
    return names


def _listed_names(content: Mapping[str, Any], key: str, num_classes: int | None) -> list[str]:
    """Names in the header of a list, which may name findings as well as classes: those as many as expected."""
    found = [_header_names(content.get(header)) for header in _HEADERS.get(key, ())]
    fitting_numbers = (1, 2) if num_classes == 1 else (num_classes,)
    fitting = [names for names in found if len(names) in fitting_numbers]
    return next(filter(None, [*fitting, *found]), [])


def _header_names(value: Any) -> list[str]:
    """Names from a header: a list, or the name of each number; none of anything else."""
    if isinstance(value, Mapping):
        numbers = [str(number) for number in range(len(value))]
        value = [value[number] for number in numbers] if set(value) == set(numbers) else []
    return [str(name) for name in value] if isinstance(value, (list, tuple)) else []


def _numbered(key: str, count: int) -> list[str]:
    """Names of classes that have none."""
    return [f"{'class' if key == 'label' else key} {number}" for number in range(count)]


def classes_of_weights(
    weights: str,
    datalist: str | None,
    dataset_dir: str | None,
    num_classes: int | None,
    key: str,
    phantom: DrawnSet | None = None,
) -> tuple[list[str], list[int]]:
    """Names of the classes in the order of the weights, and the position of each in the list's labels."""
    listed = class_names(datalist, dataset_dir, num_classes, key, phantom=phantom)
    known = saved_class_names(weights, default=listed)
    if len(known) == len(listed) and listed == _numbered(key, len(listed)):
        return known, list(range(len(known)))  # the list has no names to compare
    if sorted(known) != sorted(listed):
        raise DatalistError(
            f"{datalist or dataset_dir or 'the phantom'}: the list names the classes {', '.join(listed)}; the weights "
            f"know {', '.join(known)}. Give a list of the same names, in any order, or other weights."
        )
    return known, [listed.index(name) for name in known]


def saved_class_names(weights: str | os.PathLike, default: Sequence[str] = ()) -> list[str]:
    """
    The names of the classes that a file of weights holds.

    Args:
        weights: the file.
        default: names where it has none.

    Returns:
        The names.

    Raises:
        ValueError: when there are neither names nor a default.
    """
    from monai_afire.networks.weights.checkpoint_files import read_description

    description = read_description(weights)
    names = (description.class_names if description is not None else None) or default
    if not names:
        raise ValueError(f"{weights} has no names of classes: give class_names")
    return list(names)


# ---- check of labels


@garbage_collection_paused()
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
    Check the labels of all items before a loss does it with a less clear message.

    Args:
        items: items of a section. Their labels are lists of ``num_classes`` values, 1 (present), 0 (absent), -1
            (uncertain) or None (not mentioned); or each is the number of a class, from 0 to ``num_classes`` - 1. With
            one class, the number is 1, 0 or -1.
        num_classes: number of classes.
        section: name of the section, for messages. In "training", a class that has no positives or no negatives, so
            that nothing can be learned of it, gives a warning; in "validation", a class without positives, which gets
            no threshold.
        source: name of the datalist, for messages.
        names: of the classes, for messages; see :func:`class_names`.
        key: key of the labels.
        label_kind: "multilabel", or "multiclass": each label is the number of a class, from 0 to ``num_classes`` - 1,
            or -1 where it is unknown.

    Returns:
        New items whose labels are ``int``, or lists of ``int`` and None: 1.0 counts as 1, NaN as None.

    Raises:
        DatalistError: when a label is missing, of the wrong length or out of range, or when lists and numbers are
            mixed. The message names items and values.
        ValueError: when the number of classes fits neither the names nor the kind of labels.
    """
    names = _numbered("label", num_classes) if names is None else list(names)
    if num_classes < 1 or len(names) != num_classes:
        raise ValueError(
            f"num_classes must be at least 1 and the number of names, got {num_classes} and {names}"
        )
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
    lists = [number for number, label in enumerate(labels) if isinstance(label, list)]
    if lists and len(lists) < len(labels):
        other = next(number for number, label in enumerate(labels) if not isinstance(label, list))
        raise DatalistError(
            f"{source}: section {section!r} mixes lists of labels ({item_name(items[lists[0]], lists[0])}) and class "
            f"numbers ({item_name(items[other], other)}); give all items labels of one kind."
        )
    if section in ("training", "validation") and labels:
        _warn_about_constant_classes(labels, names, source, section)
    return [{**item, key: label} for item, label in zip(items, labels, strict=True)]


def _accepted_labels(num_classes: int, label_kind: str) -> str:
    """What labels may be."""
    if label_kind == "multiclass":
        return (
            f"numbers from 0 to {num_classes - 1}, or -1 (unknown), as label_kind is 'multiclass'"
        )
    one = f"numbers from 0 to {num_classes - 1}" if num_classes > 1 else "single numbers of these"
    return f"1 (present), 0 (absent), -1 (uncertain) and null in lists of {num_classes}, or {one}"


def _plain_label(value: Any, num_classes: int, label_kind: str) -> int | list[int | None]:
    """A label as a plain number, or a list of plain numbers and None."""
    value = _plain(value)
    if isinstance(value, (list, tuple)):
        if label_kind == "multiclass" or len(value) != num_classes:
            raise ValueError(f"{len(value)} values {value!r}")
        findings = [None if entry != entry else _integer(entry) for entry in value]
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

    Raises:
        DatalistError: for a label that is no number.

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


@garbage_collection_paused()
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
