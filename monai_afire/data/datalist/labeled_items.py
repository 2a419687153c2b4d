# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Labeled items of a section, a subset or a fold, to learn from and to test on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monai_afire.data.datalist.class_names import classes_of_weights
from monai_afire.data.datalist.datalist_checks import (
    PATH_KEYS,
    SECTIONS,
    DatalistError,
    require_keys,
)
from monai_afire.data.datalist.labels import check_label_table
from monai_afire.data.datalist.loading import load_radiograph_datalist, read_sections
from monai_afire.data.datalist.subsets import cross_validation_items, few_shots, label_subset

if TYPE_CHECKING:
    from monai_afire.data.phantom import PhantomSet


def labeled_items(
    section: str,
    dataset_dir: str | None = None,
    datalist: str | None = None,
    phantom: PhantomSet | None = None,
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
    num_classes: int | None = None,
    weights: str | None = None,
) -> list[dict[str, Any]]:
    """
    Labeled items of one section, of which training takes a part where few labels are to be learned from.

    The source is that of :func:`monai_afire.data.bundle_items`: the user's folder or list, or else the phantom. Unlike
    there, a patient in two sections is an error: a result on patients that the network was trained on is worthless.

    Args:
        section: "training", "validation" or "test".
        dataset_dir: folder of images, which relative names of the datalist start from.
        datalist: JSON file that lists the images by section.
        phantom: what stands in for images.
        label_fraction: fraction of the training patients to learn from, see :func:`label_subset`.
        num_shots: number of training items to learn from, see :func:`few_shots`; None for all.
        num_folds: divide all sections of the list anew, see :func:`cross_validation_items`; None for the list's own
            sections.
        fold: run of the cross-validation, from 0.
        seed: of all choices of patients.
        required: keys that each item must have; a mask of lesions may lack where "abnormal" is 0. None for the label.
        label_key: key of what is to be learned. Subsets and folds are stratified by it, unless it names files of masks.
        as_key: key that it gets in the items returned.
        class_names: of findings or classes, whose values are checked (:func:`check_label_table`); None for masks and
            landmarks.
        label_kind: "multilabel" or "multiclass", what the values may be, see :func:`check_label_table`.
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
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "a.png").touch()
        >>> _ = (folder / "list.json").write_text('{"test": [{"image": "a.png", "label": 1}]}')
        >>> [(item["index"], item["label"]) for item in labeled_items("test", datalist=folder / "list.json")]
        [(0, 1)]
    """
    if section not in SECTIONS:
        raise DatalistError(f"the sections are training, validation and test, not {section!r}.")
    if label_fraction != 1 and num_shots is not None:
        both = f"both label_fraction={label_fraction} and num_shots={num_shots} are given"
        raise DatalistError(f"{both}; set the fraction to 1, or the shots to None.")
    if num_folds is None and fold != 0:
        given = f"fold {fold!r} is given without num_folds"
        raise DatalistError(f"{given}; give the number of folds, or leave fold out.")
    source = Path(datalist).expanduser() if datalist else None
    if source is None and not dataset_dir and phantom:
        source = phantom.datalist()
    name = str(source or dataset_dir)
    if num_folds is None:
        items = load_radiograph_datalist(
            dataset_dir, source, section, hold_out=bool(datalist), leaks="refuse"
        )
    else:
        items = _all_items(source, dataset_dir, section)
    keys = [label_key] if required is None else required
    require_keys(items, keys, "all" if num_folds else section, name)
    # masks are no classes to stratify by
    strata = label_key if as_key == "label" and label_key not in PATH_KEYS else "label"
    try:
        if num_folds is not None:
            items = cross_validation_items(items, num_folds, fold, section, seed, strata)
        if section == "training" and num_shots is not None:
            items = few_shots(items, num_shots, seed, strata)
        elif section == "training":
            items = label_subset(items, label_fraction, seed, strata)
    except DatalistError as error:
        raise DatalistError(f"{name}: {error}") from error
    if label_key != as_key:
        items = [{**item, as_key: item.get(label_key)} for item in items]
    if weights:
        _, order = classes_of_weights(
            weights, datalist, dataset_dir, num_classes, label_key, phantom
        )
        items = [{**item, as_key: _reordered(item.get(as_key), order)} for item in items]
    if class_names is not None:
        items = check_label_table(
            items, len(class_names), section, name, class_names, as_key, label_kind
        )
    return [{**item, "index": index} for index, item in enumerate(items)]


def _all_items(source: Path | None, dataset_dir: str | None, section: str) -> list[dict[str, Any]]:
    """Items of all sections of a list or of a folder, each image once."""
    if source is None:
        return load_radiograph_datalist(dataset_dir, section="all")
    content = read_sections(source)
    items: dict[str, dict[str, Any]] = {}
    for name in [name for name in SECTIONS if content.get(name)] or [section]:
        found = load_radiograph_datalist(dataset_dir, source, name, leaks="ignore")
        for item in found:
            items.setdefault(str(item["image"]), item)
    return list(items.values())


def _reordered(label: Any, order: Sequence[int]) -> Any:
    """A list of values, files or points in another order, or the number of a class by another numbering."""
    if isinstance(label, (list, tuple)) and len(label) == len(order):
        return [label[place] for place in order]
    is_class = isinstance(label, (int, float)) and len(order) > 1 and label in order
    return order.index(label) if is_class else label
