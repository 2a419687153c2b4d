# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Work-list as a page to look at and to mark, for any browser and without a network."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from monai_afire.apps.pages import render_page
from monai_afire.apps.results.pictures.heat_map import ANCHORS, MARK_COLOR, OPACITY
from monai_afire.apps.worklist.heat_panels import KEY, KEY_STARTS
from monai_afire.apps.worklist.worklist import summary
from monai_afire.utils.files import common_folder, path_from, write_text

_UNJUDGED = "Not judged: not like the images that this detector knows"


def write_worklist_page(
    worklist: pd.DataFrame,
    path: str | os.PathLike,
    thumbnail_of: Callable[[str], Path],
    picture_of: Callable[[str], Path],
    drift: str = "",
    comparison: str = "",
) -> None:
    """
    Write the work-list as an HTML page: pictures in the order of the list, filters, marks, and their export.

    The page is one file and needs no network. The heat of images that are below the threshold, or not judged, is shown
    when it is asked for. Marks are kept by the browser and exported as a table with the columns "image", "abnormal"
    (1, 0, or -1 for unsure) and "mark", which ``monai-afire data table`` reads.

    A name in the table has a thumbnail, radiograph and heat map side by side, and a larger picture that opens on a
    click; ``drift`` and ``comparison`` stand above the list.
    """
    folder = Path(path).parent
    root = common_folder(worklist["image"])
    rows = worklist.to_dict("records")
    for row in rows:
        thumbnail, picture = thumbnail_of(row["image"]), picture_of(row["image"])
        shown = picture if picture.is_file() else thumbnail
        row["name"] = path_from(row["image"], root) if root else row["image"]
        row["caption"] = caption(row)
        row["thumbnail"] = quote(path_from(thumbnail, folder))
        row["picture"] = quote(path_from(shown, folder))
    judged = [row for row in rows if not row["not_judged"]]
    unjudged = [row for row in rows if row["not_judged"]]
    page = render_page(
        "monai_afire.apps.worklist",
        "worklist.html",
        parts=[("", judged), *([(_UNJUDGED, unjudged)] if unjudged else [])],
        images=len(rows),
        headline=f"{summary(worklist)}.",
        comparison=f"{comparison[:1].upper()}{comparison[1:]}",
        drift=drift,
        scanners=sorted(set(worklist["scanner"]) - {""}),
        has_threshold=bool(worklist["decision"].any()),
        by_p_value=bool(worklist["p_value"].any()),
        **_key_of_colors(),
    )
    write_text(path, page)


def _key_of_colors() -> dict[str, Any]:
    """What the colors of the heat look like and mean."""
    return {
        "heat_colors": [f"rgb({r} {g} {b} / {OPACITY})" for r, g, b in ANCHORS],
        "key": KEY,
        "key_starts": [f"{100 * start:g}%" for start in KEY_STARTS],
        "key_widths": [f"{100 * width:g}%" for width in np.diff([*KEY_STARTS, 1])],
        "mark_color": MARK_COLOR,
    }


def caption(row: Mapping[str, Any]) -> str:
    """
    Rank, rarity among normal images, place of the strongest heat, and view of an image in one line.

    Example:
        >>> row = {"rank": 2, "p_value": "0.08", "lung_zone": "left lung, lower zone", "seen_view": "PA"}
        >>> caption(row)
        '2 · top 8 % · left lower · PA'
    """
    percent = 100 * float(row["p_value"] or "nan")
    rarity = f"top {percent:.2g} %" if percent < 10 else f"top {percent:.0f} %"
    place = re.sub(" lung, (.*) zone", r" \1", row["lung_zone"])
    if not place and row["hottest"]:
        place = f"{row['hottest']} of the picture"
    view = row["seen_view"].partition(" (")[0]
    return " · ".join(
        filter(None, (str(row["rank"]), rarity if row["p_value"] else "", place, view))
    )
