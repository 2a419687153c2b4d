# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Safetensors files whose header describes the network and has a digest of its tensors."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from monai_afire.networks.weights.description import (
    HEADER,
    Description,
    parse_description,
    tensor_digest,
)
from monai_afire.utils.files import atomic_path

__all__ = ["read_safetensors", "write_safetensors"]

_COPY_AGAIN = "copy or download it again"


def read_safetensors(
    path: str | os.PathLike, remedy: str = _COPY_AGAIN
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """
    Read a safetensors file.

    Args:
        path: the file.
        remedy: what to do about a file that cannot be read, for the message.

    Returns:
        Its tensors on the CPU, and its metadata.

    Raises:
        ValueError: when the file is damaged or of another format.
    """
    try:
        with safe_open(path, framework="pt") as file:
            # copies: tensors that lie in the file itself would change with it
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except SafetensorError as error:
        message = (
            f"{path} is not a readable safetensors file, or not a complete one ({error}); {remedy}"
        )
        raise ValueError(message) from error
    if _digest(metadata) not in (None, tensor_digest(tensors)):
        raise ValueError(f"{path} is damaged: the digest of its tensors does not match; {remedy}")
    return tensors, metadata


def _digest(metadata: Mapping[str, str]) -> str | None:
    """That of the tensors, by the header; what is wrong with a description is said by who needs it."""
    try:
        return parse_description(metadata[HEADER]).digest
    except (KeyError, ValueError):
        return None


def write_safetensors(
    tensors: Mapping[str, torch.Tensor],
    path: str | os.PathLike,
    description: Description,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """
    Write a safetensors file whose header describes the network and has the digest of the tensors.

    Args:
        tensors: contiguous, on the CPU, none in the memory of another.
        path: the file to write, complete or not at all.
        description: of the network; its digest is set.
        metadata: further entries of the header.

    Returns:
        The file.
    """
    described = replace(description, digest=tensor_digest(tensors))
    with atomic_path(Path(path)) as temporary:
        save_file(
            dict(tensors),
            temporary,
            metadata={**(metadata or {}), HEADER: json.dumps(described.as_data())},
        )
    return Path(path)
