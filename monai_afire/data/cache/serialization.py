# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Serialisation of items as trees of tensors, texts and numbers, which ``torch.load(weights_only=True)`` reads."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor

__all__ = ["pack_item", "unpack_item"]

_KIND = "serialization.kind"  # key that marks a dictionary which stands for something else
_ROUNDED = {8: torch.uint8, 16: torch.uint16}


def pack_item(value: Any, bits: int | None = None) -> Any:
    """
    Replace what the safe loading does not know by dictionaries of tensors and plain values.

    Args:
        value: item of a data set: dictionaries, lists and tuples of tensors, with metadata or not, arrays, numbers,
            texts and None.
        bits: 8 or 16 to round images to as many bits, None to keep all values.

    Returns:
        The same for :func:`torch.save`.

    Raises:
        TypeError: for a value of another type.

    Example:
        >>> item = {"image": torch.tensor([[[0.0, 0.3, 1.0]]]), "size": np.array([3, 4])}
        >>> restored = unpack_item(pack_item(item, bits=8))
        >>> (restored["image"] * 255).round().tolist(), restored["size"].tolist()
        ([[[0.0, 76.0, 255.0]]], [3, 4])
    """
    if isinstance(value, MetaTensor):
        meta = {_as_plain(key): pack_item(entry) for key, entry in value.meta.items()}
        operations = pack_item(list(value.applied_operations))
        return {_KIND: "meta", "data": pack_item(value.as_tensor(), bits), "meta": meta, "operations": operations}
    if isinstance(value, torch.Tensor):
        return _pack_tensor(value.detach().cpu(), bits)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return {_KIND: "array", "data": torch.from_numpy(np.array(value, order="C"))}
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return {_KIND: "scalar", "data": torch.from_numpy(np.array(value))}
    if isinstance(value, dict):
        return {_as_plain(key): pack_item(entry, bits) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        entries = [pack_item(entry, bits) for entry in value]
        return tuple(entries) if isinstance(value, tuple) else entries
    return _as_plain(value)


def unpack_item(value: Any) -> Any:
    """
    Undo :func:`pack_item`.

    Args:
        value: what :func:`pack_item` returned, or what was read of it from a file.

    Returns:
        The item. Its tensors share no memory with what was packed, unless that is given itself.
    """
    if isinstance(value, list):
        return [unpack_item(entry) for entry in value]
    if isinstance(value, tuple):
        return tuple(unpack_item(entry) for entry in value)
    if not isinstance(value, dict):
        return value
    kind = value.get(_KIND)
    if kind is None:
        return {key: unpack_item(entry) for key, entry in value.items()}
    data = unpack_item(value["data"])
    if kind == "meta":
        return MetaTensor(data, meta=unpack_item(value["meta"]), applied_operations=unpack_item(value["operations"]))
    if kind == "rounded":
        levels = 2.0 ** (8 * data.element_size()) - 1.0
        # divided in the type of the result: a picture of 8 bits is then the very one that its file was scaled to
        return (data.int().to(value["dtype"])) / levels
    return data.numpy() if kind == "array" else data.numpy()[()]


def _pack_tensor(tensor: torch.Tensor, bits: int | None) -> Any:
    image = tensor.ndim >= 3 and tensor.numel() > 0 and tensor.dtype in (torch.float32, torch.float64)
    if bits is None or not image or not (tensor.min() >= 0 and tensor.max() <= 1):  # NaN fails both
        # a view would be saved with all that it is a view of
        return tensor.clone(memory_format=torch.contiguous_format)
    levels = 2.0**bits - 1.0
    return {_KIND: "rounded", "data": (tensor * levels).round().to(_ROUNDED[bits]), "dtype": tensor.dtype}


def _as_plain(value: Any) -> Any:
    """Numbers, texts and None as such, without the classes that MONAI derives from them."""
    if value is None or isinstance(value, (bool, torch.dtype)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    for plain in (int, float, str):
        if isinstance(value, plain):
            return plain(value.value) if hasattr(value, "value") else plain(value)
    raise TypeError(
        f"{type(value).__name__} cannot be kept in the cache on disk, which takes tensors, arrays, numbers and texts; "
        "put the transform that makes it behind a random one, or choose cache='memory' or 'none'"
    )
