# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A folder has the results of one comparison: it goes on, and nothing of another one is replaced."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monai_afire.apps.compare.encoders import ComparedEncoder

__all__ = ["NUMBERS", "PAGE", "TABLE", "asked", "refuse_other_results"]

PAGE, TABLE, NUMBERS = "compare.html", "compare.csv", "compare.json"
_ENCODERS = "encoders"


def asked(
    datalist: Path,
    dataset_dir: str | None,
    section: str | None,
    encoders: Sequence[ComparedEncoder],
) -> dict[str, Any]:
    """
    What a comparison asks, by which its results are known again: JSON data.

    Args:
        datalist: the list, of which the content counts; who reads it says what is wrong with one that is not there.
        dataset_dir: folder that its names start from; None for that of the list.
        section: that is evaluated.
        encoders: by name, with what they are.
    """
    content = datalist.read_bytes() if datalist.is_file() else b""
    return {
        "datalist": _digest(content),
        "dataset_dir": os.path.abspath(dataset_dir or datalist.parent),
        "section": section,
        _ENCODERS: {each.name: _digest(each.key.encode()) for each in encoders},
    }


def refuse_other_results(folder: Path, question: Mapping[str, Any]) -> None:
    """
    Keep the results of another comparison. One of the same images with further encoders goes on.

    Args:
        folder: where results are going to be written.
        question: of :func:`asked`.

    Raises:
        FileExistsError: when the folder has results of other images or settings, or of an encoder that is not asked for
            now; the message says which.
    """
    found = [name for name in (NUMBERS, TABLE, PAGE) if (folder / name).exists()]
    if not found:
        return
    earlier = _earlier_question(folder / NUMBERS)
    missing = earlier.pop(_ENCODERS, {}).items() - question[_ENCODERS].items()
    others = {name: value for name, value in question.items() if name != _ENCODERS}
    remedy = "choose another folder (--output_dir), or delete this one"
    if earlier != others:
        raise FileExistsError(
            f"{folder / found[0]} has the results of other images or settings: {remedy}"
        )
    if missing:
        names = ", ".join(sorted(name for name, _ in missing))
        raise FileExistsError(
            f"{folder / found[0]} has results of {names}, which this comparison would lose: name it, too, or {remedy}"
        )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _earlier_question(path: Path) -> dict[str, Any]:
    """Nothing for a file that is no comparison's, and for none."""
    try:
        question = json.loads(path.read_text(encoding="utf-8"))["asked"]
        return {**question, _ENCODERS: dict(question[_ENCODERS])}
    except (OSError, ValueError, LookupError, TypeError):
        return {}
