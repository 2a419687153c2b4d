# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What ``python -m monai.bundle`` was started with, by the words of its command line."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fire.parser import DefaultParseValue
from monai.bundle import ConfigParser, ConfigWorkflow
from monai.bundle.reference_resolver import ReferenceResolver
from monai.utils import ensure_tuple

from monai_afire.apps.runs.call import BundleCall
from monai_afire_cli.words import option_words

__all__ = ["bundle_call", "config_files", "given_options", "given_words"]

_MONAI = ("monai", "bundle", "__main__.py")
_OF_MONAI = frozenset(
    {"args_file", "workflow_name", *inspect.signature(ConfigWorkflow.__init__).parameters}
)


def given_words(arguments: Sequence[str]) -> dict[str, str | None]:
    """
    The words of MONAI's command by option.

    Args:
        arguments: ``sys.argv``.

    Returns:
        What :func:`monai_afire_cli.words.option_words` finds; nothing for another program.

    Example:
        >>> given_words(["monai/bundle/__main__.py", "run", "--epochs", "3"])
        {'epochs': '3'}
    """
    is_bundle = bool(arguments) and Path(arguments[0]).parts[-3:] == _MONAI
    return option_words(arguments[1:]) if is_bundle else {}


def given_options() -> dict[str, str]:
    """
    The options of the command that runs, each with its word.

    Returns:
        "True" for a switch, which has no word; nothing in another program.

    Example:
        >>> given_options()
        {}
    """
    words = given_words(sys.argv)
    return {name: "True" if word is None else word for name, word in words.items()}


def config_files(word: str | None) -> list[str]:
    """
    The files that a word names, as Fire reads it.

    Args:
        word: of ``--config_file``: one file or a list of them; None for none.

    Example:
        >>> config_files("a.json"), config_files("['a.json','b.json']"), config_files(None)
        (['a.json'], ['a.json', 'b.json'], [])
    """
    return [str(path) for path in ensure_tuple(DefaultParseValue(word))] if word else []


def bundle_call(arguments: Sequence[str]) -> BundleCall | None:
    """
    The start of a bundle from a command line. Its configs are read once more, the running ones are left alone.

    Args:
        arguments: ``sys.argv``.

    Returns:
        The start; None for another process, such as a Python program or a notebook that calls MONAI.

    Example:
        >>> bundle_call(["my_program.py", "--epochs", "3"]) is None
        True
    """
    words = given_words(arguments)
    given: dict[str, Any] = {
        id: True if word is None else DefaultParseValue(word) for id, word in words.items()
    }
    if "args_file" in given:
        given = {**_normalized(ConfigParser.load_config_file(given["args_file"])), **given}
    paths = [str(path) for path in ensure_tuple(given.get("config_file", ()))]
    if not paths:
        return None
    overrides = {id: value for id, value in given.items() if id not in _OF_MONAI}
    return BundleCall(
        layers={path: ConfigParser.load_config_file(path) for path in paths},
        overrides=overrides,
        words={id: word for id, word in words.items() if word is not None},
        meta=_metadata(paths[0], given.get("meta_file")),
    )


def _normalized(content: dict[str, Any]) -> dict[str, Any]:
    return {ReferenceResolver.normalize_id(id): value for id, value in content.items()}


def _metadata(config_file: str, meta_file: Any) -> dict[str, Any]:
    """Content of the file that is given, else of the one beside the config."""
    beside = Path(config_file).with_name("metadata.json")
    if meta_file is None and not beside.is_file():
        return {}
    return ConfigParser.load_config_files(beside if meta_file is None else meta_file)
