# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Configs as plain dictionaries: put together from files, and their entries by paths such as ``train::dataset``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from monai_afire_cli.options.words import SEPARATOR

__all__ = ["all_entries", "entry_at", "first_unknown", "merged_config", "names_of", "read_json"]


def read_json(path: Path) -> Any:
    """
    The content of a JSON file.

    Raises:
        OSError: when it cannot be opened.
        ValueError: when it is no JSON; the message names the file.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: no JSON: {error}") from error


def merged_config(files: Sequence[Path]) -> dict[str, Any]:
    """
    The config of some JSON files, each of which changes those before it, as MONAI reads them.

    Args:
        files: in their order.

    Returns:
        The config, with its references and expressions as they are written.

    Raises:
        ValueError: when a file is no JSON, or holds something other than a dictionary; the message names it.

    Example:
        >>> merged_config([])
        {}
    """
    config: dict[str, Any] = {}
    for path in files:
        content = read_json(path)
        if not isinstance(content, dict):
            raise ValueError(f"{path}: no config: its JSON is no dictionary")
        for id, value in content.items():
            _set(config, names_of(id.lstrip("+")), value, merges=id.startswith("+"))
    return config


def names_of(id: str) -> list[str]:
    """
    The names of a path in a config, from the top on.

    Example:
        >>> names_of("train::dataset#data")
        ['train', 'dataset', 'data']
    """
    return id.replace("#", SEPARATOR).split(SEPARATOR)


def entry_at(config: Mapping[str, Any], id: str) -> Any:
    """
    An entry by its path; None without one.

    Example:
        >>> entry_at({"train": {"seed": 3}}, "train::seed"), entry_at({"train": 3}, "train::seed")
        (3, None)
    """
    entry: Any = config
    for name in names_of(id):
        entry = entry.get(name) if isinstance(entry, Mapping) else None
    return entry


def first_unknown(config: Mapping[str, Any], id: str) -> tuple[str, Mapping[str, Any], str] | None:
    """
    The first name of a path that its holder does not have; the last one may be new.

    Args:
        config: that is searched.
        id: the path.

    Returns:
        Path of the holder, "" for the config itself, the holder, and the name. None where all are there, or where
        something other than a dictionary holds the next.

    Example:
        >>> first_unknown({"train": {"seed": 3}}, "train::data::seed")
        ('train', {'seed': 3}, 'data')
    """
    names = names_of(id)
    holder: Any = config
    for place, name in enumerate(names[:-1]):
        if not isinstance(holder, Mapping):
            return None
        if name not in holder:
            return SEPARATOR.join(names[:place]), holder, name
        holder = holder[name]
    return None


def all_entries(holder: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """
    All entries of a config, or of a part of it.

    Args:
        holder: the config, or the part.
        prefix: what the paths begin with.

    Yields:
        Path and content; those of lists are left out, as a place in a list is no name.

    Example:
        >>> [path for path, _ in all_entries({"train": {"lr_schedule": {"end": 0}}})]
        ['train', 'train::lr_schedule', 'train::lr_schedule::end']
    """
    if not isinstance(holder, Mapping):
        return
    for name, entry in holder.items():
        path = f"{prefix}{name}"
        yield path, entry
        yield from all_entries(entry, path + SEPARATOR)


def _set(config: dict[str, Any], names: list[str], value: Any, merges: bool) -> None:
    holder: Any = config
    for name in names[:-1]:
        holder = holder.setdefault(name, {}) if isinstance(holder, dict) else {}
    if not isinstance(holder, dict):
        return
    old = holder.get(names[-1])
    if merges and isinstance(old, dict) and isinstance(value, dict):
        value = {**old, **value}
    holder[names[-1]] = value
