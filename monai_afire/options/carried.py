# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options that travel with weights: written with those of one run, taken from there by the next."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from monai_afire.networks.weights.model_file import read_description
from monai_afire.networks.weights.released import RELEASED, released_encoder
from monai_afire.options.call import BundleCall, needs_evaluation
from monai_afire.options.declarations import OPTIONS
from monai_afire.options.help_text import describe_default

__all__ = ["Carried", "carried_options", "described_options", "encoder_options"]


@dataclass(frozen=True)
class Source:
    """
    A file that the weights of a run come from.

    Attributes:
        path: the file.
        fits: whether an encoder is fitted to other sizes when it is loaded.
    """

    path: Path
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


def encoder_options() -> set[str]:
    """
    Names of the options that shape an encoder and its input, which a training takes from the file that it starts from.

    Example:
        >>> {"image_size", "hidden_size", "standardize"} <= encoder_options()
        True
    """
    return {option.name for option in OPTIONS.values() if option.travels == "encoder"}


_OTHER_NAMES = {
    ("ViTEncoder", "img_size"): "image_size",
    ("UPerNet", "channels"): "decoder_channels",
    ("AnomalyDetector", "layers"): "feature_layers",
}
_LIBRARIES = {"HuggingFaceEncoder": "hub", "TimmEncoder": "timm"}


def described_options(path: str | os.PathLike) -> dict[str, Any]:
    """
    What a file says about its network and images, by the names of the options of a training.

    Args:
        path: the file.

    Returns:
        The options by name; none for a file that is missing or of another program.

    Raises:
        ValueError: when the file has a wrong description.

    Example:
        >>> described_options("no/model.pt")
        {}
    """
    description = read_description(path)
    if description is None:
        return {}
    options = dict(_arguments(description.network))
    if description.preprocessing is not None:
        options |= {
            **asdict(description.preprocessing),
            "image_size": _one_for_all(description.preprocessing.image_size),
        }
    options |= {"class_names": description.class_names, "label_kind": description.label_kind, **description.settings}
    return {name: value for name, value in options.items() if name in OPTIONS and value is not None}


def _arguments(definition: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
    """Arguments of a network and its parts by the names that they have as options."""
    if definition is None or definition["class"] in ("SwinEncoder", "MONAIEncoder"):
        return  # options describe a ViT of this package
    kind, arguments = definition["class"], definition["arguments"]
    if kind in _LIBRARIES:
        yield "encoder", f"{_LIBRARIES[kind]}:{arguments['model']}"
        return
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            yield from _arguments(value)
        elif name != "num_classes":  # the list of a training says it
            yield _OTHER_NAMES.get((kind, name), name), _one_for_all(value) if name.endswith("_size") else value


def _one_for_all(sizes: Any) -> Any:
    """One number where all axes have the same."""
    return sizes[0] if isinstance(sizes, list) and len(set(sizes)) == 1 else sizes


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
            if name not in encoder_options() & call.read_names & call.config.keys() or name in wrong:
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
    places = () if "ckpt_path" in call.config else (_resumed, _adapted, _transferred)
    for place in places:
        read = [(source, described_options(source.path)) for source in place(call)]
        if any(options for _, options in read):
            return [(source, options) for source, options in read if options]
    return []


def _resumed(call: BundleCall) -> Iterator[Source]:
    """A training that goes on."""
    if call.config.get("resume") is True:
        for folder in _paths(call, "ckpt_dir"):
            yield Source(folder / "checkpoint.pt")


def _adapted(call: BundleCall) -> Iterator[Source]:
    """Another training of the same network."""
    for path in _paths(call, "pretrained"):
        yield Source(path)


def _transferred(call: BundleCall) -> Iterator[Source]:
    """A training that starts from an encoder."""
    for path in _paths(call, "encoder_weights"):
        yield Source(path, fits=True)


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
