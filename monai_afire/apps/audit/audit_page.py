# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The audit as a page, for any browser and without a network."""

from __future__ import annotations

import os
import warnings
from base64 import b64encode
from collections.abc import Collection, Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image, ImageOps

from monai_afire.apps.audit.audit_checks import CHECKS
from monai_afire.apps.results.html_page import render_page
from monai_afire.transforms import LoadRadiograph
from monai_afire.transforms.radiograph_files import RadiographError
from monai_afire.utils.files import write_text

_SIDE, _QUALITY = 160, 75


def write_page(
    path: str | os.PathLike,
    summary: Mapping[str, Any],
    found: Mapping[str, Mapping[int, str]],
    frame: pd.DataFrame,
    exclude: Collection[str],
    shown: int,
) -> None:
    """Write the findings as one HTML file with their pictures in it, at most ``shown`` per check."""
    checks = []
    for check in CHECKS:
        rows = found[check.name]
        names, paths = frame["image"], frame["path"]
        cards = [
            {"name": names[index], "detail": detail, "picture": _picture(paths[index])}
            for index, detail in list(rows.items())[:shown]
        ]
        facts = {
            "check": check,
            "count": len(rows),
            "abnormal": summary["abnormal_findings"][check.name],
            "sensitivity": summary["rates"].get(check.name, {}).get("sensitivity"),
            "cards": cards,
            "excludes": check.name in exclude,
        }
        checks.append(facts)
    page = render_page("monai_afire.apps.audit", "audit.html", summary=summary, checks=checks)
    write_text(path, page)


@lru_cache(maxsize=256)  # an image may have several findings
def _picture(path: str) -> str:
    """A small JPEG as the text of a URI; "" for a file that cannot be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = np.asarray(LoadRadiograph()(path)[0])
    except RadiographError:
        return ""
    gray = Image.fromarray(np.rint(255 * image.clip(0, 1)).astype(np.uint8))
    content = BytesIO()
    small = ImageOps.contain(gray, (_SIDE, _SIDE), Image.Resampling.BOX)
    small.save(content, "JPEG", quality=_QUALITY)
    return f"data:image/jpeg;base64,{b64encode(content.getvalue()).decode()}"
