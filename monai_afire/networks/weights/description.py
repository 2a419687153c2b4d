# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a file says about the network in it: definition, pre-processing, class names, and a digest of the tensors."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from typing import Annotated, Any, Literal

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from monai_afire.networks.definition import definition_of
from monai_afire.utils.nested import map_nested

__all__ = [
    "Description",
    "Preprocessing",
    "describe",
    "parse_description",
    "tensor_digest",
    "with_description",
]

logger = logging.getLogger(__name__)

HEADER = "description"  # entry of a safetensors header and of an exported graph's metadata, as JSON
ENTRY = "monai_afire"  # entry of the metadata of a state dict
TASKS = {
    "AnomalyDetector": "anomaly detector",
    "TransferClassifier": "classifier",
    "UPerNet": "segmenter",
    **{name: f"pre-trained {name} network" for name in ("AFiRe", "PEAC", "ACE", "DINO", "MAE")},
}
PHANTOMS, RADIOGRAPHS = "phantoms", "radiographs"  # what the images of a training were
KNOWS_PHANTOMS = "was trained on drawn phantoms alone"
"""What is said of a file of weights that knows no radiographs."""
_STRICT = ConfigDict(extra="forbid", strict=True)
_Axes = Field(min_length=1, max_length=3)
_Pixels = Annotated[int, Field(ge=1, le=16_384)]


@dataclass(frozen=True, config=_STRICT)
class Preprocessing:
    """
    How images become the input of a network.

    Args:
        image_size: pixels along each axis, or one number for all axes, from 1 to 16384.
        channels: 1 for gray, 3 for color.
        standardize: whether the contrast is standardized.

    Raises:
        ValueError: when a value is out of range.

    Example:
        >>> Preprocessing(image_size=32).channels
        1
    """

    image_size: _Pixels | Annotated[list[_Pixels], _Axes]
    channels: Annotated[int, Field(ge=1, le=3)] = 1
    standardize: bool = False


@dataclass(frozen=True, config=_STRICT)
class Description:
    """
    What a file says about the network in it.

    Args:
        task: what the network is for, such as "classifier" or "pre-trained AFiRe network".
        network: its definition, see ``definition_of``; None for a class of another package.
        preprocessing: of the images.
        class_names: names of the outputs in their order; None where there are none.
        label_kind: "multilabel" or "multiclass" of a classifier.
        trained_on: what the images of the last training were; None where it is not known.
        settings: other values that later steps need, such as the size of a grid.
        digest: of the tensors, see :func:`tensor_digest`.
        version: of this package.
        format: of the description.

    Raises:
        ValueError: when an entry is of the wrong type.
    """

    task: Annotated[str, Field(min_length=1)]
    network: dict[str, Any] | None = None
    preprocessing: Preprocessing | None = None
    class_names: list[str] | None = None
    label_kind: Literal["multilabel", "multiclass"] | None = None
    trained_on: Literal["phantoms", "radiographs"] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    digest: str | None = None
    version: str = ""
    format: Literal[1] = 1

    def as_data(self) -> dict[str, Any]:
        """The description as JSON data."""
        return asdict(self)


_DESCRIPTION = TypeAdapter(Description)


def parse_description(text: str) -> Description:
    """
    Read a description that anybody may have written.

    Args:
        text: JSON.

    Returns:
        The description.

    Raises:
        ValueError: when an entry is unknown, missing or wrong.

    Example:
        >>> parse_description('{"task": "classifier", "network": 3}')
        Traceback (most recent call last):
        ValueError: network is 3: Input should be an object
    """
    try:
        return _DESCRIPTION.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        # without names of types
        entry = ".".join(str(part) for part in first["loc"] if str(part).isidentifier())
        raise ValueError(
            f"{entry or 'it'} is {str(first['input'])[:80]}: {first['msg']}"
        ) from error


def describe(
    network: Any,
    task: str | None = None,
    preprocessing: Mapping[str, Any] | None = None,
    class_names: Any = None,
    label_kind: str | None = None,
    trained_on: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Description:
    """
    Describe a network for the file that it is written to.

    Args:
        network: unwrapped.
        task: what it is for; None for the usual task of its class.
        preprocessing: arguments of :class:`Preprocessing`, those that its encoder knows left out; None where they are
            not known.
        class_names: names of the outputs.
        label_kind: of a classifier.
        trained_on: "phantoms" or "radiographs"; None where it is not known.
        settings: other values that later steps need. With a pre-processing, the encoder adds its "patch_size".

    Returns:
        The description, without a digest.

    Example:
        >>> from monai_afire.networks import TransferClassifier, ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> describe(TransferClassifier(encoder, num_classes=1), class_names=["Nodule"]).task
        'classifier'
    """
    from monai_afire import __version__  # the package imports this module

    definition = definition_of(network)
    if definition is None:
        name = f"{type(network).__module__}.{type(network).__qualname__}"
        logger.warning(
            f"{name} is of another package: its file holds no definition, so later steps need network_def"
        )
    given, others = dict(preprocessing or {}), dict(settings or {})
    modules = network.modules() if isinstance(network, torch.nn.Module) else ()
    encoder: Any = next(
        (each for each in modules if hasattr(each, "in_channels") and hasattr(each, "img_size")),
        None,
    )
    if preprocessing is not None and encoder is not None:
        shape = {"image_size": one_for_all(encoder.img_size), "channels": encoder.in_channels}
        given = {**shape, **given}
        others = {"patch_size": one_for_all(encoder.patch_size), **others}
    return Description(
        task=task or _usual_task(network),
        network=definition,
        preprocessing=Preprocessing(**_plain(given)) if "image_size" in given else None,
        class_names=None if class_names is None else [str(name) for name in class_names],
        label_kind=label_kind,  # type: ignore[arg-type]
        trained_on=trained_on,  # type: ignore[arg-type]
        settings=_plain(others),
        version=__version__,
    )


def _usual_task(network: Any) -> str:
    """What networks of a class are for."""
    other = "encoder" if hasattr(network, "grid_size") else "network"
    return TASKS.get(type(network).__name__, other)


def tensor_digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """
    SHA-256 of names, data types, shapes and bytes of tensors.

    Example:
        >>> a, b = torch.zeros(2), torch.ones(1)
        >>> tensor_digest({"a": a, "b": b}) == tensor_digest({"b": b, "a": a}) != tensor_digest({"a": a, "b": b + 1})
        True
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return f"sha256:{digest.hexdigest()}"


def with_description(
    state_dict: Mapping[str, torch.Tensor], description: Description
) -> OrderedDict[str, torch.Tensor]:
    """
    A state dict that carries a description of its network, with the digest of its tensors.

    The description is in the metadata that PyTorch keeps beside the tensors of a state dict: ``torch.save`` writes it,
    ``torch.load(..., weights_only=True)`` reads it, and ``load_state_dict`` ignores it.

    Args:
        state_dict: of a network; untouched.
        description: see :func:`describe`.

    Returns:
        The same tensors by the same names.
    """
    described = OrderedDict(state_dict)
    metadata = dict(getattr(state_dict, "_metadata", {}))
    data = replace(description, digest=tensor_digest(state_dict)).as_data()
    metadata[""] = {**metadata.get("", {}), ENTRY: data}
    described._metadata = metadata  # type: ignore[attr-defined]
    return described


def carried_description(state: Any) -> Description | None:
    """What :func:`with_description` has put beside the tensors of a state dict; None without it."""
    metadata = getattr(state, "_metadata", None)
    whole = metadata.get("") if isinstance(metadata, Mapping) else None
    data = whole.get(ENTRY) if isinstance(whole, Mapping) else None
    return parse_description(json.dumps(data)) if isinstance(data, Mapping) else None


def one_for_all(sizes: Any) -> Any:
    """One number in the place of a list, where all axes have the same; other values as they are."""
    if not isinstance(sizes, (list, tuple)):
        return sizes
    sides = list(sizes)  # of anybody's file: compared, not hashed
    return sides[0] if sides and sides == sides[:1] * len(sides) else sides


def contradiction(name: str, given: Any, path: Any, trained: Any) -> str:
    """Message for a value of a run that differs from the one that a file was trained with."""
    return f"--{name}: {given} contradicts {path}, which was trained with {trained}: leave it out, or give {trained}"


def _plain(value: Any) -> Any:
    """JSON data of values that a config holds."""
    return map_nested(lambda each: each.item() if hasattr(each, "item") else each, value)
