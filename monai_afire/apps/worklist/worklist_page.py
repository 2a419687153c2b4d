# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Work-list as a page to look at and to mark, for any browser and without a network."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from monai_afire.apps.results.html_page import render_page
from monai_afire.apps.worklist.batch_report import GROUPS, Drift, flag_rates
from monai_afire.utils.files import path_from, write_text

_EMPTY = dict.fromkeys(("p_value", "discovery", "lung_zone", "sex", "age", "view", "scanner"), "")


def write_worklist_page(
    worklist: str | os.PathLike,
    path: str | os.PathLike,
    thumbnail_of: Callable[[str], Path],
    picture_of: Callable[[str], Path],
    drift: Drift | None = None,
) -> None:
    """
    Write the work-list as an HTML page: pictures in the order of the list, filters, marks, and their export.

    The page is one file and needs no network. Pictures are loaded when they are scrolled into view. Marks are kept by
    the browser and exported as a table with the columns "image", "abnormal" (1, 0, or -1 for unsure) and "mark".
    It is what ``monai-afire data table --label_columns abnormal --num_classes 0`` reads.

    Args:
        worklist: table that :func:`monai_afire.apps.worklist.write_worklist` wrote.
        path: the page, written whole or not at all; beside or above the pictures.
        thumbnail_of: name in the table -> its thumbnail, radiograph and heat map side by side.
        picture_of: name in the table -> the larger picture that opens on a click.
        drift: shown above the list if it is clear.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> cells = {"rank": 1, "score": 2.5, "threshold": 1, "decision": "above", "percentile": 99, "hottest": ""}
        >>> _ = (folder / "worklist.csv").write_text(
        ...     ",".join([*cells, "image", "other_view"]) + "\\n" + ",".join(map(str, cells.values())) + ",<a>.png,\\n"
        ... )
        >>> page, thumbnails = folder / "worklist.html", folder / "thumbnails"
        >>> write_worklist_page(folder / "worklist.csv", page, thumbnails.joinpath, folder.joinpath)
        >>> "&lt;a&gt;.png" in page.read_text(), "<a>.png" in page.read_text()
        (True, False)
    """
    folder = Path(path).parent
    with Path(worklist).open(newline="", encoding="utf-8") as file:
        rows = [{**_EMPTY, **row} for row in csv.DictReader(file)]
    for row in rows:
        row["thumbnail"] = _link(thumbnail_of(row["image"]), folder)
        picture = picture_of(row["image"])
        row["picture"] = _link(picture, folder) if picture.is_file() else row["thumbnail"]
    page = render_page(
        "monai_afire.apps.worklist",
        "worklist.html",
        rows=rows,
        above=sum(row["decision"] == "above" for row in rows),
        drift=drift if drift is not None and drift.is_clear else None,
        groups=flag_rates(pd.DataFrame(rows, columns=["decision", *GROUPS])).to_dict("records"),
        scanners=sorted({row["scanner"] for row in rows} - {""}),
    )
    write_text(path, page)


def _link(target: Path, folder: Path) -> str:
    return quote(path_from(target, folder))
