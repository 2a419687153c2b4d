# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The option weights_of: a run that is not there, and what was meant."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from monai_afire_cli.run_records import LATEST, newest_first, run_folders
from monai_afire_cli.suggestions import did_you_mean

__all__ = ["newest_names", "no_such_run", "wrong_run"]

_RELEASED = "released"
_SHOWN = 5


def wrong_run(word: str, parent: Path, config: Mapping[str, Any]) -> str | None:
    """
    What is wrong with a run whose weights are asked for.

    Args:
        word: name or folder of the run, or a file.
        parent: folder of the bundle's runs.
        config: of the run that asks.

    Returns:
        The problem, with the remedy or the newest runs; None for none.

    Example:
        >>> wrong_run("no_such_run", Path("/runs/afire"), {})
        'no_such_run: no such run in /runs/afire (there: none), and no such path'
    """
    if word in ("", LATEST) or word.lower() in ("none", "null"):
        return None
    if (parent / word).is_dir() or Path(word).expanduser().exists():
        return None
    names = [folder.name for folder in run_folders(parent)]
    if get_close_matches(word, [*names, _RELEASED], n=1) == [_RELEASED]:
        return f"{word}: no such run; {_how_to_get_released(config)}"
    return no_such_run(word, parent)


def no_such_run(word: str, parent: Path, kind: str = "run") -> str:
    """
    That a run is not there, and which ones are.

    Args:
        word: what was taken for its name.
        parent: folder of the bundle's runs.
        kind: what the run should be.

    Returns:
        A line with the newest runs, and what was meant.

    Example:
        >>> no_such_run("mine", Path("/runs/afire"))
        'mine: no such run in /runs/afire (there: none), and no such path'
    """
    folders = run_folders(parent)
    there = f"there: {newest_names(folders)}"
    meant = did_you_mean(word, [folder.name for folder in newest_first(folders)])
    return f"{word}: no such {kind} in {parent.absolute()} ({there}), and no such path{meant}"


def newest_names(folders: Iterable[Path]) -> str:
    """
    The names of the newest runs, and how many more there are.

    Args:
        folders: of the runs.

    Example:
        >>> newest_names([])
        'none'
    """
    names = [folder.name for folder in newest_first(folders)]
    others = len(names) - _SHOWN
    more = f" and {others} more" if others > 0 else ""
    return (", ".join(names[:_SHOWN]) or "none") + more


def _how_to_get_released(config: Mapping[str, Any]) -> str:
    """Where the released weights are, if a config has some."""
    if f"/{_RELEASED}/" in json.dumps(config.get("ckpt_path")):
        return "leave --weights_of out for the released weights"
    if "encoder_weights" in config and "ckpt_path" not in config:
        return f"the released encoder is --encoder_weights {_RELEASED}"
    return "this step has no released weights of its own: name a run, or a file by --ckpt_path"
