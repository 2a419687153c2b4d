# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Disk cache: a data set whose deterministic transforms run once for each item, and how its items are stored."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import monai
import numpy as np
import torch
from monai.data import MetaTensor, PersistentDataset
from monai.data.utils import pickle_hashing
from monai.transforms import Transform
from monai.transforms.traits import RandomizableTrait

from monai_afire.data.cache.unreadable import UnreadableNamingDataset
from monai_afire.utils.files import atomic_path, check_writable

_LAYOUT = 3  # of the stored files; raise it with every change of them
_PACKAGE = __name__.partition(".")[0]
_LIBRARIES = ("monai", "numpy", "torch")  # too large to hash; monai's version is part of the recipe
_KIND = "serialization.kind"  # key that marks a dictionary which stands for something else
_ROUNDED = {8: torch.uint8, 16: torch.uint16}


class DiskCachedDataset(UnreadableNamingDataset, PersistentDataset):
    """
    Keep what the transforms before the first random one make of each item in a file, for later epochs and runs.

    It is :py:class:`monai.data.PersistentDataset`, and differs where that one fails on radiographs:

    * a file is never stale. Its name follows from the item and from size and time of change of the files that the
      item names; its folder from the transforms, their settings and their code;
    * items with metadata (``MetaTensor``, arrays) can be read again with ``weights_only=True``; MONAI's class takes
      them for corrupt, and makes them anew each time;
    * files are written beside their place and renamed, so that other processes never see a part of one. MONAI's class
      moves them there from the folder for temporary files, which copies them where that is another disk;
    * a damaged file gives a warning and is made anew; a full disk is an error, not a silent end of caching;
    * the files lie in 256 subfolders, and `set_data` leaves the files of other runs alone.

    Files that nobody needs any more, e.g. after a change of the transforms, are not removed: delete the folder.

    Args:
        data: items of a datalist. Absolute paths in them are files that the item depends on.
        transform: ``Compose``, or a list of transforms.
        cache_dir: folder of the files, made if it is missing. Any number of runs and processes may share it.
        bits: None stores what the transforms return. 16 and 8 round images, tensors ``(C, *S)`` of floating-point
            numbers in [0, 1], to multiples of 1/65535 or 1/255, in a half or a quarter of the space (of float32).
            The first use of an item is rounded like all later ones.

    Raises:
        ValueError: when the settings of a transform cannot be hashed, or for other ``bits``.
        OSError: when the folder cannot be written to.

    Example:
        >>> import tempfile
        >>> from monai.transforms import ScaleIntensityRanged
        >>> folder, items = tempfile.mkdtemp(), [{"image": torch.full((1, 4, 4), 51.0)}]
        >>> dataset = DiskCachedDataset(items, [ScaleIntensityRanged("image", 0, 255, 0, 1)], folder, bits=8)
        >>> float(dataset[0]["image"].mean()), len(list(Path(folder).rglob("*.pt")))
        (0.2..., 1)
    """

    def __init__(
        self,
        data: Sequence[Mapping[str, Any]],
        transform: Sequence[Callable] | Callable,
        cache_dir: str | os.PathLike,
        bits: int | None = None,
    ) -> None:
        if bits not in (None, 8, 16):
            raise ValueError(f"bits must be 8, 16 or None, got {bits!r}")
        super().__init__(data, transform, cache_dir=None)
        self.bits = bits
        folder = Path(cache_dir).expanduser() / self._recipe()
        self.folder = self.cache_dir = check_writable(folder, option="--cache_dir")

    def set_data(self, data: Sequence[Mapping[str, Any]]) -> None:
        """Use other items; files of items that are gone stay."""
        self.data = data

    def _recipe(self) -> str:
        """Hash of all that decides what an item becomes, but for the item."""
        deterministic = []
        for transform in self.transform.flatten().transforms:
            if isinstance(transform, RandomizableTrait) or not isinstance(transform, Transform):
                break
            deterministic.append(transform)
        stream = io.BytesIO()
        recorder = _ModuleRecorder(stream)
        try:
            recorder.dump(deterministic)
        except Exception as error:  # whatever an object's own __reduce__ raises
            remedy = (
                "replace functions without a name (lambda) by named ones, or choose cache='memory'"
            )
            raise ValueError(
                f"the settings of the transforms cannot be hashed ({error}); {remedy}"
            ) from error
        files = _source_files(recorder.modules)
        sources = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
        parts = [_LAYOUT, self.bits, stream.getvalue(), monai.__version__, sources]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]

    def _cachecheck(self, item_transformed: Mapping[str, Any]) -> Any:
        """The item after the deterministic transforms, from its file if there is one."""
        name = pickle_hashing(
            [_LAYOUT, dict(sorted(item_transformed.items())), _states(item_transformed)]
        ).decode()
        file = self.folder / name[:2] / f"{name[2:]}.pt"
        try:
            return unpack_item(torch.load(file, weights_only=True))
        except FileNotFoundError:
            pass
        except PermissionError:
            raise
        except Exception as error:  # a damaged archive can raise anything
            warnings.warn(f"{file}: damaged, made anew ({type(error).__name__}).", stacklevel=2)
        stored = pack_item(self._pre_transform(deepcopy(item_transformed)), self.bits)
        try:
            with atomic_path(file, flush=False) as temporary:
                # by way of the memory: torch's own writer hides that the disk is full behind a line of its source
                content = io.BytesIO()
                torch.save(stored, content)
                temporary.write_bytes(content.getbuffer())
        except OSError as error:
            remedy = "free space, give another cache_dir, or choose cache='none'"
            raise OSError(
                f"cannot write to the cache {self.folder}: {error.strerror or error}; {remedy}"
            ) from error
        return unpack_item(stored)


def _states(item: Mapping[str, Any]) -> list[Any]:
    """Size and time of the last change of the files that an item names; None for one that does not exist."""
    paths: list[str] = []
    beside: list[str] = []
    for value in item.values():
        for entry in value if isinstance(value, (list, tuple)) else [value]:
            if not isinstance(entry, (str, os.PathLike)) or not os.path.isabs(entry):
                continue
            path = os.fspath(entry)
            paths.append(path)
            if path.endswith(".mhd"):  # a header, whose pixels are in another file
                name = path.removesuffix(".mhd")
                beside += [f"{name}.raw", f"{name}.zraw"]
    return [_state(path) for path in paths + beside]


def _state(path: str) -> Any:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


class _ModuleRecorder(pickle.Pickler):
    """Pickles, and notes in which modules the classes and functions are that the pickled objects use."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=4)
        self.modules: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        """Called for each object; leaves the work to pickle."""
        self.modules.add(str(getattr(obj, "__module__", "")))
        return NotImplemented


def _source_files(modules: set[str]) -> list[Path]:
    """Files whose code the modules are: all transforms of this package, which use one another, and those of others."""
    files: set[Path] = set()
    for module in modules:
        package = module.partition(".")[0]
        if package == _PACKAGE:
            files.update((Path(__file__).parents[2] / "transforms").rglob("*.py"))
        elif package not in _LIBRARIES:
            source = getattr(sys.modules.get(module), "__file__", None)
            files.update([Path(source)] if source else [])
    return sorted(files)


def pack_item(value: Any, bits: int | None = None) -> Any:
    """Replace what the safe loading does not know by dictionaries of tensors and plain values."""
    if isinstance(value, MetaTensor):
        meta = {_as_plain(key): pack_item(entry) for key, entry in value.meta.items()}
        operations = pack_item(list(value.applied_operations))
        return {
            _KIND: "meta",
            "data": pack_item(value.as_tensor(), bits),
            "meta": meta,
            "operations": operations,
        }
    if isinstance(value, torch.Tensor):
        return _pack_tensor(value.detach().cpu(), bits)
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        return {_KIND: "array", "data": torch.from_numpy(np.array(value, order="C"))}
    if isinstance(value, dict):
        return {_as_plain(key): pack_item(entry, bits) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        kind = tuple if isinstance(value, tuple) else list
        return kind(pack_item(entry, bits) for entry in value)
    return _as_plain(value)


def unpack_item(value: Any) -> Any:
    """Undo :func:`pack_item`."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(unpack_item, value))
    if not isinstance(value, dict):
        return value
    kind = value.get(_KIND)
    if kind is None:
        return {key: unpack_item(entry) for key, entry in value.items()}
    data = unpack_item(value["data"])
    if kind == "meta":
        return MetaTensor(
            data,
            meta=unpack_item(value["meta"]),
            applied_operations=unpack_item(value["operations"]),
        )
    if kind == "rounded":
        levels = 2.0 ** (8 * data.element_size()) - 1.0
        # divided in the type of the result: a picture of 8 bits is then the very one that its file was scaled to
        return data.int().to(value["dtype"]) / levels
    return data.numpy()[()]  # a scalar where there are no dimensions


def _pack_tensor(tensor: torch.Tensor, bits: int | None) -> Any:
    if bits is None or not _is_image(tensor):
        # a view would be saved with all that it is a view of
        return tensor.clone(memory_format=torch.contiguous_format)
    levels = 2.0**bits - 1.0
    return {
        _KIND: "rounded",
        "data": (tensor * levels).round().to(_ROUNDED[bits]),
        "dtype": tensor.dtype,
    }


def _is_image(tensor: torch.Tensor) -> bool:
    """Whether a tensor may be an image ``(C, *S)`` of floating-point numbers in [0, 1]."""
    if tensor.ndim < 3 or not tensor.numel():
        return False
    is_float = tensor.dtype in (torch.float32, torch.float64)
    return is_float and bool(tensor.min() >= 0 and tensor.max() <= 1)  # NaN fails both


def _as_plain(value: Any) -> Any:
    """Numbers, texts and None as such, without the classes that MONAI derives from them."""
    if value is None or isinstance(value, (bool, torch.dtype)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    for plain in (int, float, str):
        if isinstance(value, plain):
            return plain(value.value) if hasattr(value, "value") else plain(value)
    remedy = (
        "put the transform that makes it behind a random one, or choose cache='memory' or 'none'"
    )
    raise TypeError(f"{type(value).__name__} cannot be kept in the cache on disk; {remedy}")
