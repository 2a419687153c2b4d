# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Work-list as a page to look at and to mark, for any browser and without a network."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from monai_afire.apps.results.html_page import render_page
from monai_afire.apps.results.pictures.heat_map import ANCHORS, MARK_COLOR, OPACITY
from monai_afire.apps.worklist.batch_report import GROUPS, Drift, flag_rates
from monai_afire.apps.worklist.heat_panels import KEY, KEY_STARTS
from monai_afire.apps.worklist.worklist import reasons_in_words
from monai_afire.utils.files import common_folder, path_from, write_text
from monai_afire.utils.text import counted

_OPTIONAL = (
    *("p_value", "discovery", "not_judged", "lung_zone", "sex", "age", "view", "scanner"),
    "seen_view",
)
_EMPTY = dict.fromkeys(_OPTIONAL, "")
_MOST = 0.4  # p-value above which a count of images says less than a word


def write_worklist_page(
    worklist: str | os.PathLike,
    path: str | os.PathLike,
    thumbnail_of: Callable[[str], Path],
    picture_of: Callable[[str], Path],
    drift: Drift | None = None,
    comparison: str = "",
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
        comparison: what the scores were compared with, or why with nothing.

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
    root = common_folder(row["image"] for row in rows)
    for row in rows:
        row["name"] = path_from(row["image"], root) if root else row["image"]
        row["three"] = f"{float(row['score']):.3f}"
        row["rarity"] = rarity(row["p_value"])
        row |= _pictures(thumbnail_of(row["image"]), picture_of(row["image"]), folder)
    page = render_page(
        "monai_afire.apps.worklist",
        "worklist.html",
        parts=_parts(rows),
        images=len(rows),
        headline=headline(rows),
        comparison=f"{comparison[:1].upper()}{comparison[1:]}",
        drift=drift if drift is not None and drift.is_clear else None,
        groups=flag_rates(pd.DataFrame(rows, columns=["decision", *GROUPS])).to_dict("records"),
        scanners=sorted({row["scanner"] for row in rows} - {""}),
        by_p_value=any(row["p_value"] for row in rows),
        **_key_of_colors(),
    )
    write_text(path, page)


def _pictures(thumbnail: Path, picture: Path, folder: Path) -> dict[str, str]:
    """Links to the pictures of an image; the thumbnail stands for a larger picture that was not written."""
    shown = picture if picture.is_file() else thumbnail
    return {"thumbnail": _link(thumbnail, folder), "picture": _link(shown, folder)}


def _key_of_colors() -> dict[str, Any]:
    """What the colors of the heat look like and mean."""
    return {
        "heat_colors": [f"rgb({r} {g} {b} / {OPACITY})" for r, g, b in ANCHORS],
        "key": KEY,
        "key_starts": [f"{100 * start:g}%" for start in KEY_STARTS],
        "key_widths": [f"{100 * width:g}%" for width in np.diff([*KEY_STARTS, 1])],
        "mark_color": MARK_COLOR,
    }


def _parts(rows: list[dict[str, str]]) -> list[tuple[str, list[dict[str, str]]]]:
    """Judged images, and under a title of their own those that are not."""
    judged = [row for row in rows if not row["not_judged"]]
    others = [row for row in rows if row["not_judged"]]
    title = "Not judged: not like the images that this detector knows"
    return [("", judged), *([(title, others)] if others else [])]


def headline(rows: Sequence[Mapping[str, str]]) -> str:
    """
    One sentence on the list, from its own rows.

    Args:
        rows: with "decision", "not_judged" and "p_value".

    Example:
        >>> headline([{"decision": "above", "not_judged": "", "p_value": "0.01"}])
        '1 of 1 judged image is above the threshold.'
    """
    judged = [row for row in rows if not row["not_judged"]]
    left = reasons_in_words(Counter(row["not_judged"] for row in rows if row["not_judged"]))
    unjudged = counted(len(rows) - len(judged), "is", "are")
    rest = f" {unjudged} not judged: {left}." if left else ""
    above = sum(row["decision"] == "above" for row in judged)
    if not any(row["decision"] for row in judged):
        return f"{counted(len(judged), 'image')} by score, without a threshold.{rest}"
    verb = "is" if above == 1 else "are"
    return f"{above} of {counted(len(judged), 'judged image')} {verb} above the threshold.{rest}"


def rarity(p_value: str) -> str:
    """
    A p-value in plain words.

    Args:
        p_value: as in the table, "" for none.

    Example:
        >>> rarity("0.125"), rarity("0.62"), rarity("")
        ('1 in 8 normal images scores as high', 'many normal images score as high', '')
    """
    if not p_value:
        return ""
    value = float(p_value)
    if value > _MOST:
        return "many normal images score as high"
    return f"1 in {round(1 / value):,} normal images scores as high"


def _link(target: Path, folder: Path) -> str:
    return quote(path_from(target, folder))
