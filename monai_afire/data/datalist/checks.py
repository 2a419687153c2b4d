# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checks of datalists: valid JSON, files that exist, keys that are there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from monai_afire.transforms.radiograph_io.shards import absent_members, is_member
from monai_afire.utils.text import first_few

_SCAN_FROM = 16  # so many items of one folder are cheaper to check by listing the folder


class DatalistError(ValueError):
    """A datalist or data folder cannot be used; the message names the file, the section, the item and the remedy."""


def parse_json(text: str, source: str | os.PathLike, remedy: str = "mend or write it again") -> Any:
    """Content of a JSON text in which no object has a key twice: Python takes the last one and drops the others."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) == len(pairs):
            return content
        keys = [key for key, _ in pairs]
        key = next(key for number, key in enumerate(keys) if key in keys[:number])
        raise DatalistError(f"{source}: an object has the key {key!r} twice; join the two.")

    try:
        return json.loads(text, object_pairs_hook=unique)
    except DatalistError:
        raise
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise DatalistError(f"{source}: is not valid JSON at {place}: {error.msg}; {remedy}.") from error
    except (RecursionError, ValueError) as error:  # nested too deep; a number of thousands of digits
        raise DatalistError(f"{source}: its JSON cannot be read ({error}); {remedy}.") from error


def require_keys(items: Sequence[Mapping[str, Any]], keys: Sequence[str], section: str, source: Path) -> None:
    """Refuse a section in which an item lacks one of the keys."""
    for key in keys:
        lacking = [number for number, item in enumerate(items) if key not in item]
        if lacking:
            found = ", ".join(items[lacking[0]]) or "none"
            text = f"section {section!r} has {len(lacking)} items without the key {key!r}"
            raise DatalistError(f"{source}: {text}: item {first_few(lacking)}; keys found: {found}.")


def require_files(
    items: Sequence[Mapping[str, Any]], keys: Sequence[str], section: str, source: Path, folders: bool = False
) -> None:
    """Refuse a section that names files which do not exist, or folders."""
    absent = _absent_files(path for item in items for key in keys if key in item for path in _as_list(item[key]))
    absent = {path: reason for path, reason in absent.items() if not (folders and reason == _FOLDER)}
    if absent:
        paths = [
            (number, path) for number, item in enumerate(items) for key in keys for path in _as_list(item.get(key))
        ]
        wrong = [(number, path, absent[path]) for number, path in paths if path in absent]
        text = f"section {section!r} names {len(wrong)} of {len(paths)} files that cannot be used"
        shown = first_few(f"item {number} {reason}: {path}" for number, path, reason in wrong)
        raise DatalistError(f"{source}: {text}: {shown}; check dataset_dir and the list.")


_FOLDER = "is a folder"


def _absent_files(paths: Iterable[str]) -> dict[str, str]:
    """Paths that are not files, with the reason; a folder with many of them is listed once, not asked for each."""
    by_folder: dict[str, list[str]] = {}
    members: list[str] = []
    for path in paths:
        if is_member(path):
            members.append(path)
            continue
        folder, name = os.path.split(path)
        by_folder.setdefault(folder, []).append(name)
    absent = dict.fromkeys(absent_members(members), "is not in its shard")
    for folder, names in by_folder.items():
        present: set[str] = set()
        if len(names) >= _SCAN_FROM and os.path.isdir(folder):
            with os.scandir(folder) as entries:
                present = {entry.name for entry in entries if _is_file(entry)}
        for name in names:
            if name not in present and not os.path.isfile(path := os.path.join(folder, name)):
                absent[path] = _what_it_is(path)
    return absent


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link in a circle
        return False


def _what_it_is(path: str) -> str:
    """Say why a path is not that of a file."""
    if os.path.isdir(path):
        return _FOLDER
    if os.path.exists(path):
        return "is no regular file"
    return "is a link that leads nowhere" if os.path.islink(path) else "does not exist"


def _as_list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [] if value is None else [value]


def item_name(item: Mapping[str, Any], number: int) -> str:
    """Name of an item in messages."""
    return f"item {number} ({item['image']})" if "image" in item else f"item {number}"
