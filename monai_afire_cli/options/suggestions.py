# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What somebody meant who wrote a wrong name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from monai_afire_cli.bundles.configs import all_entries
from monai_afire_cli.options.words import SEPARATOR

__all__ = ["MOST_SUGGESTIONS", "did_you_mean", "is_name_of", "paths_of"]

MOST_SUGGESTIONS = 3
"""Paths in one message."""

_REFERENCE = "@"
_OF_WEIGHTS = "$@model_file."  # read from the file of the weights


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """
    A question after the nearest of some names.

    Example:
        >>> did_you_mean("releasd", ["released", "paper"])
        "; did you mean 'released'?"
    """
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def is_name_of(name: str, path: str) -> bool:
    """
    Whether a name written alone says the end of a path: its last part, or several of them, whose folder is a "dir".

    Example:
        >>> [is_name_of(name, "items::phantom::folder") for name in ("folder", "phantom_dir", "phantom")]
        [True, True, False]
    """
    parts = path.split(SEPARATOR)
    ends = {"_".join(parts[place:]) for place in range(len(parts))}
    return not ends.isdisjoint({name, re.sub("_dir$", "_folder", name)})


def paths_of(name: str, config: Mapping[str, Any]) -> list[str]:
    """
    Where in a config a setting stands, for somebody who wrote its name alone.

    Args:
        name: end of a path, see :func:`is_name_of`.
        config: whose entries are searched; a place in a list is no name.

    Returns:
        Paths. One that refers to another entry ("@learning_rate") is replaced by that. None for what is read from the
        file of the weights, as nobody can set it.

    Example:
        >>> config = {"rate": 1e-3, "optimizer": {"lr": "@rate"}, "encoder_def": {"hidden_size": 192}}
        >>> paths_of("hidden_size", config), paths_of("lr", config)
        (['encoder_def::hidden_size'], ['rate'])
    """
    found: dict[str, None] = {}  # ordered
    for path, value in all_entries(config):
        if not is_name_of(name, path):
            continue
        if str(value).startswith(_OF_WEIGHTS):
            return []
        is_reference = isinstance(value, str) and value.startswith(_REFERENCE)
        found[value.removeprefix(_REFERENCE) if is_reference else path] = None
    return [path for path in found if path != name]
