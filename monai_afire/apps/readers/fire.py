# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""FIRE: pairs of fundus photographs of one eye, with points that show the same place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from monai_afire.apps.readers.images import files_by_name
from monai_afire.apps.readers.label_reader import (
    UNCERTAIN,
    LabeledImage,
    LabeledSet,
    LabelReader,
    option,
)
from monai_afire.apps.readers.label_tables import read_text
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.utils.text import first_few

_NAME = re.compile(r"control_points_(([A-Z])\d+)_(\d+)_(\d+)\.txt")
_CATEGORIES = {"S": "large overlap", "P": "small overlap", "A": "changed anatomy"}
_PUBLISHED = 134
_NUMBERS = 4  # x and y in the first photograph, x and y in the second


@dataclass
class FIREReader(LabelReader):
    """
    Items are pairs: "image" and "image_2" with "landmarks" and "landmarks_2", (row, column) of the same places.

    From https://projects.ics.forth.gr/cvrl/fire ::

        ROOT/Images/A01_1.jpg, A01_2.jpg ...                   in any subfolders
        ROOT/Ground Truth/control_points_A01_1_2.txt ...       or below --labels; a line for each place: x1 y1 x2 y2
    """

    exclude: tuple = option(
        (), "pairs to leave out, such as P37, which published comparisons do not use"
    )

    title = "FIRE"
    reference = "Hernandez-Matas et al., Journal for Modeling in Ophthalmology 4 (2017)"
    has_split = True

    def read(self, root: Path, labels: Path, official: bool) -> LabeledSet:
        """See :meth:`LabelReader.read`."""
        tables = self._tables(labels)
        names = [f"{pair}_{end}" for pair, (_, ends) in tables.items() for end in ends]
        found = dict(zip(names, files_by_name(root, names), strict=True))
        images = []
        for pair, (path, ends) in tables.items():
            first, second = (f"{pair}_{end}" for end in ends)
            landmarks, landmarks_2 = _read_points(path)
            item: dict[str, Any] = {
                "image_2": found[second],
                "landmarks": landmarks,
                "landmarks_2": landmarks_2,
                "label": list(_CATEGORIES).index(pair[0]),
                "group": _CATEGORIES[pair[0]],
                "abnormal": UNCERTAIN,
                "patient_id": pair,
                "view": "fundus",
            }
            absent = [name for name in (first, second) if found[name] is None]
            image = LabeledImage(
                absent[0] if absent else first, None if absent else found[first], item
            )
            image.section = "test" if official else None
            images.append(image)
        classes = {str(number): name for number, name in enumerate(_CATEGORIES.values())}
        notes = (
            []
            if len(images) == _PUBLISHED
            else [f"{len(images)} of the {_PUBLISHED} published pairs are listed"]
        )
        return LabeledSet(images, {"labels": classes, "modality": {"0": "OP"}}, notes)

    def _tables(self, labels: Path) -> dict[str, tuple[Path, tuple[str, str]]]:
        """The file of each pair, by its name, and the ends of the names of its two photographs."""
        tables: dict[str, tuple[Path, tuple[str, str]]] = {}
        for path in sorted(labels.rglob("control_points_*.txt")):
            match = _NAME.fullmatch(path.name)
            if match is None or match[2] not in _CATEGORIES:
                example = (
                    f"control_points_A01_1_2.txt, its first letter one of {', '.join(_CATEGORIES)}"
                )
                raise DatalistError(
                    f"{path}: is not named like {example}; rename it, or take it away."
                )
            if match[1] in tables:
                raise DatalistError(
                    f"{path} and {tables[match[1]][0]} are of one pair; set --labels to one copy."
                )
            tables[match[1]] = path, (match[3], match[4])
        if not tables:
            raise DatalistError(
                f"{labels}: no files such as control_points_A01_1_2.txt; check --root and --labels."
            )
        if unknown := [pair for pair in self.exclude if pair not in tables]:
            raise DatalistError(
                f"{labels}: no pair is called {first_few(unknown)}; correct --exclude."
            )
        if not (
            kept := {pair: table for pair, table in tables.items() if pair not in self.exclude}
        ):
            raise DatalistError(f"{labels}: --exclude leaves no pair.")
        return kept


def _read_points(path: Path) -> tuple[list[list[float]], list[list[float]]]:
    """(row, column) of each place in the first and in the second photograph."""
    places = []
    for line, text in enumerate(read_text(path).splitlines(), start=1):
        if not text.strip():
            continue
        numbers = pd.to_numeric(pd.Series(text.split()), errors="coerce").to_numpy(dtype=float)
        if len(numbers) != _NUMBERS or not (np.isfinite(numbers) & (numbers >= 0)).all():
            expected = "the four numbers x1 y1 x2 y2, from 0 on"
            raise DatalistError(
                f"{path}: line {line} is {text.strip()!r}, not {expected}; download the file again."
            )
        places.append(numbers)
    points = np.stack(places)
    return points[:, [1, 0]].tolist(), points[:, [3, 2]].tolist()
