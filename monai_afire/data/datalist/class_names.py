# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Names of the classes, organs or landmarks of a data set, and of those that weights know."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monai_afire.data.datalist.datalist_checks import NAMES_HEADERS, DatalistError
from monai_afire.data.datalist.loading import read_sections
from monai_afire.utils.text import first_few

if TYPE_CHECKING:
    from monai_afire.data.phantom import PhantomSet

_HEADERS = {
    "label": ("finding_names", "labels"),
    "findings": ("finding_names",),
    **{key: (header,) for key, header in NAMES_HEADERS.items()},
}


def class_names(
    datalist: str | None = None,
    dataset_dir: str | None = None,
    num_classes: int | None = None,
    key: str = "label",
    weights: str | None = None,
    phantom: PhantomSet | None = None,
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
    if not names:
        if num_classes is not None:
            return numbered_names(key, num_classes)
        header = _HEADERS.get(key, ("the names",))[0]
        raise DatalistError(
            f'{source}: has no names for {key!r}: add "{header}": ["first", "second", ...] to a datalist, or give '
            "num_classes, to number them."
        )
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


def numbered_names(key: str, count: int) -> list[str]:
    """Names of classes that have none."""
    return [f"{'class' if key == 'label' else key} {number}" for number in range(count)]


def classes_of_weights(
    weights: str,
    datalist: str | None,
    dataset_dir: str | None,
    num_classes: int | None,
    key: str,
    phantom: PhantomSet | None = None,
) -> tuple[list[str], list[int]]:
    """Names of the classes in the order of the weights, and the position of each in the list's labels."""
    listed = class_names(datalist, dataset_dir, num_classes, key, phantom=phantom)
    known = saved_class_names(weights, default=listed)
    if len(known) == len(listed) and listed == numbered_names(key, len(listed)):
        return known, list(range(len(known)))  # the list has no names to compare
    if sorted(known) != sorted(listed):
        raise DatalistError(
            f"{datalist or dataset_dir or 'the phantom'}: the list names the classes {', '.join(listed)}; the weights "
            f"know {', '.join(known)}. Give a list of the same names, in any order, or other weights."
        )
    return known, [listed.index(name) for name in known]


def saved_class_names(weights: str | os.PathLike, default: Sequence[str] = ()) -> list[str]:
    """The names of the classes that a file of weights holds, or else a default; a ``ValueError`` without both."""
    from monai_afire.networks.weights.checkpoint_files import read_description

    description = read_description(weights)
    names = (description.class_names if description is not None else None) or default
    if not names:
        raise ValueError(f"{weights} has no names of classes: give class_names")
    return list(names)
