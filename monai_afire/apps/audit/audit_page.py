# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The audit as a page, for any browser and without a network."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import pandas as pd

from monai_afire.apps.audit.audit_checks import CHECKS
from monai_afire.apps.pages import render_page, thumbnail_url
from monai_afire.utils.files import write_text

_picture = lru_cache(maxsize=256)(thumbnail_url)  # an image may have several findings


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
