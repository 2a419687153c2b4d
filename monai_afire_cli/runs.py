# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The option weights_of: a run that is not there, and what was meant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

__all__ = ["wrong_run"]

_LATEST, _RELEASED = "latest", "released"
_RECORD = "run.json"
_SHOWN = 5


def wrong_run(word: str, config_file: Path, config: Mapping[str, Any]) -> str | None:
    """
    What is wrong with a run whose weights are asked for.

    Args:
        word: name or folder of the run, or a file.
        config_file: first config of the bundle that asks.
        config: its content.

    Returns:
        The problem, with the remedy or the newest runs; None for none.

    Example:
        >>> wrong_run("no_such_run", Path("no_bundle/configs/inference.json"), {})
        'no_such_run: no such run in runs/no_bundle (there: none), and no such path'
    """
    parent = Path("runs", config_file.resolve().parents[1].name)
    if word in ("", _LATEST) or word.lower() in ("none", "null"):
        return None
    if (parent / word).is_dir() or Path(word).expanduser().exists():
        return None
    names = _newest_first(parent)
    [*close] = get_close_matches(word, [*names, _RELEASED], n=1)
    if close == [_RELEASED]:
        return f"{word}: no such run; {_how_to_get_released(config)}"
    shown, others = names[:_SHOWN], len(names) - _SHOWN
    more = f" and {others} more" if others > 0 else ""
    there = f"there: {', '.join(shown) or 'none'}{more}"
    meant = f"; did you mean {close[0]!r}?" if close else ""
    return f"{word}: no such run in {parent} ({there}), and no such path{meant}"


def _how_to_get_released(config: Mapping[str, Any]) -> str:
    """Where the released weights are, if a config has some."""
    if f"/{_RELEASED}/" in json.dumps(config.get("ckpt_path")):
        return "leave --weights_of out for the released weights"
    if "encoder_weights" in config and "ckpt_path" not in config:
        return f"the released encoder is --encoder_weights {_RELEASED}"
    return "this step has no released weights of its own: name a run, or a file by --ckpt_path"


def _newest_first(parent: Path) -> list[str]:
    """Names of the runs of a bundle, by what their records say."""
    folders = [path.parent for path in parent.glob(f"*/{_RECORD}") if path.parent.name != _LATEST]
    return [folder.name for folder in sorted(folders, key=_started, reverse=True)]


def _started(folder: Path) -> str:
    """When a run was started, "" for not known; the package that writes the record takes seconds to import."""
    try:
        return str(json.loads((folder / _RECORD).read_text(encoding="utf-8"))["started"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
