# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a bundle was started with: its config files, and what overrides them, by the words of the command line."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from fire.parser import DefaultParseValue
from monai.bundle import ConfigParser, ConfigWorkflow
from monai.bundle.properties import InferProperties, TrainProperties
from monai.bundle.reference_resolver import ReferenceResolver
from monai.bundle.utils import DEFAULT_MLFLOW_SETTINGS, merge_kv
from monai.utils import ensure_tuple

from monai_afire.apps.runs.config_entries import needs_evaluation, referenced_names, top_level
from monai_afire_cli.options.words import option_words

__all__ = [
    "BundleCall",
    "bundle_call",
    "bundle_root",
    "config_files",
    "given_options",
    "given_words",
]

_MONAI = ("monai", "bundle", "__main__.py")
_OF_MONAI = frozenset(
    {"args_file", "workflow_name", *inspect.signature(ConfigWorkflow.__init__).parameters}
)
_PROPERTIES: dict[str, Any] = {**TrainProperties, **InferProperties}
_TRACKING: dict[str, Any] = DEFAULT_MLFLOW_SETTINGS
# what MONAI itself looks for at the top of a config, whether or not an entry refers to it
_READ_BY_MONAI = frozenset(
    {"imports", "initialize", "run", "finalize", ConfigParser.meta_key}
    | {top_level(entry["id"]) for entry in _PROPERTIES.values()}
    | set(_TRACKING["configs"])
)


@dataclass(frozen=True)
class BundleCall:
    """
    One start of a bundle.

    Args:
        layers: content of each config file by its path, in their order.
        overrides: values from the command line, by id (with "::").
        words: the same as someone wrote them.

    Attributes:
        files: the config of the files alone.
        parser: of the config with everything in it.

    Example:
        >>> call = BundleCall({"train.json": {"epochs": 3, "run": ["$print(@epochs)"]}}, {"epochs": 5})
        >>> call.files.get("epochs"), call.value("epochs"), sorted(call.read_names & {"epochs", "epoch"})
        (3, 5, ['epochs'])
    """

    layers: Mapping[str, Mapping[str, Any]]
    overrides: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def files(self) -> ConfigParser:
        """The config of the files alone."""
        parser = ConfigParser({})
        for content in self.layers.values():
            for id, value in content.items():
                merge_kv(parser, id, deepcopy(value))
        return parser

    @cached_property
    def parser(self) -> ConfigParser:
        """The whole config, as MONAI reads it."""
        parser = ConfigParser(deepcopy(self.files.get()))
        parser.update(dict(self.overrides))
        parser.resolve_macro_and_relative_ids()
        return parser

    @property
    def config(self) -> dict[str, Any]:
        """The top level of the config."""
        return cast(dict, self.parser.get())

    def value(self, id: str) -> Any:
        """An entry, with expressions and references evaluated."""
        value = self.parser[id]
        return self.parser.get_parsed_content(id) if needs_evaluation(value) else value

    @cached_property
    def read_names(self) -> frozenset[str]:
        """Top-level names that some entry of the config refers to, or MONAI reads by itself."""
        # macros ("%name") are replaced in the config by now, so they are found in the files alone
        sources = (self.config, self.files.get(), dict(self.overrides))
        return _READ_BY_MONAI.union(*map(referenced_names, sources))


def given_words(arguments: Sequence[str]) -> dict[str, str | None]:
    """
    The words of MONAI's command by option.

    Args:
        arguments: ``sys.argv``.

    Returns:
        What :func:`monai_afire_cli.options.words.option_words` finds; nothing for another program.

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
    )


def _normalized(content: dict[str, Any]) -> dict[str, Any]:
    return {ReferenceResolver.normalize_id(id): value for id, value in content.items()}


def bundle_root(name: str) -> str:
    """
    Find the folder of the bundle that runs, for its configs.

    Args:
        name: of the bundle.

    Returns:
        The bundle of the ``--config_file`` of the command that runs, from whichever folder it is started. Without one,
        as in a Python program, "bundles/<name>" in the repository's root, else ".", which is right inside the bundle.

    Example:
        >>> bundle_root("no_such_bundle")
        '.'
    """
    for file in config_files(given_options().get("config_file")):
        configs = Path(file).parent
        if (configs / "metadata.json").is_file():
            return str(configs.parent)
    folder = Path("bundles", name)
    return folder.as_posix() if (folder / "configs").is_dir() else "."
