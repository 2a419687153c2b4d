# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Decisions of a model that was not made for the images it is given."""

from __future__ import annotations

import csv
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

__all__ = ["warn_if_implausible"]

_FEWEST = 20  # images; of fewer, all may well be abnormal
_LARGEST_SHARE = 0.8

logger = logging.getLogger(__name__)


def warn_if_implausible(table: Path, columns: Sequence[str], remedy: str) -> list[str]:
    """
    Warn when nearly all images of a table are above a threshold: on images far from those of its training a model does
    so for healthy ones, too.

    Args:
        table: CSV file, read row by row.
        columns: of decisions, 1 for above the threshold.
        remedy: what to do, for the message.

    Returns:
        The columns that were warned of.

    Example:
        >>> import tempfile
        >>> table = Path(tempfile.mkdtemp()) / "scores.csv"
        >>> _ = table.write_text("image,abnormal,nodule\\n" + "a.png,1,0\\n" * 30)
        >>> warn_if_implausible(table, ["abnormal", "nodule"], "adapt it")
        ['abnormal']
    """
    above: Counter[str] = Counter()
    num_images = 0
    with table.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            num_images += 1
            above.update(name for name in columns if row[name] == "1")
    found = [name for name in columns if num_images >= _FEWEST and above[name] > _LARGEST_SHARE * num_images]
    for name in found:
        logger.warning(
            f"{above[name]} of {num_images} images are above the threshold of {name!r}. Unless nearly all of them show "
            "a finding, they differ from the images that the threshold was chosen on (scanner, view, contrast, "
            f"preparation), and the decisions in {table} mean nothing: {remedy}"
        )
    return found
