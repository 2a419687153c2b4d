# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Paths and names of a command line, kept from the two parsers that they go through.

Python Fire reads each word as Python (``ward #3`` ends at the comment, ``1e3`` is a number, ``a,b`` two values), and
MONAI reads texts of a config as its own language (``#`` separates ids; ``@``, ``$`` and ``%`` begin references,
expressions and macros).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fire.parser import DefaultParseValue
from monai.bundle.utils import EXPR_KEY, ID_REF_KEY, ID_SEP_KEY, MACRO_KEY

from monai_afire.apps.runs.call import BundleCall, needs_evaluation, top_level
from monai_afire.apps.runs.declarations import OPTIONS
from monai_afire.apps.runs.kinds import with_home
from monai_afire.apps.runs.option import Option
from monai_afire_cli.overrides import option_words

__all__ = ["command_words", "literal", "words_as_written"]

_SIGILS = (ID_REF_KEY, EXPR_KEY, MACRO_KEY)
_LANGUAGE = re.compile(r"^[@$%]|#|[@%]::")
_MONAI = ("monai", "bundle", "__main__.py")


def literal(value: Any) -> Any:
    """
    A value that MONAI's config parser leaves as it is.

    Args:
        value: a text, or a list or dictionary with texts in it; anything else is returned unchanged.

    Returns:
        The value; a text that the parser would read as its own language becomes an expression for this very text.

    Example:
        >>> literal("ward 3"), literal("ward #3"), literal(["@home"])
        ('ward 3', "$'ward \\\\x233'", ["$'\\\\x40home'"])
    """
    if isinstance(value, dict):
        return {name: literal(below) for name, below in value.items()}
    if isinstance(value, (list, tuple)):
        return [literal(below) for below in value]
    if not isinstance(value, str) or not _LANGUAGE.search(value):
        return value
    text = repr(value)
    for sign in ("#", ID_REF_KEY, MACRO_KEY):
        text = text.replace(sign, f"\\x{ord(sign):02x}")
    return EXPR_KEY + text


def command_words(arguments: Sequence[str]) -> dict[str, str]:
    """
    The overrides of a command line as they were written.

    Args:
        arguments: ``sys.argv``.

    Returns:
        The word after each option by its id, with "::"; none unless the process is ``python -m monai.bundle``.

    Example:
        >>> command_words(["monai/bundle/__main__.py", "run", "--dataset_dir", "ward #3", "--flag"])
        {'dataset_dir': 'ward #3'}
    """
    if not arguments or Path(arguments[0]).parts[-3:] != _MONAI:
        return {}
    return {id: word for id, word in option_words(arguments).items() if word is not None}


def words_as_written(call: BundleCall) -> Iterator[tuple[str, str]]:
    """
    Put paths and names into the config as someone wrote them.

    Args:
        call: the start; its config is changed.

    Yields:
        Name and problem of each option whose value is MONAI's language, though it should be a path or a name.
    """
    for id, word in call.words.items():
        if id not in call.parser:
            continue  # an option of MONAI, such as config_file
        option = OPTIONS.get(id)
        is_text = option is not None and option.is_text
        value = with_home(word) if is_text else _as_fire_reads(word)
        problem = _problem(value, option) if option is not None else None
        if problem:
            yield id, problem
        elif is_text or ("#" in word and not needs_evaluation(value)):
            call.replace(id, literal(value))
    for id, value in _of_files(call).items():
        if literal(value) != value:
            call.replace(id, literal(value))


def _as_fire_reads(word: str) -> Any:
    """Fire's reading of a word, but for a text, of which it drops what follows a "#"."""
    value = DefaultParseValue(word)
    return word if isinstance(value, str) and "#" in word else value


def _problem(value: Any, option: Option) -> str | None:
    """Why MONAI cannot take a value literally."""
    texts = [value] if isinstance(value, str) else _texts_below(value)
    for text in texts:
        if text.startswith(_SIGILS):
            remedy = f"write ./{text}" if option.is_path else "choose another name"
            return f"MONAI reads {text!r} as its own language, because of the {text[0]}: {remedy}"
    if isinstance(value, dict) and any("#" in str(name) for name in value):
        return "names in it cannot hold a #, which separates ids in MONAI: choose others"
    return None


def _texts_below(value: Any) -> list[str]:
    """The texts directly in a list or a dictionary."""
    entries = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (dict, list, tuple)):
        return []
    return [entry for entry in entries if isinstance(entry, str)]


def _of_files(call: BundleCall) -> dict[str, Any]:
    """Plain values of options in config files and from a caller, before MONAI read them."""
    written: dict[str, Any] = {}
    for content in (*call.layers.values(), call.overrides):
        for id, value in content.items():
            entries = value.items() if isinstance(value, dict) else ()
            written |= {f"{id}{ID_SEP_KEY}{name}": entry for name, entry in entries}
            written[id] = None if isinstance(value, dict) else value
    return {
        id: value
        for id, value in written.items()
        if top_level(id) in OPTIONS and id not in call.words and not needs_evaluation(value)
    }
