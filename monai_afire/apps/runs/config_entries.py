# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Entries of a config: what is evaluated in them, what they refer to, where a name stands, what a component takes."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pydoc import locate
from typing import Any

from monai.bundle import ConfigComponent, ConfigParser
from monai.bundle.reference_resolver import ReferenceResolver
from monai.bundle.utils import EXPR_KEY, ID_REF_KEY, ID_SEP_KEY, MACRO_KEY

from monai_afire_cli.bundles.configs import all_entries
from monai_afire_cli.options.suggestions import is_name_of

_SAVED_NETWORK = "monai_afire.networks.saved_network"


def top_level(id: str) -> str:
    """The first name of an id: ``"train"`` of ``"train::trainer"``."""
    return str(ReferenceResolver.split_id(id)[0])


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


def text_of(value: Any) -> Any:
    """
    The text of an expression that is nothing but a text; other values as they are.

    Example:
        >>> text_of("$'ward \\\\x233'"), text_of("$1 + 1"), text_of(3)
        ('ward #3', '$1 + 1', 3)
    """
    if not isinstance(value, str) or not value.startswith((f"{EXPR_KEY}'", f'{EXPR_KEY}"')):
        return value
    try:
        return ast.literal_eval(value[len(EXPR_KEY) :])
    except (SyntaxError, ValueError):
        return value


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


def component_arguments(
    component: Mapping[str, Any], parser: ConfigParser
) -> dict[str, Any] | None:
    """
    What may stand in a component's entry.

    Args:
        component: with a ``_target_``.
        parser: of its config.

    Returns:
        The default of each argument by name, ``None`` where it has none; None where the arguments are not known.

    Example:
        >>> (component_arguments({"_target_": "torch.nn.Dropout"}, ConfigParser({})) or {})["p"]
        0.5
    """
    target = component["_target_"]
    path = ConfigComponent(config=dict(component), locator=parser.locator).resolve_module_name()
    found = locate(path) if isinstance(target, str) else target
    if not callable(found):
        return None
    defaults: dict[str, Any] = dict.fromkeys(ConfigComponent.non_arg_keys)
    # what a class takes as **kwargs it hands on to the one that it extends
    for each in found.__mro__ if inspect.isclass(found) else [found]:
        try:
            parameters = inspect.signature(each).parameters
        except ValueError:  # some of Python's own, such as dict, do not say
            return None
        own = {name: None if p.default is p.empty else p.default for name, p in parameters.items()}
        defaults = {**own, **defaults}
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values()):
            return defaults
    return None


def ids_of(name: str, parser: ConfigParser) -> list[str]:
    """
    The paths that a setting of this name, or of nearly this name, can be overridden by.

    Args:
        name: as someone wrote it.
        parser: of the config.

    Returns:
        Ids of entries whose end is this very name, one that refers to another ("@learning_rate") replaced by that; else
        of arguments that a component takes by its default; else of the entry whose name is closest.

    Example:
        >>> parser = ConfigParser({"rate": 1e-3, "optimizer": {"_target_": "torch.optim.SGD", "lr": "@rate"}})
        >>> ids_of("lr", parser), ids_of("momentum", parser), ids_of("optimzer", parser)
        (['rate'], ['optimizer::momentum'], ['optimizer'])
    """
    entries = dict(all_entries(parser.get()))
    ids = [id for id in entries if is_name_of(name, id) and id != name]
    ids = ids or [f"{id}{ID_SEP_KEY}{name}" for id in _takers(name, entries, parser)]
    if ids:
        return list(dict.fromkeys(_referred(id, entries) for id in ids))
    names = {id.split(ID_SEP_KEY)[-1]: id for id in entries if id != name}
    return [names[close] for close in get_close_matches(name, names, n=1, cutoff=0.7)]


def _takers(name: str, entries: Mapping[str, Any], parser: ConfigParser) -> Iterator[str]:
    """Ids of the components that take an argument."""
    for id, entry in entries.items():
        if not ConfigComponent.is_instantiable(entry):
            continue
        if name in (component_arguments(entry, parser) or ()):
            yield id


def _referred(id: str, entries: Mapping[str, Any]) -> str:
    """The id that an entry is nothing but a reference to, or else its own."""
    entry = entries.get(id)
    if isinstance(entry, str) and entry.startswith(ID_REF_KEY):
        return entry.removeprefix(ID_REF_KEY)
    return id
