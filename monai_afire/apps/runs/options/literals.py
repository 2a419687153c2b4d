# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Paths and names of a command line or a config that Fire or MONAI would read as something else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fire.parser import DefaultParseValue

from monai_afire.apps.runs.call import BundleCall
from monai_afire.apps.runs.config_entries import needs_evaluation, text_of
from monai_afire.apps.runs.options.declarations import OPTIONS
from monai_afire.apps.runs.options.option import NULL, Option
from monai_afire_cli.options.words import SIGILS, literal

__all__ = ["changed_words"]

_AS_WRITTEN = "monai-afire run takes it as written"


def changed_words(call: BundleCall) -> Iterator[tuple[str, str]]:
    """
    Find texts that would not stay as somebody wrote them.

    Args:
        call: the start.

    Yields:
        Name, and the problem with its remedy.
    """
    for id, word in call.words.items():
        option = OPTIONS.get(id)
        if id not in call.overrides:
            continue  # an option of MONAI, such as config_file
        if option is not None and option.is_text:
            problem = _changed_text(option, word)
        else:
            problem = _changed_entries(option, word)
        if problem:
            yield id, problem
    for id, value in _plain_values(call).items():
        if literal(value) != value:
            yield id, f"MONAI reads the # in {value!r} as its own language: write {literal(value)}"


def _changed_text(option: Option, word: str) -> str | None:
    """What becomes of a path or a name."""
    if option.null and word == NULL:
        return None
    if option.null and word.lower() in ("none", "null"):
        return f"MONAI would not read it as nothing: write '{NULL}'"
    if word.startswith("~"):
        return f"the shell has left the ~ in {word!r} as it is: write the folder in full"
    if text_of(word) != word:
        return None  # as monai-afire run writes it
    read = DefaultParseValue(word)
    if read == word and literal(word) == word:
        return None
    other = f", or write ./{word}" if option.is_path and "#" not in word else ""
    found = "their own language" if read == word else repr(read)
    return f"Fire and MONAI read {word!r} as {found}: {_AS_WRITTEN}{other}"


def _changed_entries(option: Option | None, word: str) -> str | None:
    """What becomes of another word, which may be a list or a dictionary."""
    value = DefaultParseValue(word)
    if isinstance(value, dict) and any("#" in str(name) for name in value):
        return "names in it cannot hold a #, which separates ids in MONAI: choose others"
    if option is not None and option.is_path:
        for text in _texts(value):
            if text.startswith(SIGILS) and text_of(text) == text:
                return f"MONAI reads {text!r} as its own language: write ./{text}"
    lost = isinstance(value, str) and "#" in word and not needs_evaluation(value)
    if lost or any("#" in text for text in _texts(value) if not needs_evaluation(text)):
        return f"Fire and MONAI read the # in {word!r} as their language: {_AS_WRITTEN}"
    return None


def _texts(value: Any) -> list[str]:
    """The texts directly in a list or a dictionary."""
    if not isinstance(value, (dict, list, tuple)):
        return []
    entries = value.values() if isinstance(value, dict) else value
    return [entry for entry in entries if isinstance(entry, str)]


def _plain_values(call: BundleCall) -> dict[str, Any]:
    """Options in config files that are texts, or that have texts in them, rather than to be evaluated."""
    values: dict[str, Any] = {}
    for content in call.layers.values():
        values |= {id: value for id, value in content.items() if id in OPTIONS}
    return {
        id: value
        for id, value in values.items()
        if id not in call.overrides and not needs_evaluation(value)
    }
