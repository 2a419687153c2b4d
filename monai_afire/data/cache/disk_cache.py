# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Disk cache: a data set whose deterministic transforms run once for each item."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
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

from monai_afire.utils.files import atomic_path, check_writable

_LAYOUT = 4  # of the stored files; raise it with every change of them
_KIND = "serialization.kind"  # key that marks a dictionary which stands for something else
_PACKAGE = __name__.partition(".")[0]
_LIBRARIES = ("monai", "numpy", "torch")  # too large to hash; monai's version is part of the recipe
_ROUNDED = {8: torch.uint8, 16: torch.uint16}


class DiskCachedDataset(PersistentDataset):
    """
    Keep what the transforms before the first random one make of each item in a file, for later epochs and runs.

    It is :py:class:`monai.data.PersistentDataset`, and differs in four points: a file is never stale, since its name
    follows from the item and from size and time of change of the files that the item names, its folder from the
    transforms, their settings and their code; it is read without running code; images can be kept in 8 or 16 bits; and
    processes that share the folder never see a part of a file. Files that nobody needs any more are not removed: delete
    the folder.

    Args:
        data: items of a datalist.
        transform: ``Compose``, or a list of transforms.
        cache_dir: folder of the files, made if it is missing. Any number of runs and processes may share it.
        bits: None stores what the transforms return. 16 and 8 round images, tensors ``(C, *S)`` of floating-point
            numbers in [0, 1], to multiples of 1/65535 or 1/255, in a half or a quarter of the space (of float32).
            The first use of an item is rounded like all later ones.

    Raises:
        ValueError: when the settings of a transform cannot be hashed.
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
            raise ValueError(
                f"the settings of the transforms cannot be hashed ({error}); replace functions without a name (lambda) "
                "by named ones, or choose cache='memory'"
            ) from error
        sources = [hashlib.sha256(file.read_bytes()).hexdigest() for file in recorder.sources()]
        parts = [_LAYOUT, self.bits, stream.getvalue(), monai.__version__, sources]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]

    def _cachecheck(self, item_transformed: Mapping[str, Any]) -> Any:
        """The item after the deterministic transforms, from its file if there is one."""
        key = [dict(sorted(item_transformed.items())), list(_file_states(item_transformed))]
        name = pickle_hashing(key).decode()
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
        self._write(file, stored)
        return unpack_item(stored)

    def _write(self, file: Path, stored: Any) -> None:
        try:
            with atomic_path(file, flush=False) as temporary:
                # by way of the memory: torch's own writer hides that the disk is full behind a line of its source
                content = io.BytesIO()
                torch.save(stored, content)
                temporary.write_bytes(content.getbuffer())
        except OSError as error:
            raise OSError(
                f"cannot write to the cache {self.folder}: {error.strerror or error}; free space, give another "
                "cache_dir, or choose cache='none'"
            ) from error


def pack_item(value: Any, bits: int | None = None) -> Any:
    """Dictionaries of tensors and plain values, which are read faster than MONAI's classes, and without their code."""
    if isinstance(value, MetaTensor):
        data = pack_item(value.as_tensor(), bits)
        operations = pack_item(list(value.applied_operations))
        return {
            _KIND: "meta",
            "data": data,
            "meta": pack_item(dict(value.meta)),
            "operations": operations,
        }
    if isinstance(value, torch.Tensor):
        tensor = value.detach().cpu()
        if bits is None or not _is_image(tensor):
            # a view would be saved with all that it is a view of
            return tensor.clone(memory_format=torch.contiguous_format)
        rounded = (tensor * (2.0**bits - 1.0)).round().to(_ROUNDED[bits])
        return {_KIND: "rounded", "data": rounded, "dtype": tensor.dtype}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        return {_KIND: "array", "data": torch.from_numpy(np.array(value, order="C"))}
    if isinstance(value, dict):
        return {_as_plain(key): pack_item(entry, bits) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        kind = tuple if isinstance(value, tuple) else list
        return kind(pack_item(entry, bits) for entry in value)
    return _as_plain(value)


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
        f"{type(value).__name__} cannot be kept in the cache on disk; put the transform that makes it behind a random "
        "one, or choose cache='memory' or 'none'"
    )


def unpack_item(value: Any) -> Any:
    """Undo :func:`pack_item`."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(unpack_item, value))
    if not isinstance(value, dict):
        return value
    if _KIND not in value:
        return {key: unpack_item(entry) for key, entry in value.items()}
    data = unpack_item(value["data"])
    if value[_KIND] == "meta":
        meta, operations = unpack_item(value["meta"]), unpack_item(value["operations"])
        return MetaTensor(data, meta=meta, applied_operations=operations)
    if value[_KIND] == "rounded":
        levels = 2.0 ** (8 * data.element_size()) - 1.0
        # divided in the type of the result: a picture of 8 bits is then the very one that its file was scaled to
        return data.int().to(value["dtype"]) / levels
    return data.numpy()[()]  # a scalar where there are no dimensions


def _is_image(tensor: torch.Tensor) -> bool:
    """Whether a tensor may be an image ``(C, *S)`` of floating-point numbers in [0, 1]."""
    if tensor.ndim < 3 or not tensor.numel():
        return False
    is_float = tensor.dtype in (torch.float32, torch.float64)
    return is_float and bool(tensor.min() >= 0 and tensor.max() <= 1)  # NaN fails both


def _file_states(item: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """Size and time of the last change of the files that an item names."""
    for value in item.values():
        for entry in value if isinstance(value, (list, tuple)) else [value]:
            if not isinstance(entry, (str, os.PathLike)):
                continue
            path = os.fspath(entry)
            name = path.removesuffix(".mhd")  # a header, whose pixels are in another file
            for file in [path] if name == path else [path, f"{name}.raw", f"{name}.zraw"]:
                try:
                    status = os.stat(file)
                except (OSError, ValueError):
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield status.st_size, status.st_mtime_ns


class _ModuleRecorder(pickle.Pickler):
    """Pickles, and notes in which modules the classes and functions are that the pickled objects use."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=4)
        self.modules: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        """Called for each object; leaves the work to pickle."""
        self.modules.add(str(getattr(obj, "__module__", "")))
        return NotImplemented

    def sources(self) -> list[Path]:
        """Files of their code: all transforms of this package, which use one another, and the modules of others."""
        files: set[Path] = set()
        for module in self.modules:
            package = module.partition(".")[0]
            if package == _PACKAGE:
                files.update((Path(__file__).parents[2] / "transforms").rglob("*.py"))
            elif package not in _LIBRARIES:
                source = getattr(sys.modules.get(module), "__file__", None)
                files.update([Path(source)] if source else [])
        return sorted(files)
