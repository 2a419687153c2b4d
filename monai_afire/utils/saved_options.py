# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options that travel in the file of the weights that they have shaped."""

from __future__ import annotations

import argparse
import json
import os
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from monai_afire.utils.files import is_safetensors

__all__ = ["OPTIONS_HEADER", "read_options", "with_options"]

_METADATA_ENTRY = "monai_afire"
OPTIONS_HEADER = "options"  # entry of a safetensors header and of an exported graph's metadata, as JSON


def with_options(state_dict: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> OrderedDict[str, torch.Tensor]:
    """
    A state dict that carries options.

    They are in the metadata that PyTorch keeps beside the tensors of a state dict (where modules have their versions):
    saved with it, read with ``weights_only=True``, and looked at by no ``load_state_dict``. The entries stay the
    tensors alone.

    Args:
        state_dict: of a network; untouched.
        options: by name; numbers, texts, switches, and lists of them.

    Returns:
        The same tensors by the same names.

    Example:
        >>> import tempfile
        >>> network, path = torch.nn.Linear(2, 1), Path(tempfile.mkdtemp()) / "model.pt"
        >>> torch.save(with_options(network.state_dict(), {"num_layers": 6}), path)
        >>> network.load_state_dict(torch.load(path, weights_only=True)), read_options(path)
        (<All keys matched successfully>, {'num_layers': 6})
    """
    carrying = OrderedDict(state_dict)
    metadata = dict(getattr(state_dict, "_metadata", {}))
    metadata[""] = {**metadata.get("", {}), _METADATA_ENTRY: dict(options)}
    carrying._metadata = metadata  # type: ignore[attr-defined]
    return carrying


def read_options(path: str | os.PathLike) -> dict[str, Any]:
    """
    The options that weights carry.

    Nothing of the tensors is read. What is in a file may be of anybody's making: values are to be checked.

    Args:
        path: a file of :func:`torch.save`, in which the state dict may be nested, or a safetensors file.

    Returns:
        The options by name; none for weights of other programs, and for a file that is missing or cannot be read, which
        is for those to say who load it.

    Example:
        >>> read_options("no/model.pt")
        {}
    """
    path = Path(path)
    if not path.is_file():
        return {}
    try:
        return _in_safetensors(path) if is_safetensors(path) else _in_pickle(path)
    except Exception:  # damage fails in a dozen ways, and says so again when the weights are loaded
        return {}


def _in_safetensors(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as file:
        header = file.metadata() or {}
    if OPTIONS_HEADER in header:
        options = json.loads(header[OPTIONS_HEADER])
        return options if isinstance(options, dict) else {}
    return {}


def _in_pickle(path: Path) -> dict[str, Any]:
    # memory-mapped, the tensors stay on the disk; what else a training may store is the same as in read_pickle
    with torch.serialization.safe_globals([argparse.Namespace]):
        return _carried_by(torch.load(path, map_location="cpu", weights_only=True, mmap=True))


def _carried_by(content: Any) -> dict[str, Any]:
    """Of the first state dict that carries some."""
    if not isinstance(content, Mapping):
        return {}
    metadata = getattr(content, "_metadata", None)
    whole = metadata.get("") if isinstance(metadata, Mapping) else None
    options = whole.get(_METADATA_ENTRY) if isinstance(whole, Mapping) else None
    if isinstance(options, dict):
        return options
    return next(filter(None, map(_carried_by, content.values())), {})
