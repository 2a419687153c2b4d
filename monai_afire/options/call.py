# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a bundle was started with: its config, the files it was read from, and what overrides them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from traceback import walk_stack
from typing import Any, cast

from monai.bundle import ConfigParser, ConfigWorkflow, create_workflow
from monai.bundle.properties import InferProperties, TrainProperties
from monai.bundle.reference_resolver import ReferenceResolver
from monai.bundle.utils import DEFAULT_MLFLOW_SETTINGS, EXPR_KEY, ID_REF_KEY, MACRO_KEY
from monai.utils import ensure_tuple

__all__ = ["BundleCall", "current_call", "needs_evaluation", "top_level"]


def top_level(id: str) -> str:
    """The first name of an id: ``"train"`` of ``"train::trainer"``."""
    return str(ReferenceResolver.split_id(id)[0])


_WORKFLOW_ARGUMENTS = frozenset(inspect.signature(ConfigWorkflow.__init__).parameters)
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
        parser: of the config with everything in it.
        workflow: that the parser belongs to; None where a config is used without one.
        files: content of the config's files before overrides; None where it is not known.
        overrides: what the command line or the caller gave beside the files, by id (with "::").
        layers: content of each of these files alone, by its path, in their order.

    Example:
        >>> call = BundleCall(ConfigParser({"epochs": 3, "run": ["$print(@epochs)"]}))
        >>> sorted(call.read_names & {"epochs", "epoch"})
        ['epochs']
    """

    parser: ConfigParser
    workflow: ConfigWorkflow | None = None
    files: ConfigParser | None = None
    overrides: Mapping[str, Any] | None = None
    layers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        """The top level of the config."""
        return cast(dict, self.parser.get())

    def value(self, name: str) -> Any:
        """A top-level entry as the config stands for it: expressions and references are evaluated."""
        value = self.config[name]
        return self.parser.get_parsed_content(name) if needs_evaluation(value) else value

    @cached_property
    def read_names(self) -> frozenset[str]:
        """Top-level names that some entry of the config refers to, or MONAI reads by itself."""
        ids = {self.workflow.init_id, self.workflow.run_id, self.workflow.final_id} if self.workflow else set()
        # macros ("%name") are replaced in the config by now, and are found in the files alone
        sources = (self.config, self.files.get() if self.files else {}, dict(self.overrides or {}))
        references = {top_level(id) for source in sources for text in _texts(source) for id in _references(text)}
        return frozenset(references | {top_level(id) for id in ids} | _READ_BY_MONAI)


def current_call() -> BundleCall:
    """
    The start of the bundle whose config evaluates the expression that calls this.

    MONAI hands no parser to an expression, nor does a parser remember what it was overridden with. Both are arguments
    of functions of MONAI that are still running, and are taken from there.

    Raises:
        RuntimeError: when no config is being evaluated.

    Example:
        >>> parser = ConfigParser({"here": "$monai_afire.options.call.current_call().config['seed']", "seed": 3})
        >>> parser.globals["monai_afire"] = __import__("monai_afire")
        >>> parser.get_parsed_content("here")
        3
    """
    running: dict[Any, dict[str, Any]] = {}
    for frame, _ in walk_stack(None):
        running.setdefault(frame.f_code, frame.f_locals)
    evaluating = running.get(ConfigParser.get_parsed_content.__code__)
    if evaluating is None:
        raise RuntimeError("options are checked by an expression in a config, such as its 'initialize'")
    workflow = running.get(ConfigWorkflow.initialize.__code__, {}).get("self")
    created = running.get(create_workflow.__code__)
    if created is None:
        return BundleCall(evaluating["self"], workflow)
    overrides = {
        ReferenceResolver.normalize_id(id): value
        for id, value in created["_args"].items()
        if id not in _WORKFLOW_ARGUMENTS
    }
    paths = ensure_tuple(created["config_file"])
    files = ConfigParser(ConfigParser.load_config_files(paths))
    layers = {str(path): ConfigParser.load_config_file(path) for path in paths}
    return BundleCall(evaluating["self"], workflow, files, overrides, layers)


def needs_evaluation(value: Any) -> bool:
    """
    Whether some text in an entry is an expression or a reference, or the entry is a component.

    Example:
        >>> [needs_evaluation(value) for value in (3, ["a", "@b"], {"x": "$1 + 1"}, {"_target_": "list"}, "price: $5")]
        [False, True, True, True, False]
    """
    if isinstance(value, str):
        return value.startswith((ID_REF_KEY, EXPR_KEY))
    if isinstance(value, dict):
        return "_target_" in value or any(map(needs_evaluation, value.values()))
    return isinstance(value, (list, tuple)) and any(map(needs_evaluation, value))


def _texts(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, (dict, list, tuple)):
        for below in entry.values() if isinstance(entry, dict) else entry:
            yield from _texts(below)


def _references(text: str) -> list[str]:
    macro = [text[len(MACRO_KEY) :]] if text.startswith(MACRO_KEY) else []
    return [*macro, *ReferenceResolver.match_refs_pattern(text)]
