# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Sets of real radiographs for the benchmarks: who is trained, validated and tested on, and their pictures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from monai.transforms import Resize
from tqdm import tqdm

from monai_afire.transforms import LoadRadiograph, StandardizeContrast

CHILD_VALIDATION = 0.2  # of the training patients
SHARPNESS_SIZE = 64  # where the sharpness of the picture is measured


def radiograph_table(folder: Path) -> pd.DataFrame:
    """
    Images of ChildCXR (folders train and test) or of a folder with ``manifest.csv``, one row each.

    A manifest without the column "label" has "findings"; whatever is not "No Finding" is then abnormal.

    Args:
        folder: of the set.

    Returns:
        Columns "image" (path), "label" (0 or 1), "patient", "view" ("" where unknown) and "section": "training",
        "validation" or "test".
    """
    if (folder / "manifest.csv").is_file():
        return _listed(folder)
    return _child(folder)


def other_normals(folder: Path, every: int = 1) -> list[Path]:
    """
    Each so-many-th picture of a folder of normals, for use beside NIH's.

    One that NIH has, too (``00004808_003.png``, at another contrast), is left out.
    """
    return [path for path in sorted(folder.iterdir())[::every] if path.name != "adult_normal_5.jpg"]


def images_beside_nih(folder: Path) -> list[str]:
    """
    Files to pre-train on beside NIH 7k's: the adult normals that NIH 7k lacks, and ChildCXR's training patients.

    Args:
        folder: of the sets.
    """
    shared = set(
        pd.read_csv(folder / "nih_cxr_7k" / "manifest.csv")["same_image_in_adult_normals"].dropna()
    )
    normals = [
        str(path)
        for path in other_normals(folder / "adult_normals" / "images")
        if path.name not in shared
    ]
    children = radiograph_table(folder / "childcxr")
    return [*normals, *children.loc[children["section"] == "training", "image"]]


def in_section(table: pd.DataFrame, section: str) -> torch.Tensor:
    """Mask ``(M,)`` of the images of a section, to pick their pictures."""
    return torch.tensor((table["section"] == section).tolist())


def validation_normals(table: pd.DataFrame) -> pd.Series:
    """Which rows thresholds and scales are taken from."""
    return (table["section"] == "validation") & (table["label"] == 0)


def part_of(
    table: pd.DataFrame, images: torch.Tensor, kept: pd.Series
) -> tuple[pd.DataFrame, torch.Tensor]:
    """Some of the rows, numbered anew, and their pictures."""
    return table[kept].reset_index(drop=True), images[torch.tensor(kept.tolist())]


def _listed(folder: Path) -> pd.DataFrame:
    rows = pd.read_csv(folder / "manifest.csv", dtype={"patient_id": str})
    # Montgomery's names of the two columns
    rows = rows.rename(columns={"tuberculosis": "label", "published_split": "split"})
    sections = {"train": "training", "val": "validation", "test": "test"}
    return pd.DataFrame(
        {
            "image": [str(folder / name) for name in rows["image"]],
            "label": (
                rows["label"] if "label" in rows else rows["findings"] != "No Finding"
            ).astype(int),
            "patient": rows["patient_id"],
            "view": rows.get("view", ""),
            "section": rows["split"].map(sections),
        }
    )


def _child(folder: Path) -> pd.DataFrame:
    """
    The official test folder; of the training folder's patients, the fifth with the lowest numbers validate.

    The test patients have the lowest numbers, so that those next to them are the likest. The official validation
    folder is too small to be of use.
    """
    rows = []
    for split in ("train", "test"):
        for label, name in enumerate(("NORMAL", "PNEUMONIA")):
            for path in sorted((folder / split / name).glob("*.jpeg")):
                series, number = child_patient(path.name)
                rows.append((str(path), label, series, number, split))
    table = pd.DataFrame(rows, columns=["image", "label", "series", "number", "split"])
    table["patient"] = table["series"] + table["number"].astype(str)
    table["section"] = table["split"].map({"train": "training", "test": "test"})
    for _, group in table[table["split"] == "train"].groupby("series"):
        numbers = sorted(group["number"].unique())
        held_out = group["number"] < numbers[int(CHILD_VALIDATION * len(numbers))]
        table.loc[group.index[held_out], "section"] = "validation"
    return table.assign(view="")[["image", "label", "patient", "view", "section"]]


def child_patient(name: str) -> tuple[str, int]:
    """
    Series and number of a patient of ChildCXR by the file's name.

    Example:
        >>> child_patient("NORMAL2-IM-1427-0001.jpeg"), child_patient("person100_bacteria_475.jpeg")
        (('NORMAL2-IM-', 1427), ('person', 100))
    """
    found = re.match(r"(NORMAL2-IM-|IM-|person)(\d+)", name)
    if found is None:
        raise ValueError(f"{name} is not named as ChildCXR's files are")
    return found[1], int(found[2])


def file_kind(name: str) -> str:
    """
    Which kind of file of ChildCXR this is: two series of normals, and bacterial or viral pneumonia.

    Example:
        >>> file_kind("a/NORMAL2-IM-1427-0001.jpeg"), file_kind("IM-1-0001.jpeg"), file_kind("person1_virus_6.jpeg")
        ('NORMAL2', 'IM', 'virus')
    """
    found = re.match(r"(NORMAL2|IM)-|person\d+_(bacteria|virus)_", Path(name).name)
    if found is None:
        raise ValueError(f"{name} is not named as ChildCXR's files are")
    return found[1] or found[2]


def pictures(paths: Sequence[str], size: int) -> tuple[torch.Tensor, pd.DataFrame]:
    """
    Read radiographs as the bundle does, and measure what tells them apart without a look at any lesion.

    Args:
        paths: files.
        size: rows and columns.

    Returns:
        ``(M, 1, size, size)`` in [0, 1] with the contrast standardized; "brightness" and "sharpness" (mean absolute
        horizontal difference at 64 x 64) of the raw pictures and "standard_sharpness" of the standardized ones.
    """
    load, standardize = LoadRadiograph(), StandardizeContrast()
    resize = Resize((size, size), mode="area", anti_aliasing=False)
    shrink = Resize((SHARPNESS_SIZE, SHARPNESS_SIZE), mode="area", anti_aliasing=False)
    images, rows = [], []
    for path in tqdm(paths, desc="reading", leave=False):
        raw = torch.as_tensor(np.asarray(load(path))).float()
        images.append(torch.as_tensor(np.asarray(standardize(resize(raw)))))
        small = np.asarray(shrink(raw))[0]
        standard = np.asarray(standardize(torch.as_tensor(small)[None]))[0]
        rows.append(
            [
                float(raw.mean()),
                *(float(np.abs(np.diff(x, axis=1)).mean()) for x in (small, standard)),
            ]
        )
    columns = ["brightness", "sharpness", "standard_sharpness"]
    return torch.stack(images), pd.DataFrame(rows, columns=columns)


def option_words(settings: Mapping[str, object]) -> list[str]:
    """Settings of a bundle as words of a command line."""
    return [word for name, value in settings.items() for word in (f"--{name}", str(value))]
