# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a file says about the network in it: definition, pre-processing, class names, and a digest of the tensors."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import torch
from torch import nn

from monai_afire.networks.definition import definition_of

__all__ = ["Description", "describe", "tensor_digest", "with_description"]

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


@dataclass(frozen=True)
class Description:
    """
    What a file says about the network in it; the file holds it as a plain dictionary.

    Args:
        task: what the network is for, such as "classifier" or "pre-trained AFiRe network".
        network: its definition, see ``definition_of``; None for a class of another package.
        preprocessing: of the images: "image_size" in pixels, "channels", and whether to "standardize" the contrast.
        class_names: names of the outputs in their order; None where there are none.
        label_kind: "multilabel" or "multiclass" of a classifier.
        trained_on: "phantoms" or "radiographs"; None where it is not known.
        settings: other values that later steps need, such as the size of a grid.
        digest: of the tensors, see :func:`tensor_digest`.
        version: of this package.
        format: of the description.
    """

    task: str
    network: dict[str, Any] | None = None
    preprocessing: dict[str, Any] | None = None
    class_names: list[str] | None = None
    label_kind: str | None = None
    trained_on: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    digest: str | None = None
    version: str = ""
    format: int = 1


def _from_data(data: Any) -> Description | None:
    """The description that a dictionary holds; None where it is none, a ValueError for one of a newer version."""
    if not isinstance(data, Mapping) or not {"task", "format"} <= data.keys():
        return None
    known = {each.name for each in fields(Description)}
    if data["format"] != 1 or not data.keys() <= known:
        raise ValueError(f"its description is of format {data['format']}: update this package")
    return Description(**data)


def from_header(header: Mapping[str, str]) -> Description | None:
    """The description in the header of a safetensors file."""
    try:
        data = json.loads(header.get(HEADER, "null"))
    except (ValueError, RecursionError):  # of another program
        return None
    return _from_data(data)


def from_state(state: Any) -> Description | None:
    """What :func:`with_description` has put beside the tensors of a state dict."""
    metadata = getattr(state, "_metadata", None)
    whole = metadata.get("") if isinstance(metadata, Mapping) else None
    return _from_data(whole.get(ENTRY)) if isinstance(whole, Mapping) else None


def describe(network: nn.Module, **about: Any) -> Description:
    """
    Describe a network for the file that it is written to.

    Args:
        network: unwrapped.
        about: arguments of :class:`Description`. The task is that of the network's class unless it is given. A
            ``preprocessing`` gets the sizes that the network's encoder knows, and the settings its "patch_size".
    """
    from monai_afire import __version__  # the package imports this module

    definition = definition_of(network)
    if definition is None:
        logger.warning(
            f"{type(network).__qualname__} is of another package: its file does not say how to build it"
        )
    images, settings = dict(about.get("preprocessing") or {}), dict(about.get("settings") or {})
    encoder = _encoder_in(network)
    if about.get("preprocessing") is not None and encoder is not None:
        shape = {"image_size": one_for_all(encoder.img_size), "channels": encoder.in_channels}
        images = {**shape, **images}
        settings = {"patch_size": one_for_all(encoder.patch_size), **settings}
    images = {"channels": 1, "standardize": False, **images}
    other_task = "encoder" if hasattr(network, "grid_size") else "network"
    names = about.get("class_names")
    prepared = {
        "preprocessing": _plain(images) if "image_size" in images else None,
        "class_names": None if names is None else [str(name) for name in names],
        "settings": _plain(settings),
        "version": __version__,
    }
    task = TASKS.get(type(network).__name__, other_task)
    return Description(**{"task": task, "network": definition, **about, **prepared})


def _encoder_in(network: nn.Module) -> Any:
    """The first module that knows its images; None without one."""
    parts = network.modules()
    known = (each for each in parts if hasattr(each, "in_channels") and hasattr(each, "img_size"))
    return next(known, None)


def tensor_digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 of names, data types, shapes and bytes of tensors, in the order of their names."""
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
    The state dict of a network, with its description and the digest of its tensors.

    The metadata that PyTorch keeps beside the tensors has it: ``torch.save`` and ``torch.load(..., weights_only=True)``
    keep it, ``load_state_dict`` ignores it.
    """
    described = OrderedDict(state_dict)
    metadata = dict(getattr(state_dict, "_metadata", {}))
    data = asdict(replace(description, digest=tensor_digest(state_dict)))
    metadata[""] = {**metadata.get("", {}), ENTRY: data}
    described._metadata = metadata  # type: ignore[attr-defined]
    return described


def one_for_all(sizes: Any) -> Any:
    """One number in the place of a list, where all axes have the same; other values as they are."""
    if not isinstance(sizes, (list, tuple)):
        return sizes
    return sizes[0] if len(set(sizes)) == 1 else list(sizes)


def _plain(value: Any) -> Any:
    """JSON data of values that a config holds, of NumPy too."""
    return json.loads(json.dumps(value, default=lambda each: each.item()))
