# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Files of weights: read without running code that they may carry, and written complete or not at all."""

from __future__ import annotations

import argparse
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from monai_afire.networks.definition import encoder_definition
from monai_afire.networks.weights.description import (
    HEADER,
    Description,
    from_header,
    from_state,
    tensor_digest,
)
from monai_afire.utils.files import atomic_path, is_safetensors
from monai_afire.utils.text import first_line

__all__ = [
    "Checkpoint",
    "network_state",
    "read_checkpoint",
    "read_description",
    "read_own",
    "read_pickle",
    "read_safetensors",
    "write_pickle",
    "write_safetensors",
]

_REMEDY = "copy or download it again, or let its run write it anew"
_WRAPPERS = {"module", "_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}


class Checkpoint(NamedTuple):
    """
    The tensors of a checkpoint in one flat dictionary.

    Attributes:
        name: the file, for messages.
        tensors: floating-point tensors by dotted path, e.g. "teacher.backbone.norm.weight".
        arguments: of the encoder's class, where the file describes it.
    """

    name: str
    tensors: dict[str, torch.Tensor]
    arguments: dict[str, Any]


def read_checkpoint(weights: str | os.PathLike | Mapping[str, Any]) -> Checkpoint:
    """The tensors of a PyTorch or safetensors file, or of a (nested) state dict that is in memory."""
    name = "the given state dict" if isinstance(weights, Mapping) else str(weights)
    content: Any = weights
    header: dict[str, str] = {}
    if not isinstance(weights, Mapping):
        if Path(weights).suffix == ".safetensors" or is_safetensors(weights):
            content, header = read_safetensors(weights)
        else:
            content = read_pickle(weights)
    tensors = dict(_flat_tensors(content))
    if not tensors:
        raise ValueError(
            f"{name} holds no floating-point tensors, it is a {type(content).__name__}: is it weights?"
        )
    description = from_header(header) or from_state(network_state(content, name))
    encoder = encoder_definition(description.network) if description else None
    return Checkpoint(name, tensors, dict(encoder["arguments"]) if encoder else {})


def _flat_tensors(content: Any, prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Dotted path and tensor of all floating-point tensors of nested mappings, without the names of wrappers."""
    for key, value in content.items() if isinstance(content, Mapping) else ():
        path = f"{prefix}{key}"
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            parts = [part for part in path.split(".") if part not in _WRAPPERS]
            yield ".".join(parts), value.detach()
        else:
            yield from _flat_tensors(value, f"{path}.")


def network_state(content: Any, name: str | os.PathLike) -> Any:
    """The state dict of ``model.pt``, or that of the network in ``checkpoint.pt``."""
    if isinstance(content, Mapping) and isinstance(content.get("network"), Mapping):
        content = content["network"]
    if not isinstance(content, Mapping):
        raise ValueError(f"{name} holds a {type(content).__name__} instead of a state dict")
    return content


def read_description(path: str | os.PathLike) -> Description | None:
    """What a file says about its network, read without its tensors; None if it is missing, damaged, or silent."""
    try:
        if is_safetensors(path):
            with safe_open(path, framework="pt") as file:
                return from_header(file.metadata() or {})
        return from_state(network_state(read_pickle(path, mmap=True), path))
    except (OSError, ValueError, SafetensorError):  # reading the tensors reports the damage
        return None


class _LeftOut:
    """Stands for a NumPy number in a file, which is not used."""

    def __init__(self, *args: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


# what training scripts (DINO, MAE, EVA-X) store beside the weights; a Namespace only holds values
_HARMLESS: list[Any] = [
    argparse.Namespace,
    (_LeftOut, "numpy.dtype"),
    (_LeftOut, "numpy.core.multiarray.scalar"),
    (_LeftOut, "numpy._core.multiarray.scalar"),
]


def read_pickle(path: str | os.PathLike, mmap: bool = False) -> Any:
    """
    Read a file of ``torch.save``, tensors on the CPU; a ValueError for one that is damaged or could run code.

    Args:
        path: the file.
        mmap: leave the tensors on the disk until they are needed.
    """
    try:
        with torch.serialization.safe_globals(_HARMLESS):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # a damaged file fails in the unpickler in a dozen ways
        if names := sorted(set(re.findall(r"GLOBAL (\w[\w.]*)", str(error)))):
            raise ValueError(
                f"{path} is refused, since it could run code ({', '.join(names)}): save its state dict alone"
            ) from None
        raise ValueError(
            f"{path} is not a readable PyTorch checkpoint ({first_line(error)}): {_REMEDY}"
        ) from error


def read_own(path: str | os.PathLike) -> Any:
    """
    Read a file that a run of this package has written, as :func:`read_pickle`, if it is as it was written.

    ``torch.save`` writes a CRC-32 of every part, which ``torch.load`` does not look at: a flipped bit would become a
    weight.
    """
    try:
        damaged = zipfile.ZipFile(path).testzip() if zipfile.is_zipfile(path) else None
    except Exception as error:  # damage fails in a dozen ways
        damaged = str(error)
    if damaged is not None:
        raise ValueError(f"{path} is damaged ({damaged}): {_REMEDY}")
    return read_pickle(path)


def write_pickle(content: Any, path: Path, remedy: str = "start again") -> None:
    """Write a file by ``torch.save``, complete or not at all; an OSError names the remedy for a disk that is full."""
    try:
        with atomic_path(path) as temporary:
            torch.save(content, temporary)
    except (OSError, RuntimeError) as error:  # torch's writer raises a RuntimeError on a full disk
        raise OSError(
            f"cannot write {path} ({first_line(error)}), what was there stays: free space, then {remedy}"
        ) from error


def read_safetensors(path: str | os.PathLike) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors of a safetensors file, on the CPU, and its header; a ValueError for a damaged one."""
    try:
        with safe_open(path, framework="pt") as file:
            # copies: tensors that lie in the file itself would change with it
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            header = file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a complete safetensors file ({error}): {_REMEDY}"
        ) from error
    check_digest(from_header(header), tensors, path)
    return tensors, header


def write_safetensors(
    tensors: Mapping[str, torch.Tensor],
    path: str | os.PathLike,
    description: Description,
    notes: Mapping[str, str] | None = None,
) -> Path:
    """
    Write a safetensors file whose header describes the network and has the digest of the tensors.

    Args:
        tensors: contiguous, on the CPU, none in the memory of another.
        path: the file to write, complete or not at all.
        description: of the network; its digest is set.
        notes: further entries of the header.
    """
    described = replace(description, digest=tensor_digest(tensors))
    header = {**(notes or {}), HEADER: json.dumps(asdict(described))}
    with atomic_path(Path(path)) as temporary:
        save_file(dict(tensors), temporary, metadata=header)
    return Path(path)


def check_digest(
    description: Description | None, tensors: Mapping[str, torch.Tensor], path: str | os.PathLike
) -> None:
    """Refuse tensors that are not those that were described."""
    if description is not None and description.digest not in (None, tensor_digest(tensors)):
        raise ValueError(f"{path} is damaged, the digest of its tensors does not match: {_REMEDY}")
