# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Words of a command line on their way through two parsers.

Python Fire reads each word as Python (``ward #3`` ends at the comment, ``1e3`` is a number, ``a,b`` two values), and
MONAI reads texts of a config as its own language (``#`` separates ids; ``@``, ``$`` and ``%`` begin references,
expressions and macros).
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Sequence
from typing import Any

__all__ = [
    "COUNTS",
    "DICTIONARIES",
    "NAMES",
    "PATHS",
    "SAVED_KINDS",
    "SEPARATOR",
    "SIGILS",
    "literal",
    "option_words",
    "passed_on",
    "passed_word",
]

PATHS = (
    *("dataset_dir", "datalist", "calibrate", "ckpt_path", "encoder_weights", "pretrained"),
    *("bundle_root", "weights_of", "output_dir", "ckpt_dir"),
    *("export_path", "cache_dir", "items::phantom::folder"),
)
"""Options that are paths, of all bundles."""
NAMES = ("section", "label_key", "name", "encoder")
"""Options that are any text."""
DICTIONARIES = ("weights", "classifier_weights")
"""Options that are dictionaries of names and paths."""
COUNTS = (
    *("epochs", "batch_size", "accumulation_steps"),
    *("train::run::val_interval", "train::dataloader::min_batches"),
    *("grid", "cell", "window", "picture_size", "stride"),
)
"""Options that are whole numbers from 1 on."""
SAVED_KINDS = ("overlays", "thumbnails", "dicom", "sr", "maps", "embeddings")
"""Values of the option saved: files of a scored image beside its row in the table."""
SEPARATOR = "::"
"""Between the names of a path in a config."""
SIGILS = ("@", "$", "%")
"""What begins a reference, an expression or a macro of MONAI."""

_FLAG = re.compile(r"--|-[a-zA-Z]")  # what Fire takes for the name of an option
_LANGUAGE = re.compile(r"^[@$%]|#|[@%]::")
_SEPARATED = re.compile(r"^(?![@$%]).*#", re.DOTALL)  # a text that is no reference or expression
# no number of Python: the name of a run by its time
_DIGITS = re.compile(r"\d[\d_]*(-[\d_]+)+", re.ASCII)
_OF_PYTHON = ("True", "False", "None", "...")
_PLAIN = re.compile(r"[A-Za-z_./]([\w./:~ -]*[\w./:~-])?", re.ASCII)
# MONAI leaves out an option that is None, so null is an expression
_CONSTANTS = {"true": "True", "false": "False", "none": "$None", "null": "$None"}


def literal(value: Any, language: re.Pattern[str] = _LANGUAGE) -> Any:
    """
    A value that MONAI's config parser leaves as it is.

    Args:
        value: a text, or a list or dictionary with texts in it; anything else is returned unchanged.
        language: what the parser would change.

    Returns:
        The value; a text that the parser would read as its own language becomes an expression for this very text.

    Example:
        >>> literal("ward 3"), literal("ward #3"), literal(["@home"])
        ('ward 3', "$'ward \\\\x233'", ["$'\\\\x40home'"])
    """
    if isinstance(value, dict):
        return {name: literal(below, language) for name, below in value.items()}
    if isinstance(value, (list, tuple)):
        return [literal(below, language) for below in value]
    if not isinstance(value, str) or not language.search(value):
        return value
    return _expression(value)


def option_words(arguments: Sequence[str]) -> dict[str, str | None]:
    """
    The words of a command line by option, as they were written.

    Args:
        arguments: words, of which those before the first option are left out.

    Returns:
        The word after each option by its id, with "::"; None for a switch, which has none.

    Example:
        >>> option_words(["run", "--dataset_dir", "ward #3", "--train#out-put=a=b", "--flag"])
        {'dataset_dir': 'ward #3', 'train::out_put': 'a=b', 'flag': None}
    """
    words: dict[str, str | None] = {}
    for place, argument in enumerate(arguments):
        if argument == "--":  # what follows are options of Fire itself
            break
        if not _FLAG.match(argument):
            continue
        name, is_joined, word = argument.partition("=")
        following = arguments[place + 1 : place + 2]
        if is_joined:
            words[_id(name)] = word
        elif following and not _FLAG.match(following[0]):
            words[_id(name)] = following[0]
        else:
            words[_id(name)] = None
    return words


def passed_on(arguments: Sequence[str]) -> list[str]:
    """
    The words by which Fire and MONAI get what somebody wrote.

    Paths and names are kept from both parsers, "true", "false" and "null" become Python's constants. Other words stay,
    except for texts in which MONAI would replace a "#".

    Args:
        arguments: overrides, as they were written.

    Returns:
        Words for ``python -m monai.bundle run``.

    Example:
        >>> passed_on(["--dataset_dir=ward #3", "--resume", "true", "--epochs", "3", "--name", "2024"])
        ["--dataset_dir=$'ward \\\\x233'", '--resume', 'True', '--epochs', '3', '--name', "$'2024'"]
    """
    words: list[str] = []
    id = ""
    for argument in arguments:
        if not _FLAG.match(argument):
            words.append(passed_word(id, argument))
            continue
        name, is_joined, word = argument.partition("=")
        id = _id(name)
        words.append(f"{name}={passed_word(id, word)}" if is_joined else argument)
    return words


def _id(name: str) -> str:
    return name.lstrip("-").replace("-", "_").replace("#", SEPARATOR)


def passed_word(id: str, word: str) -> str:
    """
    One word for an option, see :func:`passed_on`.

    Example:
        >>> passed_word("bundle_root", "-mine")
        "$'-mine'"
    """
    if id in PATHS or id in NAMES:
        return _text(os.path.expanduser(word) if id in PATHS else word)
    if word.lower() in _CONSTANTS:
        return _CONSTANTS[word.lower()]
    return _entries(word, _LANGUAGE if id in DICTIONARIES else _SEPARATED)


def _text(text: str) -> str:
    if text.lower() in ("none", "null"):
        return _CONSTANTS["null"]
    is_plain = (_PLAIN.fullmatch(text) and text not in _OF_PYTHON) or _DIGITS.fullmatch(text)
    return text if is_plain or not text else _expression(text)


def _entries(word: str, language: re.Pattern[str]) -> str:
    """A text, or a list or dictionary of them, in which MONAI changes nothing."""
    if not any(sign in word for sign in ("#", *SIGILS)):
        return word
    try:
        value = ast.literal_eval(word)
    except (SyntaxError, ValueError):
        return literal(word, language)
    kept = literal(value, language)
    if kept == value and "#" in word and "#" not in repr(value):  # Python takes it for a comment
        return literal(word, language)
    return word if kept == value else repr(kept)


def _expression(text: str) -> str:
    """An expression of MONAI for a text, without signs of its language."""
    quoted = repr(text)
    for sign in ("#", "@", "%"):
        quoted = quoted.replace(sign, f"\\x{ord(sign):02x}")
    return f"${quoted}"
