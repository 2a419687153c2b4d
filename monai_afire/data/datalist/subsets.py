# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Subsets of a datalist by patient: a fraction of the labels, a few shots, the folds of a cross-validation.

Every choice is by a hash of the patient's name, so that a seed means the same patients on every machine.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.patients import item_patients, patient_digest
from monai_afire.utils.text import known_text

NO_FINDING = "no finding"  # an item whose labels are all negative: rare enough in some sets to be missed by chance


def label_subset(
    items: Sequence[Mapping[str, Any]], fraction: float, seed: int = 0, label_key: str = "label"
) -> list[dict[str, Any]]:
    """
    All items of a fraction of the patients in (0, 1], to learn from few labels.

    Subsets of one seed are nested: a larger fraction contains the patients of a smaller one. The order of the patients
    is random. A few come first, who together have a positive of each class and an item without any finding. So a
    subset with one patient more than there are classes misses no class. Items may lack labels.

    Example:
        >>> items = [{"image": f"{n}.png", "label": [int(n == 7), 0], "patient_id": n // 2} for n in range(40)]
        >>> [item["image"] for item in label_subset(items, 0.1)]
        ['6.png', '7.png', '22.png', '23.png']
    """
    if isinstance(fraction, (bool, str)) or not 0 < fraction <= 1:
        text = f"the fraction of the labels is {fraction!r}"
        raise DatalistError(f"{text}; choose a number above 0 and up to 1.")
    if not items:
        raise DatalistError("there are no items to choose from; check the section of the datalist.")
    patients = item_patients(items)
    classes = _classes_of_patients(items, patients, label_key)
    count = max(1, math.floor(fraction * len(classes) + 0.5))
    return _of_patients(items, patients, _covering_order(classes, f"labels:{seed}")[:count])


def few_shots(
    items: Sequence[Mapping[str, Any]], num_shots: int, seed: int = 0, label_key: str = "label"
) -> list[dict[str, Any]]:
    """
    A few items, each of another patient, nested: those of a smaller number are among those of a larger one.

    Where items have labels, the first shots cover the classes, as in :func:`label_subset`.
    """
    if not isinstance(num_shots, int) or num_shots < 1:
        text = f"the number of shots is {num_shots!r}"
        raise DatalistError(f"{text}; choose a whole number from 1, or None for all.")
    own: dict[str, list[int]] = defaultdict(list)
    for number, patient in enumerate(item_patients(items)):
        own[patient].append(number)
    if len(own) < num_shots:
        found = f"there are {len(own)} patients with {len(items)} items"
        raise DatalistError(
            f"{num_shots} shots of different patients are wanted, but {found}; choose fewer."
        )
    shot: dict[str, int] = {}
    for patient, numbers in own.items():
        digest = int.from_bytes(patient_digest(f"shot:{seed}", patient)[:8], "big")
        shot[patient] = numbers[digest % len(numbers)]
    classes = {patient: classes_of(items[n].get(label_key)) for patient, n in shot.items()}
    first_patients = _covering_order(classes, f"shots:{seed}")[:num_shots]
    return [dict(items[number]) for number in sorted(shot[patient] for patient in first_patients)]


def cross_validation_items(
    items: Sequence[Mapping[str, Any]],
    num_folds: int,
    fold: int,
    section: str,
    seed: int = 0,
    label_key: str = "label",
) -> list[dict[str, Any]]:
    """
    Items of one section of one run of a cross-validation by patient.

    The patients are divided into ``num_folds`` parts; run k tests on part k, validates on part (k + 1) mod
    ``num_folds``, and trains on the others. Over all runs, each patient is tested once. Where items have labels, the
    positives of each class, rare ones first, are spread evenly over the parts.
    """
    if not isinstance(num_folds, int) or num_folds < 3:
        raise DatalistError(f"the number of folds is {num_folds!r}; choose a whole number from 3.")
    if not isinstance(fold, int) or not 0 <= fold < num_folds:
        whole = f"with {num_folds} folds it is a whole number from 0 to {num_folds - 1}"
        raise DatalistError(f"fold is {fold!r}; {whole}.")
    patients = item_patients(items)
    classes = _classes_of_patients(items, patients, label_key)
    if len(classes) < num_folds:
        text = f"{len(classes)} patients with {len(items)} items cannot be divided into {num_folds} folds"
        raise DatalistError(
            f'{text}; choose at most as many folds, or give "patient_id" if the files name it wrongly.'
        )
    part = _divide(classes, num_folds, f"folds:{seed}")
    own = {"test": {fold}, "validation": {(fold + 1) % num_folds}}
    wanted = own.get(section) or set(range(num_folds)) - own["test"] - own["validation"]
    return _of_patients(items, patients, [name for name in part if part[name] in wanted])


def _of_patients(
    items: Sequence[Mapping[str, Any]], patients: Sequence[str], chosen: Iterable[str]
) -> list[dict[str, Any]]:
    """New items of some patients."""
    wanted = set(chosen)
    return [dict(item) for item, patient in zip(items, patients, strict=True) if patient in wanted]


def _divide(classes: Mapping[str, set[Any]], num_folds: int, seed: str) -> dict[str, int]:
    """Fold of each patient: classes from rare to common, each patient to the fold that has the fewest of the class."""
    order = sorted(classes, key=partial(patient_digest, seed))
    frequency = Counter(itertools.chain.from_iterable(classes.values()))
    del frequency[NO_FINDING]
    rare_first = sorted(frequency, key=lambda name: (frequency[name], str(name)))
    fold_of: dict[str, int] = {}
    sizes, counts = Counter[int](), Counter[tuple[int, Any]]()
    for name in [*rare_first, None]:  # None: all that are left
        for patient in order:
            if patient in fold_of or (name is not None and name not in classes[patient]):
                continue
            # an empty fold has the fewest of everything, so that none stays empty
            _, _, fold = min((counts[k, name], sizes[k], k) for k in range(num_folds))
            fold_of[patient] = fold
            sizes[fold] += 1
            counts.update((fold, own) for own in classes[patient])
    return fold_of


def _covering_order(classes: Mapping[str, set[Any]], seed: str) -> list[str]:
    """Patients in random order, after those who together have all classes; each of these adds most new ones."""
    order = sorted(classes, key=partial(patient_digest, seed))
    missing = set().union(*classes.values())
    first: dict[str, None] = {}  # in this order
    while missing:
        best = max(order, key=lambda patient: len(classes[patient] & missing))
        first[best] = None
        missing -= classes[best]
    return list(first | dict.fromkeys(order))


def _classes_of_patients(
    items: Sequence[Mapping[str, Any]], patients: Sequence[str], label_key: str
) -> dict[str, set[Any]]:
    classes: dict[str, set[Any]] = defaultdict(set)
    for item, patient in zip(items, patients, strict=True):
        classes[patient] |= classes_of(item.get(label_key))
    return classes


def classes_of(label: Any) -> set[Any]:
    """Classes of which an item is a positive, by its label: a list of findings, or the number of a class."""
    if hasattr(label, "tolist"):
        label = label.tolist()
    if isinstance(label, (list, tuple)):
        return {number for number, value in enumerate(label) if value == 1} or {NO_FINDING}
    # a number below 0 says that the class is not known
    is_known = (
        isinstance(label, (int, float, str)) and known_text(label) and label not in (-1, "-1")
    )
    return {label} if is_known else set()
