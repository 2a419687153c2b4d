# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options that travel with weights: written with those of one run, taken from there by the next."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from monai_afire.networks.weights.released import RELEASED, released_encoder
from monai_afire.options.call import BundleCall, current_call, needs_evaluation
from monai_afire.options.declarations import OPTIONS
from monai_afire.options.help_text import describe_default
from monai_afire.options.option import Travels
from monai_afire.utils.saved_options import read_options

__all__ = ["Carried", "carried_options", "taken_names", "travelling_options"]

_TAKEN: dict[str, frozenset[Travels]] = {
    "encoder": frozenset({"encoder"}),
    "network": frozenset({"encoder", "network"}),
    "result": frozenset({"encoder", "network", "result"}),
}


@dataclass(frozen=True)
class Source:
    """
    A file that the weights of a run come from.

    Attributes:
        path: the file.
        taken: what of it is used: the "encoder", the whole "network", or that as it is for its "result".
        fits: whether an encoder is fitted to other sizes when it is loaded.
    """

    path: Path
    taken: str
    fits: bool = False


@dataclass(frozen=True)
class Carried:
    """
    An option as the weights carry it.

    Attributes:
        name: of the option.
        value: checked, as the config is to hold it.
        source: the file that carries it.
    """

    name: str
    value: Any
    source: Source


def travelling_options() -> dict[str, Any]:
    """
    The options of the run whose config evaluates this that are to be saved with its weights.

    It is the argument `options` of what writes weights::

        "checkpoint": {"_target_": "monai_afire.handlers.ResumableCheckpoint", ...,
                       "options": {"_target_": "monai_afire.options.travelling_options"}}

    Returns:
        By name, those that are declared to travel, that something in the config reads, and that are not null. A
        component in the place of a value (an ``encoder`` that an overlay describes) is left out: later steps are given
        the overlay again.

    Raises:
        RuntimeError: when no config is being evaluated.

    Example:
        >>> from monai.bundle import ConfigParser
        >>> config = {"num_layers": 6, "epochs": 3, "options": {"_target_": "monai_afire.options.travelling_options"}}
        >>> ConfigParser({**config, "network": "@num_layers"}).get_parsed_content("options")
        {'num_layers': 6}
    """
    call = current_call()
    names = [name for name in call.config if name in OPTIONS and OPTIONS[name].travels and name in call.read_names]
    values = {name: call.value(name) for name in names}
    return {name: value for name, value in values.items() if value is not None and not isinstance(value, nn.Module)}


def taken_names(taken: str) -> set[str]:
    """
    Names of the options that a run takes from weights.

    Args:
        taken: what of them it uses: the "encoder", the "network" to go on training it, or the network's "result".

    Example:
        >>> {"image_size", "hidden_size", "standardize"} <= taken_names("encoder") < taken_names("result")
        True
    """
    return {option.name for option in OPTIONS.values() if option.travels in _TAKEN[taken]}


def carried_options(call: BundleCall, wrong: Collection[str] = ()) -> Iterator[Carried | tuple[str, str]]:
    """
    What a run has to take from its weights.

    Args:
        call: the start of the run. Without the content of its files nothing is taken: what was given cannot be told
            from what is a default.
        wrong: options whose values in the config cannot be read.

    Yields:
        Options to put into the config; or, as a name and a text, a problem: an override, or an overlay's value in place
        of the first file's, that contradicts the weights, files that contradict each other, a value that is none.
    """
    if call.files is None:
        return
    found: dict[str, Carried] = {}
    for source, options in _sources(call):
        for name, value in options.items():
            if name not in taken_names(source.taken) & call.read_names & call.config.keys() or name in wrong:
                continue
            try:
                carried = Carried(name, _checked(name, value), source)
            except ValueError as error:
                yield name, f"{source.path} says {error}"
                continue
            if problem := _contradiction(call, carried, found.setdefault(name, carried)):
                yield name, problem
    for carried in found.values():
        if _given(call, carried.name) is None:
            yield carried


def _sources(call: BundleCall) -> list[tuple[Source, dict[str, Any]]]:
    """The first of the places that weights come from where some carry options, with these."""
    places = (_compared, _loaded) if "ckpt_path" in call.config else (_resumed, _adapted, _transferred)
    for place in places:
        read = [(source, read_options(source.path)) for source in place(call)]
        if any(options for _, options in read):
            return [(source, options) for source, options in read if options]
    return []


def _compared(call: BundleCall) -> Iterator[Source]:
    """Encoders and classifiers of an analysis; one of the encoders may be that of the network which it loads."""
    loaded = [source.path for source in _loaded(call)]
    for path in _paths(call, "weights"):
        yield Source(path, "result" if path in loaded else "encoder", fits=True)
    for path in _paths(call, "classifier_weights"):
        yield Source(path, "encoder")


def _loaded(call: BundleCall) -> Iterator[Source]:
    """An evaluation, or the use of a network."""
    for path in _paths(call, "ckpt_path"):
        yield Source(path, "result")


def _resumed(call: BundleCall) -> Iterator[Source]:
    """A training that goes on."""
    if call.config.get("resume") is True:
        for folder in _paths(call, "ckpt_dir"):
            yield Source(folder / "checkpoint.pt", "network")


def _adapted(call: BundleCall) -> Iterator[Source]:
    """Another training of the same network."""
    for path in _paths(call, "pretrained"):
        yield Source(path, "network")


def _transferred(call: BundleCall) -> Iterator[Source]:
    """A training that starts from an encoder."""
    for path in _paths(call, "encoder_weights"):
        yield Source(path, "encoder", fits=True)


def _paths(call: BundleCall, name: str) -> Iterator[Path]:
    """The path, or the paths by some names, that an option holds; none for null, or for what is no path."""
    value = call.value(name) if name in call.config and name in call.read_names else None
    for path in value.values() if isinstance(value, Mapping) else [value]:
        if path and isinstance(path, (str, os.PathLike)):
            yield released_encoder() if path == RELEASED else Path(path)


def _checked(name: str, value: Any) -> Any:
    """A file is of anybody's making: its values are data, never expressions."""
    if needs_evaluation(value):
        raise ValueError(f"{value!r}, which is no plain value: do not use this file")
    return OPTIONS[name].read(value)


def _given(call: BundleCall, name: str) -> tuple[Any, str] | None:
    """The value that someone chose, with where it stands; None where it is the default of the run's first file."""
    if name in (call.overrides or {}):
        return call.value(name), ""
    layers = list(call.layers.items())
    if layers and name in layers[0][1]:  # what is not there is a default of the overlay that brings it
        for path, content in reversed(layers[1:]):
            if name in content:
                return call.value(name), f" (of {Path(path).name})"
    return None


def _contradiction(call: BundleCall, carried: Carried, first: Carried) -> str | None:
    """What is wrong with a value that weights carry, with what to do."""
    option, source, value = OPTIONS[carried.name], carried.source, describe_default(carried.value)
    if option.fitted and source.fits:
        return None
    if carried.value != first.value:
        return f"{source.path} was trained with {value}, {first.source.path} with {describe_default(first.value)}"
    given = _given(call, carried.name)
    if given is None or given[0] is None or given[0] == carried.value:
        return None
    found = f"{describe_default(given[0])}{given[1]}"
    return f"{found} contradicts {source.path}, which was trained with {value}: leave it out"
