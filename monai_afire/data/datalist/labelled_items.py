# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Labelled items for fine-tuning and evaluation: sections, subsets and folds of a datalist, checked."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monai_afire.data.datalist.checks import DatalistError, item_name
from monai_afire.data.datalist.datasets import PATH_KEYS, bundle_items, cached_phantom, phantom_arguments
from monai_afire.data.datalist.label_table import check_label_table
from monai_afire.data.datalist.loading import read_sections, section_items
from monai_afire.data.datalist.patients import item_patients
from monai_afire.data.datalist.shard_folders import listed_shards
from monai_afire.data.datalist.subsets import cross_validation_items, few_shots, label_subset
from monai_afire.data.phantom.anatomy import LANDMARK_NAMES, ORGAN_NAMES
from monai_afire.data.phantom.lesions import LESION_KINDS
from monai_afire.utils.garbage_collection import garbage_collection_paused
from monai_afire.utils.text import first_few

__all__ = ["class_names", "labelled_items"]

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
    if class_names is not None:
        items = check_label_table(items, len(class_names), section, name, class_names, as_key, label_kind)
    for index, item in enumerate(items):
        item["index"] = index
    return items


def class_names(
    datalist: str | None = None, dataset_dir: str | None = None, num_classes: int | None = None, key: str = "label"
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

    Returns:
        The names, "class 0", "class 1", ... where there are none.

    Raises:
        DatalistError: when the datalist cannot be read, or its names are not as many as expected.

    Example:
        >>> class_names(), class_names(dataset_dir="radiographs", num_classes=2)
        (['nodule', 'consolidation', 'effusion', 'cardiomegaly', 'pneumothorax'], ['class 0', 'class 1'])
    """
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
        return [f"{'class' if key == 'label' else key} {number}" for number in range(num_classes or 0)]
    if num_classes == 1 and len(names) == 2:
        return names[1:]
    if num_classes not in (None, len(names)):
        raise DatalistError(
            f"{source}: has {len(names)} names for {key!r} ({first_few(names)}), but {num_classes} classes are "
            "expected; correct num_classes or the list's header."
        )
    return names


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
    shared = "" if everything else _shared_patients(content)
    found = []
    with warnings.catch_warnings():
        # what these warnings say is an error below, or no matter where all is divided anew
        warnings.filterwarnings("ignore", message=r".*: sections '.*' and '.*' share \d+ ")
        for name in sections:
            found += section_items(
                content,
                source,
                dataset_dir,
                name,
                path_keys=PATH_KEYS,
                hold_out=hold_out and not everything,
                volumes=spatial_dims == 3,
            )
    if shared:
        raise DatalistError(f"{source}: {shared}")
    if not everything:
        return found
    items: dict[str, dict[str, Any]] = {}
    for item in found:
        items.setdefault(str(item["image"]), item)
    return list(items.values())


def _shared_patients(content: Mapping[str, Any]) -> str:
    """Say which patients, or images, are in two of the three sections of a list; "" where none are."""
    entries = [
        (name, {"image": entry} if isinstance(entry, str) else entry)
        for name in _SECTIONS
        if isinstance(content.get(name), list)
        for entry in content[name]
        if isinstance(entry, (str, Mapping))
    ]
    listed = [entry for _, entry in entries]
    for what, names in (("patients", item_patients(listed)), ("images", [str(entry.get("image")) for entry in listed])):
        first: dict[str, str] = {}
        several: dict[str, dict[str, None]] = {}
        for (section, _), name in zip(entries, names, strict=True):
            if (other := first.setdefault(name, section)) != section:
                several.setdefault(name, {other: None})[section] = None
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
