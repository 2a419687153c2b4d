# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Values that an option cannot have, and the sentences that say so.

The run itself checks all values by their types. Both doors take the sentences from here: what ``monai-afire`` sees
without PyTorch, it refuses at once in the words in which the run would.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from monai_afire_cli.options.words import COUNTS, SAVED_KINDS, SIGILS

__all__ = [
    "SWITCH_WORDS",
    "at_least",
    "is_empty_folder",
    "list_of_values",
    "no_radiographs",
    "one_of",
    "such_as",
    "unwritable",
    "wrong_value",
    "wrong_word",
]

SWITCH_WORDS = "True or False"
"""Values of a switch."""

_WORD = re.compile(r"[A-Za-z]+")
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_CONSTANTS = ("true", "false", "none", "null", "inf", "nan")
_NO_SWITCHES = ("inf", "nan")
_KINDS = {"saved": SAVED_KINDS}
"""Options that are lists of some of these words."""


def at_least(minimum: int) -> str:
    """
    The values of a count.

    Example:
        >>> at_least(1)
        'a whole number >= 1'
    """
    return f"a whole number >= {minimum}"


def one_of(words: Sequence[str]) -> str:
    """
    The values of a choice.

    Args:
        words: two or more.

    Example:
        >>> one_of(["memory", "disk", "none"])
        'memory, disk or none'
    """
    return f"{', '.join(words[:-1])} or {words[-1]}"


def list_of_values(each: str) -> str:
    """
    The values of a list.

    Args:
        each: the values of one of its entries.

    Example:
        >>> list_of_values("a number")
        'a list of values, each a number'
    """
    return f"a list of values, each {each}"


def wrong_value(found: str, needed: str) -> str:
    """
    That a value is none of those that an option takes.

    Example:
        >>> wrong_value("0", at_least(1))
        'found 0, needs a whole number >= 1'
    """
    return f"found {found}, needs {needed}"


def such_as(name: str, value: str) -> str:
    """
    What could have been written, in a shell.

    Example:
        >>> print(such_as("epochs", "9"), such_as("saved", '["maps"]'))
        , such as --epochs 9 , such as --saved '["maps"]'
    """
    return f", such as --{name} {shlex.quote(value)}"


def wrong_word(name: str, word: str | None, default: Any) -> str | None:
    """
    What is wrong with the word of an option that has a number, a switch or a list in the config.

    Only plain words are read; all else is left to the run.

    Args:
        name: of the option.
        word: its value; None for a switch, which has none.
        default: its value in the config.

    Returns:
        The problem, or None.

    Example:
        >>> wrong_word("epochs", "0", 9)
        'found 0, needs a whole number >= 1, such as --epochs 9'
        >>> wrong_word("resume", "maybe", False)
        "found 'maybe', needs True or False, such as --resume False"
    """
    if word is None:
        return None
    needed = _needed(name, word, default)
    if not needed:
        return None
    found = word if _WHOLE.fullmatch(word) else repr(word)
    shown = json.dumps(default) if isinstance(default, list) else str(default)
    return wrong_value(found, needed) + such_as(name, shown)


def _needed(name: str, word: str, default: Any) -> str:
    """What an option needs in the place of a word, "" where that may be right."""
    is_word = bool(_WORD.fullmatch(word))
    if isinstance(default, bool):
        is_constant = word.lower() in _CONSTANTS and word.lower() not in _NO_SWITCHES
        return SWITCH_WORDS if is_word and not is_constant else ""
    if isinstance(default, list):
        return _needed_list(name, word)
    if not isinstance(default, (int, float)):
        return ""
    if is_word and word.lower() not in _CONSTANTS:
        return at_least(1) if name in COUNTS else "a number"
    if name in COUNTS and _WHOLE.fullmatch(word) and int(word) < 1:
        return at_least(1)
    return ""


def _needed_list(name: str, word: str) -> str:
    """What an option of several values needs, "" where the word may be right."""
    if word.lower() in _CONSTANTS or word.startswith(SIGILS):
        return ""
    kinds = _KINDS.get(name, ())
    is_alone = _WORD.fullmatch(word) is not None
    if not kinds:
        return "a list of values" if is_alone else ""
    are_known = set(_WORD.findall(word)) <= set(kinds)
    return "" if are_known and not is_alone else list_of_values(one_of(kinds))


def no_radiographs(folder: str) -> str:
    """
    That nothing can be read in a folder.

    Example:
        >>> no_radiographs("ward")
        'no radiographs found under ward'
    """
    return f"no radiographs found under {folder}"


def is_empty_folder(path: str) -> bool:
    """
    Whether a folder has nothing in it but hidden files.

    Example:
        >>> is_empty_folder("no_such_folder")
        False
    """
    try:
        names = os.listdir(os.path.expanduser(path))
    except OSError:  # a file, or a folder that the run cannot read, either
        return False
    return all(name.startswith(".") for name in names)


def unwritable(folder: str) -> str | None:
    """
    Why no results can be written into a folder.

    Args:
        folder: that may be new.

    Returns:
        The problem; None for none that shows before something is written.

    Example:
        >>> unwritable("no_such_folder")
    """
    path = Path(folder).expanduser().absolute()
    above = next(each for each in (path, *path.parents) if each.exists())
    if not above.is_dir():
        return f"{folder}: {above} is a file, not a folder: choose another output folder"
    if not os.access(above, os.W_OK | os.X_OK):
        return f"{folder}: no permission to write to {above}: choose another output folder"
    return None
