# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Networks as data: the class and the arguments that one was built with, and the network built from them."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from monai.networks.nets import BasicUNet, ViT
from torch import nn

__all__ = ["build_network", "definition_of", "encoder_definition", "keeps_arguments"]

Class = TypeVar("Class", bound=type)

# the only classes that a file can name: those of this list, and those that the program has decorated
_CLASSES: dict[str, type] = {each.__name__: each for each in (ViT, BasicUNet)}
_ARGUMENTS = "_constructor_arguments"
# arguments that classes had once, and the values of each that still mean the same network: of a detector's copies
# of normal images, its statistics were taken
_RETIRED: dict[str, dict[str, tuple[Any, ...]]] = {
    "ViTEncoder": {"stem": ("patch",), "spatial_dims": (2,)},
    "SwinEncoder": {"spatial_dims": (2,)},
    "ResidualEncoder": {"spatial_dims": (2,)},
    "AFiRe": {"mask_token_per_position": (True,)},
    "ACE": {"centering": (True,), "normalize": (True,)},
    "AnomalyDetector": {
        "aggregation": ("interior_mean",),
        "copies": (0, 1),
        "masked_restoration": (None,),
        "similarity": (None,),
        "views": (1,),
    },
}


def keeps_arguments(cls: Class) -> Class:
    """
    Let the objects of a class remember the arguments that they are built with, and files name the class.

    A network of your own, decorated, is saved, loaded and resumed like those of this package.

    Args:
        cls: the class; changed in place. Its arguments are numbers, texts, lists, or networks of such classes.

    Returns:
        The class.
    """
    init = cls.__init__  # type: ignore[misc]
    signature = inspect.signature(init)

    @functools.wraps(init)
    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        if _ARGUMENTS not in self.__dict__:  # a subclass remembers its own
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            # not by setattr: parts among the arguments must not become children twice
            self.__dict__[_ARGUMENTS] = dict(list(bound.arguments.items())[1:])
        init(self, *args, **kwargs)

    cls.__init__ = remember  # type: ignore[misc]
    _CLASSES[cls.__name__] = cls
    return cls


def definition_of(network: Any) -> dict[str, Any] | None:
    """
    Describe how to build a network.

    Args:
        network: of a class of this package.

    Returns:
        ``{"class": name, "arguments": {...}}``, JSON data with definitions in the place of parts. None for an object
        of another class; inside of a definition, such a part is None.
    """
    arguments = network.__dict__.get(_ARGUMENTS)
    name = type(network).__name__
    if arguments is None or _CLASSES.get(name) is not type(network):
        return None
    changed: dict[str, Any] = getattr(network, "changed_arguments", dict)()
    described = {
        name: _as_data(value, getattr(network, name, None)) for name, value in arguments.items()
    }
    return {"class": name, "arguments": {**described, **changed}}


def _as_data(value: Any, part: Any) -> Any:
    """JSON data of an argument; ``part`` is what the network has made of it, such as the adapter around an encoder."""
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return [_as_data(each, None) for each in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return definition_of(value) or (definition_of(part) if isinstance(part, nn.Module) else None)


def encoder_definition(definition: Any) -> dict[str, Any] | None:
    """The definition of the encoder in that of a network, however deep inside; None without one."""
    while definition is not None and "Encoder" not in str(definition["class"]):
        parts = definition["arguments"]
        definition = parts.get("encoder", parts.get("network"))
    return definition


def build_network(
    definition: Mapping[str, Any], name: str = "the definition", **replaced: Any
) -> Any:
    """
    Build what :func:`definition_of` describes. Classes and names of arguments are checked; nothing is evaluated.

    Args:
        definition: from any source; it need not be trusted.
        name: of the file that it comes from, for messages.
        replaced: arguments of the outermost class in the place of the definition's.

    Returns:
        The network, with random weights.

    Raises:
        ValueError: when a class or an argument is unknown, or the network impossible.
    """
    try:
        return _build(definition, replaced)
    except ImportError:  # says what to install
        raise
    except Exception as error:  # an impossible argument fails in a dozen ways
        raise ValueError(f"{name}: cannot build the network: {error}") from error


def _build(definition: Mapping[str, Any], replaced: Mapping[str, Any]) -> Any:
    name = definition["class"]
    if not isinstance(name, str) or name not in _CLASSES:
        raise ValueError(f"there is no class {name!r}")
    known = inspect.signature(_CLASSES[name]).parameters
    arguments = _without_retired(name, definition["arguments"])
    if unknown := [each for each in {**arguments, **replaced} if each not in known]:
        raise ValueError(f"{name} has no argument {', '.join(unknown)}")
    parts = {
        each: _build(value, {}) if isinstance(value, Mapping) else value
        for each, value in arguments.items()
    }
    if "pretrained" in known:
        parts["pretrained"] = False  # the file has the weights
    return _CLASSES[name](**{**parts, **replaced})


def _without_retired(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments without those of older versions; one of another value would be another network."""
    retired = _RETIRED.get(name, {})
    for each, permitted in retired.items():
        if arguments.get(each, permitted[0]) not in permitted:
            raise ValueError(
                f"{name} has no argument {each} any more, and the file has {arguments[each]!r}"
            )
    return {each: value for each, value in arguments.items() if each not in retired}
