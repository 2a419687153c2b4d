# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checks of datalists: valid JSON, files that exist, keys that are there."""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monai.utils import ensure_tuple

from monai_afire.utils.files import spelling_on_disk
from monai_afire.utils.text import first_few, is_absence

SECTIONS = ("training", "validation", "test")
PATH_KEYS = ("image", "image_2", "mask", "lesion_truth", "organs")
NAMES_HEADERS = {"organs": "organ_names", "landmarks": "landmark_names"}
"""Entries of a list that name what an item has by number."""
_LESION_MASKS = ("mask", "lesion_truth")  # a normal image needs none


class DatalistError(ValueError):
    """A datalist or data folder cannot be used; the message names the file, the section, the item and the remedy."""


def read_json(path: Path, what: str, remedy: str) -> Any:
    """Content of a JSON file; ``what`` it holds and the ``remedy`` are for messages."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        reason = "it does not exist" if isinstance(error, FileNotFoundError) else error
        raise DatalistError(f"{path}: {what} cannot be read: {reason}; {remedy}.") from error
    return parse_json(text, path, remedy)


def parse_json(text: str, source: str | os.PathLike, remedy: str) -> Any:
    """Content of a JSON text in which no object has a key twice: Python takes the last one and drops the others."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
            raise DatalistError(f"{source}: an object has the key {key!r} twice; join the two.")
        return content

    try:
        return json.loads(text, object_pairs_hook=unique)
    except DatalistError:
        raise
    except (RecursionError, ValueError) as error:  # too deep, or a number of thousands of digits
        raise DatalistError(f"{source}: its JSON cannot be read ({error}); {remedy}.") from error


def require_keys(
    items: Sequence[Mapping[str, Any]], keys: Sequence[str], section: str, source: str | os.PathLike
) -> None:
    """Refuse a section in which an item lacks one of the keys; a mask of lesions may lack where "abnormal" is 0."""
    for key in keys:
        may_lack = key in _LESION_MASKS
        lacking = [
            item_name(item, number)
            for number, item in enumerate(items)
            if item.get(key) in (None, "") and not (may_lack and item.get("abnormal") == 0)
        ]
        if lacking:
            names = f', and the list "{NAMES_HEADERS[key]}"' if key in NAMES_HEADERS else ""
            raise DatalistError(
                f"{source}: {len(lacking):,} of {len(items):,} items of section {section!r} have no {key!r}: "
                f"{first_few(lacking)}. Give each item its {key!r} in a datalist{names}; monai-afire data makes one "
                "from the label files of public sets."
            )


def require_files(items: Sequence[Mapping[str, Any]], section: str, source: Path) -> None:
    """Refuse a section that names files which do not exist, or folders."""
    named = [item.get(key) or () for item in items for key in PATH_KEYS]
    paths = [path for own in named for path in ensure_tuple(own)]
    if wrong := [_unusable(path) for path in paths if not os.path.isfile(path)]:
        raise DatalistError(
            f"{source}: section {section!r} names {len(wrong)} of {len(paths)} files that cannot be used: "
            f"{first_few(wrong)}; check dataset_dir and the list."
        )


def _unusable(path: str) -> str:
    """A path that is no file, with the reason."""
    reason = "is no file" if os.path.exists(path) else "does not exist"
    spelling = spelling_on_disk(path)
    return f"{path} {reason} ({spelling})" if spelling else f"{path} {reason}"


def check_finding_names(
    names: Any, items: Sequence[Mapping[str, Any]], source: str | os.PathLike
) -> None:
    """Warn of a name such as "No Finding" among the findings of a list, by which its images count as abnormal."""
    names = list(names.values()) if isinstance(names, Mapping) else names
    absent = [name for name in names if is_absence(str(name))] if isinstance(names, list) else []
    # an "abnormal" of the image's own comes first, and a class may be called normal
    if absent and any(
        isinstance(each.get("label"), list) and "abnormal" not in each for each in items
    ):
        warnings.warn(
            f"{source}: finding_names holds {first_few(map(repr, absent))}, which counts as a finding; leave it out "
            "there and in the labels: without any finding, an image is normal.",
            stacklevel=4,
        )


def item_name(item: Mapping[str, Any], number: int) -> str:
    """Name of an item in messages."""
    return f"item {number} ({item['image']})" if "image" in item else f"item {number}"
