# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The images of a comparison: who is learned from, who settings are chosen by, and who is evaluated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from monai_afire.apps.readers import SETS, write_datalist
from monai_afire.data.datalist.class_names import class_names
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.labeled_items import labeled_items
from monai_afire.data.datalist.labels import abnormal_label, check_label_table
from monai_afire.data.datalist.loading import read_sections
from monai_afire.data.datalist.patients import item_patients, split_by_patient
from monai_afire.transforms.label_vector import LabelVector
from monai_afire.transforms.radiograph_header import header_of, scanner_of
from monai_afire.utils.text import known_text
from monai_afire.utils.uncertain_labels import resolve_uncertain

LEARN, CHOOSE, EVALUATE = "learn", "choose", "evaluate"
_CHOOSING = 0.2  # of the patients to learn from
_MIN_NORMALS, _MAX_PAINTED = 10, 100


class Cohort(NamedTuple):
    """
    Images with labels; row i of everything is image i.

    Attributes:
        items: of the list, with absolute "image".
        table: "role" ("learn", "choose" or "evaluate"), "patient", "abnormal" (1, 0 or NaN), "view", "scanner" and
            "label" (a finding, "several" or "none").
        labels: ``(N, K)``: 1 present, 0 absent, NaN unknown.
        names: K names of the findings or classes.
    """

    items: list[dict[str, Any]]
    table: pd.DataFrame
    labels: NDArray[np.float32]
    names: list[str]

    def rows(self, *roles: str, abnormal: int | None = None) -> NDArray[np.intp]:
        """Numbers of the images of some roles, or of the normal (0) or abnormal (1) ones among them."""
        chosen = self.table["role"].isin(roles)
        if abnormal is not None:
            chosen &= self.table["abnormal"] == abnormal
        return np.flatnonzero(chosen)

    def painted_rows(self) -> NDArray[np.intp]:
        """Numbers of at most 100 normal evaluated images, for painted lesions; none with few normals to learn from."""
        known = self.rows(LEARN, CHOOSE, abnormal=0)
        normal = self.rows(EVALUATE, abnormal=0)
        if len(known) < _MIN_NORMALS or not len(normal):
            return normal[:0]
        step = math.ceil(len(normal) / _MAX_PAINTED)
        return normal[::step]


def read_cohort(
    datalist: Path, output_dir: Path, dataset_dir: str | None = None, section: str | None = None
) -> Cohort:
    """
    Read a datalist or a table: the section that is evaluated, and the sections before it to learn from.

    A fifth of the patients to learn from chooses settings; the probe and the neighbors learn from the other ones.

    Args:
        datalist: JSON file with sections of items, or a CSV table with the columns of
            ``monai-afire data table``: "image", "label", "patient_id", "split", "view", "scanner".
        output_dir: where the list goes that is made of a table.
        dataset_dir: folder that names start from; None for that of the list.
        section: that is evaluated; None for "test", or "validation" without one.

    Returns:
        The images.

    Raises:
        DatalistError: when the list cannot be used, a patient is in two sections, or the section is "training".
    """
    source = datalist.expanduser()
    if source.suffix.lower() == ".csv":
        made = output_dir / "compare_datalist.json"
        images = dataset_dir or source.parent
        print(write_datalist(SETS["table"], images, made, labels=source.parent, table=source.name))
        source, dataset_dir = made, None
    if section == "training":
        raise DatalistError(
            f"{datalist}: encoders learn from section 'training': evaluate 'validation' or 'test'"
        )
    if section is None:
        section = "test" if "test" in read_sections(source) else "validation"
    learning = labeled_items("training", dataset_dir, str(source))
    if section == "test":
        learning += labeled_items("validation", dataset_dir, str(source))
    evaluated = labeled_items(section, dataset_dir, str(source))
    items = [*learning, *evaluated]
    patients = item_patients(items)
    labels, names = _labels(items, source)
    choosing = split_by_patient(patients[: len(learning)], _CHOOSING)
    roles = [CHOOSE if chosen else LEARN for chosen in choosing]
    described = [_described(item) for item in tqdm(items, desc="headers", unit="image")]
    table = pd.DataFrame(described).assign(
        role=roles + [EVALUATE] * len(evaluated),
        patient=patients,
        label=[_shown(row, names) for row in labels],
    )
    return Cohort(items, table.astype({"abnormal": float}), labels, names)


def _labels(
    items: Sequence[Mapping[str, Any]], source: Path
) -> tuple[NDArray[np.float32], list[str]]:
    """Labels ``(N, K)`` of findings, or of classes if they are more than two, and their names."""
    is_list = isinstance(items[0]["label"], list)
    try:
        names = class_names(str(source), num_classes=_num_classes(items))
    except DatalistError:
        if is_list:
            raise
        names = class_names(str(source))  # the header may have a class that no image has
    kind = "multilabel" if is_list or len(names) == 1 else "multiclass"
    checked = check_label_table(items, len(names), "all", str(source), names, label_kind=kind)
    to_vector = LabelVector(len(names), kind)
    vectors = torch.stack([to_vector(item["label"]) for item in checked])
    return resolve_uncertain(vectors).numpy(), names


def _num_classes(items: Sequence[Mapping[str, Any]]) -> int:
    """Findings of a list of them, classes of their numbers, or 1 for present and absent."""
    values = [item["label"] for item in items]
    if isinstance(values[0], list):
        return len(values[0])
    known = [value for value in values if isinstance(value, (int, float)) and not math.isnan(value)]
    highest = int(max(known, default=0))
    return highest + 1 if highest > 1 else 1


def _shown(labels: NDArray[np.float32], names: Sequence[str]) -> str:
    """What an image shows: a finding, "several" or "none"."""
    found = [name for name, value in zip(names, labels, strict=True) if value == 1]
    if len(found) > 1:
        return "several"
    return found[0] if found else "none"


def _described(item: Mapping[str, Any]) -> dict[str, Any]:
    """Whether an image is abnormal; its view and scanner by the list, or else by the header of a DICOM file."""
    known = {name: known_text(item.get(name)) for name in ("view", "scanner")}
    if not all(known.values()):
        header = header_of(item["image"])
        read = {"view": known_text(header.get("ViewPosition")), "scanner": scanner_of(header)}
        known = {name: text or read[name] or "unknown" for name, text in known.items()}
    return {"abnormal": abnormal_label(item), **known}
