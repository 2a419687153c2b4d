# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Paths of a command line that a config does not have: MONAI ends at these before any config can explain them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

__all__ = ["wrong_paths"]

_SEPARATOR = "::"


def wrong_paths(files: Sequence[Path], overrides: Sequence[str]) -> list[str]:
    """
    Overrides inside of entries that no config has.

    Args:
        files: configs of the run. If one of them is not JSON, nothing is checked here.
        overrides: words of the command line.

    Returns:
        A line for each, with the nearest name.

    Example:
        >>> from monai_afire_cli.bundles import bundles_folder
        >>> wrong_paths([bundles_folder() / "afire/configs/train.json"], ["--train::lr_schedul::end", "0"])
        ["--train::lr_schedul::end: train has no 'lr_schedul'; did you mean 'lr_schedule'?"]
    """
    if any(path.suffix != ".json" for path in files):
        return []
    config: dict[str, Any] = {}
    for path in files:
        for id, value in json.loads(path.read_text(encoding="utf-8")).items():
            _set(config, _parts(id.lstrip("+")), value, merges=id.startswith("+"))
    names = [word[2:].partition("=")[0] for word in overrides if word.startswith("--")]
    problems = ((name, _problem(config, _parts(name))) for name in names)
    return [f"--{name}: {problem}" for name, problem in problems if problem]


def _parts(id: str) -> list[str]:
    return id.replace("#", _SEPARATOR).split(_SEPARATOR)


def _set(config: dict[str, Any], id: list[str], value: Any, merges: bool) -> None:
    holder: Any = config
    for name in id[:-1]:
        holder = holder.setdefault(name, {}) if isinstance(holder, dict) else {}
    if isinstance(holder, dict):
        old = holder.get(id[-1])
        holder[id[-1]] = (
            {**old, **value}
            if merges and isinstance(old, dict) and isinstance(value, dict)
            else value
        )


def _problem(config: dict[str, Any], id: list[str]) -> str | None:
    """The first part of a path that its holder does not have; the last part may be new."""
    holder: Any = config
    for place, name in enumerate(id[:-1]):
        if not isinstance(holder, dict):
            return None
        if name not in holder:
            close = get_close_matches(name, holder, n=1)
            return f"{_SEPARATOR.join(id[:place]) or 'the config'} has no {name!r}" + (
                f"; did you mean {close[0]!r}?" if close else ""
            )
        holder = holder[name]
    return None
