# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Disk cache: a data set whose deterministic transforms run once for each item."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
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

from monai_afire.utils.files import atomic_path, check_writable

_KIND = "serialization.kind"  # key that marks a dictionary which stands for something else
_PACKAGE = __name__.partition(".")[0]
_LIBRARIES = ("builtins", "monai", "numpy", "torch")  # too large to hash: MONAI's version counts
_ROUNDED = {8: torch.uint8, 16: torch.uint16}


class DiskCachedDataset(PersistentDataset):
    """
    Keep what the transforms before the first random one make of each item in a file, for later epochs and runs.

    It is :py:class:`monai.data.PersistentDataset` with four differences: a file is never stale, since its name follows
    from the item, from size and time of the files that the item names, and from settings and code of the transforms;
    it is read without running code, with all metadata; images can be kept in 8 or 16 bits; and processes that share
    the folder never see a part of a file. Files that are no longer needed are not removed: delete the folder.

    Args:
        data: items of a datalist.
        transform: ``Compose``, or a list of transforms.
        cache_dir: folder of the files, made if it is missing. Any number of runs and processes may share it.
        bits: None stores what the transforms return. 16 and 8 round images, tensors ``(C, *S)`` of floating-point
            numbers in [0, 1], to multiples of 1/65535 or 1/255, at every use.

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
        super().__init__(data, transform, None, hash_func=_item_hash, hash_transform=_recipe_hash)
        self.bits = bits
        folder = Path(cache_dir).expanduser() / f"{self.transform_hash[:24]}_{bits or 'exact'}"
        self.cache_dir = check_writable(folder, option="--cache_dir")

    def set_data(self, data: Sequence[Mapping[str, Any]]) -> None:
        """Use other items; files of items that are gone stay."""
        self.data = data

    def _cachecheck(self, item_transformed: Mapping[str, Any]) -> Any:
        """The item after the deterministic transforms, from its file if there is one."""
        name = self.hash_func(item_transformed).decode()
        file = Path(self.cache_dir, name[:2], f"{name[2:]}.pt")  # type: ignore[arg-type]
        try:
            return _unpacked(torch.load(file, weights_only=True))
        except FileNotFoundError:
            pass
        except Exception as error:  # a damaged archive can raise anything
            warnings.warn(f"{file}: damaged, made anew ({type(error).__name__}).", stacklevel=2)
        packed = _packed(self._pre_transform(deepcopy(item_transformed)), self.bits)
        self._write(file, packed)
        return _unpacked(packed)

    def _write(self, file: Path, packed: Any) -> None:
        # by way of the memory: torch's own writer hides that the disk is full
        content = io.BytesIO()
        torch.save(packed, content)
        try:
            with atomic_path(file, flush=False) as temporary:
                temporary.write_bytes(content.getbuffer())
        except OSError as error:
            remedy = "free space, give another cache_dir, or choose cache='none'"
            reason = error.strerror or error
            raise OSError(
                f"cannot write to the cache {self.cache_dir}: {reason}; {remedy}"
            ) from error


# ---- what a file depends on


def _item_hash(item: Mapping[str, Any]) -> bytes:
    """Hash of an item, and of size and time of the files that it names."""
    return pickle_hashing([dict(sorted(item.items())), list(_file_states(item))])


def _file_states(item: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """Size and time of the last change of the files that an item names, be it by a relative path."""
    for value in item.values():
        for entry in value if isinstance(value, (list, tuple)) else [value]:
            if not isinstance(entry, (str, os.PathLike)):
                continue
            path = os.fspath(entry)
            # a header, whose pixels are in another file
            beside = [path[:-4] + end for end in (".raw", ".zraw")] if path.endswith(".mhd") else []
            for file in filter(os.path.isfile, [path, *beside]):
                status = os.stat(file)
                yield status.st_size, status.st_mtime_ns


def _recipe_hash(transforms: Sequence[Callable]) -> bytes:
    """Hash of the transforms, their settings and their code."""
    settings = io.BytesIO()
    recorder = _ModuleRecorder(settings, protocol=4)
    try:
        recorder.dump(list(transforms))
    except Exception as error:  # whatever an object's own __reduce__ raises
        remedy = "replace functions without a name (lambda) by named ones, or choose cache='memory'"
        raise ValueError(
            f"the settings of the transforms cannot be hashed ({error}); {remedy}"
        ) from error
    sources = [file.read_bytes() for file in recorder.sources()]
    parts = [monai.__version__.encode(), settings.getvalue(), *sources]
    return hashlib.sha256(b"\0".join(parts)).hexdigest().encode()


class _ModuleRecorder(pickle.Pickler):
    """Pickles, and notes in which modules the classes and functions are that the pickled objects use."""

    modules: frozenset[str] = frozenset()

    def reducer_override(self, obj: Any) -> Any:
        """Called for each object; leaves the work to pickle."""
        self.modules |= {str(getattr(obj, "__module__", ""))}
        return NotImplemented

    def sources(self) -> list[Path]:
        """Files of their code: all transforms of this package, which use one another, and the modules of others."""
        files: set[Path] = set()
        for module in self.modules:
            package = module.partition(".")[0]
            if package == _PACKAGE:
                files.update((Path(__file__).parents[2] / "transforms").rglob("*.py"))
            elif package not in _LIBRARIES and (
                source := getattr(sys.modules.get(module), "__file__", None)
            ):
                files.add(Path(source))
        return sorted(files)


# ---- what a file holds: tensors and plain values, read faster than MONAI's classes, and without their code


def _packed(value: Any, bits: int | None = None) -> Any:
    if isinstance(value, MetaTensor):
        return {
            _KIND: "meta",
            "data": _packed(value.as_tensor(), bits),
            "meta": _packed(dict(value.meta)),
            "operations": _packed(list(value.applied_operations)),
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
        return {_plain(key): _packed(entry, bits) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        kind = tuple if isinstance(value, tuple) else list
        return kind(_packed(entry, bits) for entry in value)
    return _plain(value)


def _plain(value: Any) -> Any:
    """Numbers, texts and None as such, without the classes that MONAI derives from them."""
    if value is None or isinstance(value, (bool, torch.dtype)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    for plain in (int, float, str):
        if isinstance(value, plain):
            return plain(getattr(value, "value", value))
    remedy = "put the transform that makes it behind a random one, or choose cache='memory'"
    raise TypeError(f"{type(value).__name__} cannot be kept in the cache on disk; {remedy}")


def _unpacked(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_unpacked, value))
    if not isinstance(value, dict):
        return value
    if _KIND not in value:
        return {key: _unpacked(entry) for key, entry in value.items()}
    data = _unpacked(value["data"])
    if value[_KIND] == "meta":
        meta, operations = _unpacked(value["meta"]), _unpacked(value["operations"])
        return MetaTensor(data, meta=meta, applied_operations=operations)
    if value[_KIND] == "rounded":
        levels = 2.0 ** (8 * data.element_size()) - 1.0
        # divided in the type of the result: a picture of 8 bits is then identical to what its file was scaled to
        return data.int().to(value["dtype"]) / levels
    return data.numpy()[()]  # a scalar where there are no dimensions


def _is_image(tensor: torch.Tensor) -> bool:
    """Whether a tensor may be an image ``(C, *S)`` of floating-point numbers in [0, 1]; NaN is none."""
    is_float = tensor.dtype in (torch.float32, torch.float64)
    if tensor.ndim < 3 or not tensor.numel() or not is_float:
        return False
    return bool(tensor.min() >= 0 and tensor.max() <= 1)
