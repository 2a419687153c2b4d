# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The images of a comparison: who is learned from, who settings are chosen by, and who is evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from monai_afire.apps.readers.datalist_writing import write_datalist
from monai_afire.apps.readers.table_reader import TableReader
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.labeled_items import labeled_items
from monai_afire.data.datalist.labels import abnormal_label, check_label_table, class_names
from monai_afire.data.datalist.loading import read_sections
from monai_afire.data.datalist.patients import item_patients, split_by_patient
from monai_afire.data.datalist.subsets import label_subset
from monai_afire.data.dicom_header import SCANNER_ELEMENTS, header_of, scanner_of
from monai_afire.transforms.label_vector import LabelVector
from monai_afire.utils.text import known_text
from monai_afire.utils.uncertain_labels import resolve_uncertain

LEARN, CHOOSE, EVALUATE = "learn", "choose", "evaluate"
_CHOOSING = 0.2  # of the patients to learn from
_MIN_NORMALS, _MAX_PAINTED = 10, 100


@dataclass(frozen=True)
class Cohort:
    """
    Images with labels; row i of everything is image i.

    Args:
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
        return np.flatnonzero(chosen if abnormal is None else chosen & (self.table["abnormal"] == abnormal))

    def painted_rows(self) -> NDArray[np.intp]:
        """Numbers of at most 100 normal evaluated images, for painted lesions; none with few normals to learn from."""
        normal, known = self.rows(EVALUATE, abnormal=0), self.rows(LEARN, CHOOSE, abnormal=0)
        return normal[:: max(1, -(-len(normal) // _MAX_PAINTED))][: len(normal) * (len(known) >= _MIN_NORMALS)]


def labeled_rows(items: Sequence[Mapping[str, Any]], fraction: float, seed: int) -> NDArray[np.intp]:
    """The "row" of the items of some of the patients, drawn as the bundles draw them."""
    return np.array([item["row"] for item in label_subset(items, fraction, seed)], dtype=np.intp)


def read_cohort(datalist: Path, output_dir: Path, dataset_dir: str | None = None, section: str | None = None) -> Cohort:
    """
    Read a datalist or a table: the section that is evaluated, and the sections before it to learn from.

    A fifth of the patients to learn from chooses settings; the probe and the neighbors learn from the other ones.

    Args:
        datalist: JSON file with sections of items, or a CSV table with the columns of
            :class:`monai_afire.apps.readers.TableReader`: "image", "label", "patient_id", "split", "view", "scanner".
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
        print(write_datalist(TableReader(source.name), dataset_dir or source.parent, made, labels=source.parent))
        source, dataset_dir = made, None
    if section == "training":
        raise DatalistError(f"{datalist}: encoders learn from section 'training': evaluate 'validation' or 'test'")
    section = section or ("test" if "test" in read_sections(source) else "validation")
    sections = ("training", "validation") if section == "test" else ("training",)
    learning = [item for name in sections for item in labeled_items(name, dataset_dir, str(source))]
    items = [*learning, *labeled_items(section, dataset_dir, str(source))]
    patients = item_patients(items)
    choosing = split_by_patient(patients[: len(learning)], _CHOOSING)
    roles = [*(CHOOSE if chosen else LEARN for chosen in choosing), *(EVALUATE for _ in items[len(learning) :])]
    labels, names = _labels(items, source)
    table = pd.DataFrame([_described(item) for item in tqdm(items, desc="headers", unit="image")])
    table = table.assign(role=roles, patient=patients, label=_shown(labels, names)).astype({"abnormal": float})
    return Cohort(items, table, labels, names)


def _labels(items: Sequence[Mapping[str, Any]], source: Path) -> tuple[NDArray[np.float32], list[str]]:
    """Labels ``(N, K)`` of findings, or of classes if they are more than two, and their names."""
    values = [item["label"] for item in items]
    is_list = isinstance(values[0], list)
    highest = max((int(value) for value in values if isinstance(value, (int, float)) and value == value), default=0)
    try:
        names = class_names(str(source), num_classes=len(values[0]) if is_list else highest + 1 if highest > 1 else 1)
    except DatalistError:
        if is_list:
            raise
        names = class_names(str(source))  # the header may have a class that no image has
    kind, count = "multilabel" if is_list or len(names) == 1 else "multiclass", len(names)
    checked = check_label_table(items, count, "all", str(source), names, label_kind=kind)
    vectors = [LabelVector(count, kind)(item["label"]) for item in checked]
    return resolve_uncertain(torch.stack(vectors)).numpy(), names


def _shown(labels: NDArray[np.float32], names: Sequence[str]) -> list[str]:
    """What each image shows: a finding, "several" or "none"."""
    found = [[name for name, value in zip(names, row, strict=True) if value == 1] for row in labels]
    return [(own or ["none"])[0] if len(own) < 2 else "several" for own in found]


def _described(item: Mapping[str, Any]) -> dict[str, Any]:
    """Whether an image is abnormal; its view and scanner by the list, or else by the header of a DICOM file."""
    known = {name: known_text(item.get(name)) for name in ("view", "scanner")}
    if not all(known.values()):
        header = header_of(item["image"], ("ViewPosition", *SCANNER_ELEMENTS))
        read = {"view": known_text(header.get("ViewPosition")), "scanner": scanner_of(header)}
        known = {name: text or read[name] or "unknown" for name, text in known.items()}
    return {"abnormal": abnormal_label(item), **known}
