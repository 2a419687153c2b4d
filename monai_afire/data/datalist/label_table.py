# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Table of the labels of all items, checked before training starts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from monai_afire.data.datalist.checks import DatalistError, item_name
from monai_afire.utils.garbage_collection import garbage_collection_paused
from monai_afire.utils.labels import check_label_kind
from monai_afire.utils.text import first_few

__all__ = ["check_label_table"]

_PLAIN_LABELS, _PLAIN_TYPES = frozenset((1, 0, -1, None)), {int, type(None)}


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
            that nothing can be learnt of it, gives a warning.
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

    Example:
        >>> check_label_table([{"image": "a.png", "label": [0, 2]}], num_classes=2, section="test")
        Traceback (most recent call last):
        ...
        monai_afire.data.datalist.checks.DatalistError: datalist: section 'test' has 1 wrong label: item 0 (a.png):
        2 for class 1; accepted are 1 (present), 0 (absent), -1 (uncertain) and null in lists of 2, or numbers from 0
        to 1.
    """
    names = [f"class {k}" for k in range(num_classes)] if names is None else list(names)
    if num_classes < 1 or len(names) != num_classes:
        raise ValueError(f"num_classes must be at least 1 and the number of names, got {num_classes} and {names}")
    check_label_kind(label_kind, num_classes)
    read = _class_number if label_kind == "multiclass" else _label
    labels: list[Any] = []
    wrong: list[str] = []
    for number, item in enumerate(items):
        try:
            labels.append(read(item.get(key), names))
        except ValueError as error:
            wrong.append(f"{item_name(item, number)}: {error}")
    if wrong:
        numbers = f"numbers from 0 to {num_classes - 1}" if num_classes > 1 else "single numbers of these"
        many = "label" if len(wrong) == 1 else "labels"
        accepted = f"1 (present), 0 (absent), -1 (uncertain) and null in lists of {num_classes}, or {numbers}"
        if label_kind == "multiclass":
            accepted = f"{numbers}, or -1 (unknown), as label_kind is 'multiclass': lists of findings are 'multilabel'"
        raise DatalistError(
            f"{source}: section {section!r} has {len(wrong):,} wrong {many}: {first_few(wrong)}; accepted are "
            f"{accepted}."
        )
    lists = [number for number, label in enumerate(labels) if isinstance(label, list)]
    if 0 < len(lists) < len(labels):
        other = next(number for number, label in enumerate(labels) if not isinstance(label, list))
        raise DatalistError(
            f"{source}: section {section!r} mixes lists of labels ({item_name(items[lists[0]], lists[0])}) and class "
            f"numbers ({item_name(items[other], other)}); give all items labels of one kind."
        )
    if section == "training":
        _warn_about_constant_classes(labels, names, source)
    return [{**item, key: label} for item, label in zip(items, labels, strict=True)]


def _label(value: Any, names: Sequence[str]) -> int | list[int | None]:
    """A label as plain numbers."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        if len(value) != len(names):
            raise ValueError(f"{len(value)} values {value!r}")
        if set(map(type, value)) <= _PLAIN_TYPES and _PLAIN_LABELS.issuperset(value):  # the rule, and quickly seen
            return list(value)
        return [None if entry != entry else _number(entry, name) for entry, name in zip(value, names, strict=True)]
    number = _number(value, "the class") if len(names) == 1 else _integer(value, "the class")
    if number is None or not (len(names) == 1 or 0 <= number < len(names)):
        raise ValueError("no label" if number is None else f"class {number}")
    return number


def _class_number(value: Any, names: Sequence[str]) -> int:
    """The number of the only class; -1 where it is unknown."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        raise ValueError(f"the list {value!r}")
    number = _integer(value, "the class")
    if not -1 <= number < len(names):
        raise ValueError(f"class {number}")
    return number


def _number(value: Any, name: str) -> int | None:
    """1, 0, -1 or None."""
    number = None if value is None else _integer(value, name)
    if number not in (1, 0, -1, None):
        raise ValueError(f"{value!r} for {name}")
    return number


def _integer(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not float(value).is_integer():
        raise ValueError("no label" if value is None else f"{value!r} for {name}")
    return int(value)


def _warn_about_constant_classes(labels: Sequence[Any], names: Sequence[str], source: str) -> None:
    columns: list[set[Any]] = [set() for _ in names]
    for label in {tuple(label) if isinstance(label, list) else label for label in labels}:
        own = label if isinstance(label, tuple) else [label]
        if not isinstance(label, tuple) and len(names) > 1:
            own = [int(label == k) for k in range(len(names))]
        for column, value in zip(columns, own, strict=True):
            column.add(value)
    for value, what in ((1, "positives"), (0, "negatives")):
        lacking = [name for name, column in zip(names, columns, strict=True) if value not in column]
        if labels and lacking:
            text = f"section 'training' has no {what} of {len(lacking)} of {len(names)} classes"
            warnings.warn(f"{source}: {text}, which cannot be learnt: {first_few(lacking)}.", stacklevel=3)
