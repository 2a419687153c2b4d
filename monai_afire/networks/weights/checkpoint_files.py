# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Reader of checkpoint files of any nesting that never runs code which a file may carry."""

from __future__ import annotations

import argparse
import os
import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from monai_afire.networks.definition import encoder_definition
from monai_afire.networks.weights.description import (
    HEADER,
    Description,
    carried_description,
    parse_description,
)
from monai_afire.networks.weights.safetensors_files import read_safetensors
from monai_afire.utils.files import atomic_path, is_safetensors

__all__ = [
    "PRODUCER",
    "Checkpoint",
    "file_description",
    "flatten_tensors",
    "network_state",
    "read_checkpoint",
    "read_description",
    "read_own",
    "read_pickle",
    "write_pickle",
]

PRODUCER = "monai_afire"  # entry of the header of an exported encoder
_COPY_AGAIN = (
    "copy or download it again, or save the network's state dict with torch.save or safetensors"
)


@dataclass
class Checkpoint:
    """
    The tensors of a checkpoint in one flat dictionary.

    Attributes:
        name: the file, for messages.
        tensors: floating-point tensors by dotted path, e.g. "teacher.backbone.norm.weight".
        arguments: of the encoder's class, where this package wrote the file, else empty.
    """

    name: str
    tensors: dict[str, torch.Tensor]
    arguments: dict[str, Any] = field(default_factory=dict)


def read_checkpoint(path_or_state_dict: str | os.PathLike | Mapping[str, Any]) -> Checkpoint:
    """
    Read a PyTorch or safetensors file, or take a state dict that is in memory.

    Args:
        path_or_state_dict: the file, or a (nested) mapping.

    Returns:
        Its tensors, on the CPU if they come from a file.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when the file is no checkpoint, is damaged, carries code or holds no tensors.

    Example:
        >>> read_checkpoint({"model": {"norm.weight": torch.ones(2)}, "epoch": 3}).tensors
        {'model.norm.weight': tensor([1., 1.])}
    """
    metadata: dict[str, str] = {}
    if isinstance(path_or_state_dict, Mapping):
        name, content = "the given state dict", path_or_state_dict
    else:
        path = Path(path_or_state_dict)
        name = str(path)
        _check_is_file(path)
        if path.suffix == ".safetensors" or is_safetensors(path):
            content, metadata = read_safetensors(path)
        else:
            content = read_pickle(path)
    tensors = dict(flatten_tensors(content))
    if not tensors:
        raise ValueError(
            f"{name} holds no floating-point tensors, it is a {type(content).__name__}: is it weights?"
        )
    try:
        return Checkpoint(name, tensors, _stated_arguments(content, metadata))
    except ValueError as error:
        raise ValueError(f"{name} has a wrong description: {error}; {_COPY_AGAIN}") from error


def _stated_arguments(content: Any, metadata: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of the encoder, by the description in a file's header, or beside a state dict or a checkpoint's."""
    if metadata.get("producer") == PRODUCER:
        found: Description | None = parse_description(metadata.get(HEADER, ""))
    else:
        state = content.get("network")
        found = carried_description(state if isinstance(state, Mapping) else content)
    encoder = None if found is None else encoder_definition(found.network)
    return {} if encoder is None else dict(encoder["arguments"])


def flatten_tensors(content: Any, prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """
    All floating-point tensors of nested mappings.

    Args:
        content: a mapping, or anything else (which has none).
        prefix: what to put before every key.

    Yields:
        Dotted path and tensor. Wrappers' path segments ("module", "_orig_mod", ...) are left out.

    Example:
        >>> [path for path, _ in flatten_tensors({"a": {"module.b": torch.ones(1)}, "step": torch.tensor(1)})]
        ['a.b']
    """
    if not isinstance(content, Mapping):
        return
    for key, value in content.items():
        path = f"{prefix}{key}"
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            yield _without_wrappers(path), value.detach()
        else:
            yield from flatten_tensors(value, f"{path}.")


_WRAPPERS = {"module", "_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}


def _without_wrappers(path: str) -> str:
    return ".".join(segment for segment in path.split(".") if segment not in _WRAPPERS)


def _check_is_file(path: Path) -> None:
    if path.is_dir():
        inside = sorted(
            p.name
            for p in path.iterdir()
            if p.suffix in {".pt", ".pth", ".bin", ".safetensors", ".ckpt"}
        )
        raise ValueError(
            f"{path} is a folder: name the checkpoint file in it, e.g. one of {inside[:5]}"
        )
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no checkpoint {path}: check the path (relative to {Path.cwd()})"
        )


def read_own(path: str | os.PathLike, remedy: str) -> Any:
    """
    Read a file that a run of this package has written, refusing one that is not as it was written.

    ``torch.save`` writes a CRC-32 of every part, which ``torch.load`` does not look at: a flipped bit would become a
    weight.

    Args:
        path: the file.
        remedy: what to do about a damaged one, for the message.

    Returns:
        Its content, tensors on the CPU.

    Raises:
        ValueError: when the file is damaged or carries code.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "weights.pt"
        >>> torch.save({"weight": torch.ones(1)}, path)
        >>> read_own(path, "copy it again")
        {'weight': tensor([1.])}
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except Exception as error:  # damage fails in a dozen ways
        # cut, or no file of torch.save: its reader says so
        damaged = str(error) if _is_zip(path) else None
    if damaged is not None:
        raise ValueError(f"{path} is damaged: its checksums do not match ({damaged}); {remedy}")
    return read_pickle(path, remedy)


def _is_zip(path: str | os.PathLike) -> bool:
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile:  # raised for a damaged end, too
        return True


class _LeftOut:
    """Stands for a number of NumPy in a file: building the real one could touch memory, and nobody reads it."""

    def __init__(self, *args: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


# what training scripts (DINO, MAE, EVA-X) store beside the weights; a Namespace only holds values
_HARMLESS: list[Any] = [
    argparse.Namespace,
    *(
        (_LeftOut, name)
        for name in ("numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")
    ),
]


def read_pickle(path: str | os.PathLike, remedy: str = _COPY_AGAIN, mmap: bool = False) -> Any:
    """
    Read a file of ``torch.save``, refusing one that could run code.

    Args:
        path: the file.
        remedy: what to do about a file that cannot be read, for the message.
        mmap: leave the tensors on the disk until they are needed.

    Returns:
        Its content, tensors on the CPU.

    Raises:
        ValueError: when the file is damaged or carries code.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "weights.pt"
        >>> torch.save({"weight": torch.ones(1)}, path)
        >>> read_pickle(path)
        {'weight': tensor([1.])}
    """
    path = Path(path)
    try:
        with torch.serialization.safe_globals(_HARMLESS):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # a damaged file fails in the unpickler in a dozen ways
        names = re.findall(r"GLOBAL (\w[\w.]*)", str(error))
        if names:
            found = f"it contains more than tensors ({', '.join(sorted(set(names)))}), which could run code"
            remedy = "if you trust its author, load it with weights_only=False and save its state dict alone"
            raise ValueError(f"{path} is refused: {found}; {remedy}") from None
        raise ValueError(
            f"{path} is not a readable PyTorch checkpoint ({_reason(error)}): {remedy}"
        ) from error


def write_pickle(content: Any, path: Path, remedy: str = "") -> None:
    """
    Write a file by ``torch.save``, complete or not at all.

    Args:
        content: what :func:`read_pickle` is to return.
        path: the file.
        remedy: what to do about a disk that is full or broken once it is mended, for the message.

    Raises:
        OSError: when it cannot be written; the message says what is there now.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "weights.pt"
        >>> write_pickle({"weight": torch.ones(1)}, path)
        >>> read_pickle(path)
        {'weight': tensor([1.])}
    """
    try:
        with atomic_path(path) as temporary:
            torch.save(content, temporary)
    except (OSError, RuntimeError) as error:  # torch's writer raises a RuntimeError on a full disk
        reason = getattr(error, "strerror", None) or error
        kept = (
            "the last complete one stays as it was" if path.is_file() else "there was none before"
        )
        raise OSError(
            f"cannot write {path}: {reason}; {kept}. Free space, then {remedy or 'start again'}"
        ) from error


def _reason(error: Exception) -> str:
    """PyTorch's words without its advice, which is to load the file with weights_only=False."""
    text = str(error).strip().split("\n")[0]
    if "TorchScript" in text:
        return "a TorchScript archive: open it with torch.jit.load and save its state_dict()"
    if isinstance(error, pickle.UnpicklingError) or not text:
        return "no archive of tensors"
    return text[:200]


def read_description(path: str | os.PathLike) -> Description | None:
    """
    What a file says about its network. No tensor is read, nothing is verified but the description itself.

    Args:
        path: a file of ``torch.save``, in which the state dict may be nested, or a safetensors file.

    Returns:
        The description; None for a file that is missing, damaged, or has none.

    Raises:
        ValueError: when the description is wrong; the message names the file.

    Example:
        >>> read_description("no/model.pt") is None
        True
    """
    path = Path(path)
    if not path.is_file():
        return None
    header: Mapping[str, str] = {}
    state: Any = None
    try:
        if is_safetensors(path):
            with safe_open(path, framework="pt") as content:
                header = content.metadata() or {}
        else:
            state = network_state(read_pickle(path, mmap=True), path)
    except Exception:  # damage fails in a dozen ways; the loading of the weights says how
        return None
    return file_description(path, header, state)


def network_state(content: Any, path: Path) -> Any:
    """Of ``model.pt`` itself, or of the network in a checkpoint."""
    if isinstance(content, Mapping) and isinstance(content.get("network"), Mapping):
        content = content["network"]
    if not isinstance(content, Mapping):
        raise ValueError(
            f"{path} holds a {type(content).__name__} instead of a network's state dict"
        )
    return content


def file_description(path: Path, header: Mapping[str, str], state: Any) -> Description | None:
    """From a safetensors header or a state dict."""
    try:
        if HEADER in header:
            return parse_description(header[HEADER])
        if header:
            return None  # of another program
        return carried_description(state)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        remedy = "copy the file again, or update this package if a newer version wrote it"
        raise ValueError(f"{path} has a wrong description: {error}; {remedy}") from error
