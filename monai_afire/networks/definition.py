# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Networks as data: the class and the arguments that one was built with, checked before it is built again."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, TypeVar

import numpy as np
import torch
from pydantic import Field, StrictBool, StrictStr, TypeAdapter, ValidationError
from torch import nn

__all__ = ["build_network", "check_range", "definition_of", "encoder_definition", "keeps_arguments"]

Class = TypeVar("Class", bound=type)

# the only classes that a file can name, by the package that they come from
_CLASSES = {
    "monai.networks.nets": "ViT BasicUNet",
    "monai_afire.networks": "AFiRe PEAC ACE DINO MAE TransferClassifier UPerNet ViTEncoder SwinEncoder ResidualEncoder "
    "EfficientNetLiteEncoder "
    "HuggingFaceEncoder TimmEncoder MONAIEncoder",
    "monai_afire.detection": "AnomalyDetector MaskedRestorationInferer",
}
_PACKAGES = {name: package for package, names in _CLASSES.items() for name in names.split()}
_RANGES = (  # names of arguments and in configs of Hugging Face, kind of number, least and greatest value
    ("in_channels out_channels spatial_dims num_channels", int, 1, 64),
    (
        "num_layers decoder_layers depths num_heads decoder_heads pool_sizes copies views stride block",
        int,
        0,
        256,
    ),
    ("num_hidden_layers num_attention_heads", int, 0, 256),
    ("img_size patch_size window_size image_size", int, 1, 16_384),
    (
        "hidden_size embed_dim head_dim decoder_dim bottleneck_dim channels features expander_dim",
        int,
        1,
        16_384,
    ),
    ("mlp_dim expander_hidden_dim num_clusters num_classes intermediate_size", int, 1, 65_536),
    ("num_prototypes memory_size", int, 1, 1_048_576),
    (
        "dropout_rate drop_path_rate teacher_decay center_momentum prototype_momentum k_fraction prior",
        float,
        0,
        1,
    ),
    ("student_temperature teacher_temperature mlp_ratio", float, 1e-6, 1e6),
    ("norm_eps layer_norm_eps layernorm_eps", float, 1e-15, 0.1),
    ("mean", float, -1e6, 1e6),
    ("std", float, 1e-6, 1e6),
)


def _one_or_more(kind: Any) -> TypeAdapter:
    """Checks one value of a kind or a list of them."""
    return TypeAdapter(kind | Annotated[list[kind], Field(max_length=1024)])


_CHECKS = {
    name: _one_or_more(Annotated[kind, Field(strict=True, ge=low, le=high)])
    for names, kind, low, high in _RANGES
    for name in names.split()
}
RANGED = tuple(_CHECKS)
_FLAG, _NAME = _one_or_more(StrictBool), _one_or_more(StrictStr)
_MAX_DEPTH = 5
_ARGUMENTS = "_constructor_arguments"


def keeps_arguments(cls: Class) -> Class:
    """
    Let the objects of a class remember the arguments that they are built with, for :func:`definition_of`.

    Args:
        cls: the class; changed in place.

    Returns:
        The class.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> definition_of(encoder)["arguments"]["hidden_size"]
        24
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
    return cls


def definition_of(network: Any) -> dict[str, Any] | None:
    """
    Describe how to build a network.

    Args:
        network: of a class of this package.

    Returns:
        ``{"class": name, "arguments": {...}}``, JSON data with definitions in the place of parts. None for an object
        of another class; inside of a definition, such a part is None.

    Example:
        >>> from monai_afire.networks import TransferClassifier, ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> definition = definition_of(TransferClassifier(encoder, num_classes=2))
        >>> definition["class"], definition["arguments"]["encoder"]["class"]
        ('TransferClassifier', 'ViTEncoder')
    """
    arguments = network.__dict__.get(_ARGUMENTS)
    name = type(network).__name__
    if arguments is None or name not in _PACKAGES or class_named(name) is not type(network):
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
    """
    Find the encoder in a definition.

    Args:
        definition: of a network, or None.

    Returns:
        The definition of its encoder, however deep inside; None without one.

    Example:
        >>> encoder_definition({"class": "PEAC", "arguments": {"encoder": {"class": "ViTEncoder", "arguments": {}}}})
        {'class': 'ViTEncoder', 'arguments': {}}
    """
    while definition is not None and "Encoder" not in str(definition["class"]):
        parts = definition["arguments"]
        definition = parts.get("encoder", parts.get("network"))
    return definition


def build_network(
    definition: Mapping[str, Any], name: str = "the definition", **replaced: Any
) -> Any:
    """
    Build what :func:`definition_of` describes. Classes, names and ranges are checked first; nothing is evaluated.

    Args:
        definition: may be of anybody's making.
        name: of the file that it comes from, for messages.
        replaced: arguments of the outermost class in the place of the definition's.

    Returns:
        The network, with random weights.

    Raises:
        ValueError: when a class is unknown, an argument unknown, missing or out of range, or the network impossible.

    Example:
        >>> build_network({"class": "ViTEncoder", "arguments": {"num_layers": 10**6}}, "model.pt")
        Traceback (most recent call last):
        ValueError: model.pt: ViTEncoder.num_layers is 1000000: Input should be less than or equal to 256
    """
    _check(definition, name, set(replaced))
    try:
        return _build(definition, replaced)
    except (
        ArithmeticError,
        AttributeError,
        IndexError,
        KeyError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        raise ValueError(f"{name}: cannot build {definition['class']} ({error})") from error


def class_named(name: str) -> type:
    """The class of that name on the list of those that files can name."""
    return getattr(import_module(_PACKAGES[name]), name)


def _build(definition: Mapping[str, Any], replaced: Mapping[str, Any]) -> Any:
    kind, parts = definition["class"], {}
    for name, value in definition["arguments"].items():
        parts[name] = _build(value, {}) if isinstance(value, Mapping) else value
    if kind in ("EfficientNetLiteEncoder", "HuggingFaceEncoder", "TimmEncoder"):
        parts["pretrained"] = False  # the file has the weights
    return class_named(kind)(**{**parts, **replaced})


def _check(definition: Any, name: str, replaced: set[str], depth: int = 0) -> None:
    """Refuse what is no definition, before anything is built."""
    if depth >= _MAX_DEPTH:
        raise ValueError(f"{name}: definitions are nested more than {_MAX_DEPTH} deep")
    is_one = isinstance(definition, Mapping) and set(definition) == {"class", "arguments"}
    if not is_one or not isinstance(definition["arguments"], Mapping):
        raise ValueError(
            f"{name}: a definition has 'class' and 'arguments', got {_shown(definition)}"
        )
    kind = definition["class"]
    if not isinstance(kind, str) or kind not in _PACKAGES:
        raise ValueError(f"{name}: class {_shown(kind)} is none of {', '.join(_PACKAGES)}")
    known = inspect.signature(class_named(kind)).parameters
    for argument, value in definition["arguments"].items():
        entry = f"{kind}.{argument}"
        if argument not in known:
            raise ValueError(f"{name}: {entry} is no argument; {kind} has {', '.join(known)}")
        if isinstance(value, Mapping):
            _check(value, name, set(), depth + 1)
        elif argument not in replaced:
            _check_value(entry, argument, value, known[argument].default, name)
    needed = {each for each, parameter in known.items() if parameter.default is parameter.empty}
    given = {each for each, value in definition["arguments"].items() if value is not None}
    if absent := sorted(needed - given - replaced):
        raise ValueError(
            f"{name}: {kind} lacks {', '.join(absent)}; build it yourself and use load_network"
        )


def _check_value(entry: str, argument: str, value: Any, default: Any, name: str) -> None:
    """A plain value of one argument: its range by name, else the kind of the default."""
    if value is not None or not (default is None or default is inspect.Parameter.empty):
        check_range(
            argument, value, f"{name}: {entry} is", _FLAG if isinstance(default, bool) else _NAME
        )


def check_range(argument: str, value: Any, found: str, otherwise: TypeAdapter = _NAME) -> None:
    """
    Refuse a value that no network has, before memory is taken for it.

    Args:
        argument: its name; those in ``RANGED`` have a range.
        value: one, or a list of them.
        found: beginning of the message.
        otherwise: kind of an argument without a range.

    Raises:
        ValueError: when it is of another kind, or out of range.

    Example:
        >>> check_range("num_hidden_layers", 10**6, "its config says num_hidden_layers")
        Traceback (most recent call last):
        ValueError: its config says num_hidden_layers 1000000: Input should be less than or equal to 256
    """
    try:
        _CHECKS.get(argument, otherwise).validate_python(value)
    except ValidationError as error:
        reason = error.errors()[-1 if isinstance(value, list) else 0]["msg"]
        raise ValueError(f"{found} {_shown(value)}: {reason}") from error


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
