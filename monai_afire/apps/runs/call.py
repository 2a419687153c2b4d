# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a bundle was started with: its config files, and what overrides them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from monai.bundle import ConfigComponent, ConfigParser
from monai.bundle.properties import InferProperties, TrainProperties
from monai.bundle.reference_resolver import ReferenceResolver
from monai.bundle.utils import DEFAULT_MLFLOW_SETTINGS, EXPR_KEY, ID_REF_KEY, MACRO_KEY, merge_kv

__all__ = [
    "BundleCall",
    "is_computed",
    "is_of_weights",
    "needs_evaluation",
    "referenced_names",
    "top_level",
]


def top_level(id: str) -> str:
    """The first name of an id: ``"train"`` of ``"train::trainer"``."""
    return str(ReferenceResolver.split_id(id)[0])


_PROPERTIES: dict[str, Any] = {**TrainProperties, **InferProperties}
_TRACKING: dict[str, Any] = DEFAULT_MLFLOW_SETTINGS
# what MONAI itself looks for at the top of a config, whether or not an entry refers to it
_READ_BY_MONAI = frozenset(
    {"imports", "initialize", "run", "finalize", ConfigParser.meta_key}
    | {top_level(entry["id"]) for entry in _PROPERTIES.values()}
    | set(_TRACKING["configs"])
)


_SAVED_NETWORK = "monai_afire.networks.saved_network"


@dataclass(frozen=True)
class BundleCall:
    """
    One start of a bundle.

    Args:
        layers: content of each config file by its path, in their order.
        overrides: values from the command line, by id (with "::").
        words: the same as someone wrote them.
        meta: content of ``metadata.json``.

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
    meta: Mapping[str, Any] = field(default_factory=dict)

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
        parser.update({ConfigParser.meta_key: self.meta, **self.overrides})
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


def is_of_weights(entry: Any) -> bool:
    """
    Whether an entry of a config is built or read from the file of the weights, so that nothing in it can be set.

    Example:
        >>> [is_of_weights(entry) for entry in ("$@model_file.image_size", {"_target_": "torch.nn.ReLU"})]
        [True, False]
    """
    if isinstance(entry, dict) and entry.get("_target_") == _SAVED_NETWORK:
        return True
    return "$@model_file." in str(entry)


def is_computed(value: Any) -> bool:
    """
    Whether MONAI computes an entry when it is needed, so that it cannot be checked before.

    Example:
        >>> [is_computed(value) for value in ("$2 * @epochs", "@epochs", {"_target_": "dict"}, ["@epochs"], 3)]
        [True, True, True, False, False]
    """
    if isinstance(value, str):
        return value.startswith((ID_REF_KEY, EXPR_KEY))
    return ConfigComponent.is_instantiable(value)


def needs_evaluation(value: Any) -> bool:
    """
    Whether MONAI computes an entry, or something in it.

    Example:
        >>> [needs_evaluation(value) for value in (3, ["a", "@b"], {"x": "$1 + 1"}, {"_target_": "list"}, "price: $5")]
        [False, True, True, True, False]
    """
    if is_computed(value):
        return True
    entries = value.values() if isinstance(value, dict) else value
    return isinstance(value, (dict, list, tuple)) and any(map(needs_evaluation, entries))


def referenced_names(entry: Any) -> set[str]:
    """
    Top-level names that an entry refers to.

    Example:
        >>> sorted(referenced_names({"lr": "@rate", "handlers": ["%train::stats"]}))
        ['rate', 'train']
    """
    return {top_level(id) for text in _texts(entry) for id in _references(text)}


def _texts(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, (dict, list, tuple)):
        for below in entry.values() if isinstance(entry, dict) else entry:
            yield from _texts(below)


def _references(text: str) -> list[str]:
    macro = [text[len(MACRO_KEY) :]] if text.startswith(MACRO_KEY) else []
    return [*macro, *ReferenceResolver.match_refs_pattern(text)]
