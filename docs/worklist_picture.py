# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Writes bundles/afire/docs/worklist.jpg, the ends of a work-list's judged images, from what inference has written.

``python docs/worklist_picture.py FOLDER``, where FOLDER is the ``--output_dir`` of the README's first command on a
folder of radiographs: for the picture that is there, the first 30 of both labels of NIH 1k's test images by name.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from PIL import Image

PICTURE = Path(__file__).resolve().parents[1] / "bundles" / "afire" / "docs" / "worklist.jpg"
ENDS = 3  # radiographs of either end
WIDTH = 1800


def joined(rows: Sequence[Sequence[Image.Image]]) -> Image.Image:
    """Pictures in rows and columns, each at the middle of a cell."""
    width = max(picture.width for row in rows for picture in row)
    height = max(picture.height for row in rows for picture in row)
    sheet = Image.new("RGB", (width * max(map(len, rows)), height * len(rows)))
    for line, row in enumerate(rows):
        for column, picture in enumerate(row):
            sheet.paste(picture, (column * width, line * height + (height - picture.height) // 2))
    return sheet


def overlay_of(name: str, folder: Path) -> Path:
    """The overlay of an image, which has its own extension once."""
    return folder / (name if name.endswith(".jpg") else f"{name}.jpg")


def main() -> None:
    """Run after the README's first command."""
    folder = Path(sys.argv[1])
    worklist = pd.read_csv(folder / "worklist.csv")
    judged = worklist[worklist["not_judged"].isna()]
    names = [Path(image).name for image in judged["image"]]
    ends = (names[:ENDS], names[-ENDS:])
    overlays = folder / "overlays"
    sheet = joined([[Image.open(overlay_of(name, overlays)) for name in end] for end in ends])
    sheet.resize((WIDTH, round(sheet.height * WIDTH / sheet.width)), Image.Resampling.LANCZOS).save(
        PICTURE, quality=85
    )


if __name__ == "__main__":
    main()
