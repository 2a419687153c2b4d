# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which images of the sets the makers read."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

DAMAGED = "adult_normal_5.jpg"  # by its source; NIH has it, too (00004808_003.png)


def adult_normals(data: Path, every: int = 1) -> list[Path]:
    """Each so-many-th of the adult normals."""
    files = sorted((data / "adult_normals" / "images").iterdir())[::every]
    return [path for path in files if path.name != DAMAGED]


def nih_rows(data: Path, split: str) -> pd.DataFrame:
    """Rows of a split of NIH 7k as text, with "path"; "same_image_in_adult_normals" is "" where there is none."""
    folder = data / "nih_cxr_7k"
    table = pd.read_csv(folder / "manifest.csv", dtype=str, keep_default_na=False)
    table = table[table["split"] == split].reset_index(drop=True)
    return table.assign(path=[str(folder / name) for name in table["image"]])


def held_out_names(data: Path) -> set[str]:
    """Adult normals that show an image of NIH 7k's validation or test patients."""
    parts = [nih_rows(data, split)["same_image_in_adult_normals"] for split in ("val", "test")]
    return set().union(*parts)


OUTLINES = {
    "jsrt": {"heart": ["masks/heart"], "lungs": ["masks/right lung", "masks/left lung"]},
    "montgomery": {"lungs": ["lungs"]},
}
"""Folders of the outlines of each structure by hand, below the folder of a set. They train nothing."""
