# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Labels of items: their check, the sections, subsets and folds of labelled items, and the normal ones among them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monai_afire.data.datalist.checks import DatalistError, item_name
from monai_afire.data.datalist.leaks import shared_between
from monai_afire.data.datalist.loading import (
    PATH_KEYS,
    base_folder,
    bundle_items,
    cached_phantom,
    load_radiograph_datalist,
    phantom_arguments,
    read_sections,
)
from monai_afire.data.datalist.names import class_order, saved_class_names
from monai_afire.data.datalist.subsets import cross_validation_items, few_shots, label_subset
from monai_afire.data.phantom.anatomy import LANDMARK_NAMES, ORGAN_NAMES
from monai_afire.data.phantom.lesions import LESION_KINDS
from monai_afire.data.shards.folders import listed_shards
from monai_afire.utils.garbage_collection import garbage_collection_paused
from monai_afire.utils.labels import check_label_kind
from monai_afire.utils.text import first_few

_SECTIONS = ("training", "validation", "test")
_LESION_MASKS = ("mask", "lesion_truth")  # of which a normal image needs none
_PHANTOM_NAMES = {"label": LESION_KINDS, "organs": ORGAN_NAMES, "landmarks": LANDMARK_NAMES}
_HEADERS = {
    "label": ("finding_names", "labels"),
    "findings": ("finding_names",),
    "organs": ("organ_names",),
    "landmarks": ("landmark_names",),
}


@garbage_collection_paused()
def labelled_items(
    section: str,
    dataset_dir: str | None = None,
    datalist: str | None = None,
    phantom_dir: str = "data/phantom",
    phantom: Mapping[str, Any] | None = None,
    label_fraction: float = 1.0,
    num_shots: int | None = None,
    num_folds: int | None = None,
    fold: int = 0,
    seed: int = 0,
    required: Sequence[str] | None = None,
    label_key: str = "label",
    as_key: str = "label",
    class_names: Sequence[str] | None = None,
    label_kind: str = "multilabel",
    spatial_dims: int = 2,
    num_classes: int | None = None,
    weights: str | None = None,
) -> list[dict[str, Any]]:
    """
    Labelled items of one section, of which training takes a part where few labels are to be learnt from.

    The source is that of :func:`monai_afire.data.bundle_items`: the user's folder or list, or else the phantom. Unlike
    there, a patient in two sections is an error: a result on patients that the network was trained on is worthless.

    Args:
        section: "training", "validation" or "test".
        dataset_dir: folder of images, which relative names of the datalist start from.
        datalist: JSON file that lists the images by section.
        phantom_dir: folder of the phantom's files.
        phantom: arguments of :func:`monai_afire.data.export_phantom`.
        label_fraction: fraction of the training patients to learn from, see :func:`label_subset`.
        num_shots: number of training items to learn from, see :func:`few_shots`; None for all.
        num_folds: divide all sections of the list anew, see :func:`cross_validation_items`; None for the list's own
            sections.
        fold: run of the cross-validation, from 0.
        seed: of all choices of patients.
        required: keys that each item must have; a mask of lesions may lack where "abnormal" is 0. None for the label.
        label_key: key of what is to be learnt. Subsets and folds are stratified by it, unless it names files of masks.
        as_key: key that it gets in the items returned.
        class_names: of findings or classes, whose values are checked (:func:`check_label_table`); None for masks and
            landmarks.
        label_kind: "multilabel" or "multiclass", what the values may be, see :func:`check_label_table`.
        spatial_dims: 3 for volumes, see :func:`monai_afire.data.bundle_items`.
        num_classes: for ``weights``, see :func:`class_names`.
        weights: file of a network, into the order of whose classes the labels are put.

    Returns:
        New items, each with ``as_key`` and "index", its place in the returned list.

    Raises:
        DatalistError: when the source is missing, empty or malformed, an item lacks its label or has a wrong one, a
            patient is in two sections, or a choice is out of range. The message names the file, the items or patients,
            the remedy.

    Example:
        >>> import tempfile
        >>> phantom = {"num_patients": {"training": 4}, "image_size": 64, "progress": False}
        >>> items = labelled_items("training", phantom_dir=tempfile.mkdtemp(), phantom=phantom, label_fraction=0.5)
        >>> [(item["index"], item["patient_id"]) for item in items]
        [(0, 'training_00000'), (1, 'training_00001')]
    """
    if label_fraction != 1 and num_shots is not None:
        raise DatalistError(
            f"both label_fraction={label_fraction} and num_shots={num_shots} are given; set the fraction to 1, or the "
            "shots to None."
        )
    if num_folds is None and fold != 0:
        raise DatalistError(f"fold {fold!r} is given without num_folds; give the number of folds, or leave fold out.")
    if section not in _SECTIONS:
        raise DatalistError(f"the sections are training, validation and test, not {section!r}.")
    datalist = datalist or listed_shards(dataset_dir)
    source = Path(datalist).expanduser() if datalist else None
    if not datalist and not dataset_dir:
        source = cached_phantom(phantom_dir, phantom_arguments(phantom, spatial_dims))
    items = _items_of(source, dataset_dir, section, num_folds is not None, bool(datalist), spatial_dims)
    name = str(source or dataset_dir)
    _require(items, [label_key] if required is None else required, section if num_folds is None else "all", name)
    is_file = label_key in PATH_KEYS  # masks are no classes to stratify by
    if not is_file:
        items = _renamed(items, label_key, as_key)
    try:
        if num_folds is not None:
            items = cross_validation_items(items, num_folds, fold, section, seed)
        if section == "training" and num_shots is not None:
            items = few_shots(items, num_shots, seed)
        elif section == "training":
            items = label_subset(items, label_fraction, seed)
    except DatalistError as error:
        raise DatalistError(f"{name}: {error}") from error
    if is_file:
        items = _renamed(items, label_key, as_key)
    if weights:
        _, order = _classes_of_weights(weights, datalist, dataset_dir, num_classes, label_key)
        items = [{**item, as_key: _reordered(item.get(as_key), order)} for item in items]
    if class_names is not None:
        items = check_label_table(items, len(class_names), section, name, class_names, as_key, label_kind)
    for index, item in enumerate(items):
        item["index"] = index
    return items


def class_names(
    datalist: str | None = None,
    dataset_dir: str | None = None,
    num_classes: int | None = None,
    key: str = "label",
    weights: str | None = None,
) -> list[str]:
    """
    Names of the classes, organs or landmarks of a data set.

    Args:
        datalist: JSON file whose header may hold them: "finding_names" or "labels" for "label", "finding_names" for
            "findings", "organ_names" and "landmark_names" for the others.
        dataset_dir: folder of images. Without it and a datalist, the names are those of the phantom.
        num_classes: how many names are expected; None for as many as there are. With one class, the second of two
            names: that of the positives.
        key: "label", "findings", "organs" or "landmarks", or another key, whose names are numbered.
        weights: file of a network that knows names, in whose order they are then; a list without names gets its.

    Returns:
        The names, "class 0", "class 1", ... where there are none.

    Raises:
        DatalistError: when the datalist cannot be read, or its names are not as many as expected, or not those of the
            weights.

    Example:
        >>> class_names(), class_names(dataset_dir="radiographs", num_classes=2)
        (['nodule', 'consolidation', 'effusion', 'cardiomegaly', 'pneumothorax'], ['class 0', 'class 1'])
    """
    if weights:
        return _classes_of_weights(weights, datalist, dataset_dir, num_classes, key)[0]
    names: list[str] = []
    datalist = datalist or listed_shards(dataset_dir)
    if datalist:
        content = read_sections(Path(datalist).expanduser())
        found = [names for header in _HEADERS.get(key, ()) if (names := _header_names(content.get(header)))]
        # a list may name findings as well as classes: the names that are as many as expected
        fitting = [names for names in found if len(names) == num_classes or (num_classes == 1 and len(names) == 2)]
        names = (fitting or found or [[]])[0]
    elif not dataset_dir:
        names = list(_PHANTOM_NAMES.get(key, ()))
    source = datalist or dataset_dir or "the phantom"
    if not names and num_classes is None:
        raise DatalistError(f"{source}: has no names for {key!r}; give num_classes, to number them.")
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


def _numbered(key: str, count: int) -> list[str]:
    """Names of classes that have none."""
    return [f"{'class' if key == 'label' else key} {number}" for number in range(count)]


def _classes_of_weights(
    weights: str, datalist: str | None, dataset_dir: str | None, num_classes: int | None, key: str
) -> tuple[list[str], list[int]]:
    """Names of the classes in the order of the weights, and the place of each in the list's labels."""
    listed = class_names(datalist, dataset_dir, num_classes, key)
    known = saved_class_names(weights, default=listed)
    if len(known) == len(listed) and listed == _numbered(key, len(listed)):  # the list has no names to compare
        return known, list(range(len(known)))
    return known, class_order(known, listed, datalist or dataset_dir or "the phantom")


def _reordered(label: Any, order: Sequence[int]) -> Any:
    """A list of values, files or points in another order, or the number of a class by another numbering."""
    if isinstance(label, (list, tuple)) and len(label) == len(order):
        return [label[place] for place in order]
    is_class = isinstance(label, (int, float)) and len(order) > 1 and label in order
    return order.index(label) if is_class else label


def _items_of(
    source: Path | None, dataset_dir: str | None, section: str, everything: bool, hold_out: bool, spatial_dims: int
) -> list[dict[str, Any]]:
    """Items of a section, or those of all sections, each image once; of a datalist, or of a folder without one."""
    if source is None:
        return bundle_items("all" if everything else section, dataset_dir, spatial_dims=spatial_dims)
    content = read_sections(source)
    sections = [section]
    if everything:
        sections = [name for name in _SECTIONS if content.get(name)] or [section]
    shared = "" if everything else _shared_patients(content, source, dataset_dir)
    found = []
    with warnings.catch_warnings():
        # what these warnings say is an error below, or no matter where all is divided anew
        warnings.filterwarnings("ignore", message=r".*: sections '.*' and '.*' share \d+ ")
        for name in sections:
            found += load_radiograph_datalist(
                dataset_dir,
                source,
                name,
                path_keys=PATH_KEYS,
                hold_out=hold_out and not everything,
                volumes=spatial_dims == 3,
                content=content,
            )
    if shared:
        raise DatalistError(f"{source}: {shared}")
    if not everything:
        return found
    items: dict[str, dict[str, Any]] = {}
    for item in found:
        items.setdefault(str(item["image"]), item)
    return list(items.values())


def _shared_patients(content: Mapping[str, Any], source: Path, dataset_dir: str | None) -> str:
    """Say which patients, or images, are in two of the three sections of a list; "" where none are."""
    sections = {name: content[name] for name in _SECTIONS if isinstance(content.get(name), list)}
    first = next((entry for entries in sections.values() for entry in entries), None)
    shared = shared_between(sections, base_folder(dataset_dir, source, first, "image"))
    for what, several in (("patients", shared["patient"]), ("images", shared["file"])):
        if several:
            shown = first_few(f"{name} ({', '.join(own)})" for name, own in several.items())
            return (
                f"{len(several):,} {what} are in two sections: {shown}; results on them would be "
                "too good. Keep each in one section, or have the patients divided anew with num_folds; where items "
                'have no "patient_id", the names of the files tell the patients.'
            )
    return ""


def _require(items: Sequence[Mapping[str, Any]], keys: Sequence[str], section: str, source: str) -> None:
    """Refuse items that lack one of the keys."""
    for key in keys:
        lacking = [number for number, item in enumerate(items) if not _has(item, key)]
        if lacking:
            shown = first_few(item_name(items[number], number) for number in lacking)
            raise DatalistError(
                f"{source}: {len(lacking):,} of {len(items):,} items of section {section!r} have no {key!r}: {shown}; "
                f"the first of them has {', '.join(items[lacking[0]])}. Give each item its {key!r} in a datalist; "
                "python -m monai_afire.data makes one from the label files of public sets."
            )


def _renamed(items: list[dict[str, Any]], key: str, as_key: str) -> list[dict[str, Any]]:
    return items if key == as_key else [{**item, as_key: item.get(key)} for item in items]


def _has(item: Mapping[str, Any], key: str) -> bool:
    return item.get(key) not in (None, "") or (key in _LESION_MASKS and item.get("abnormal") == 0)


def _header_names(value: Any) -> list[str]:
    """Names from a header: a list, or the name of each number; none of anything else."""
    if isinstance(value, Mapping):
        numbers = {str(number) for number in range(len(value))}
        value = [value[str(number)] for number in range(len(value))] if set(value) == numbers else ()
    return [str(name) for name in value] if isinstance(value, (list, tuple)) else []


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
    """Leave out items whose label is there, but says neither normal nor abnormal: NaN, or an "abnormal" of -1."""
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
    known = without_doubtful(items, "the data")
    labelled = [{"image": item["image"], "label": abnormal_label(item) or 0} for item in known]
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
