# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Files within shards: many radiographs in few tar files, each read from its place without reading what lies before it.

A member's path is that of its shard with its name behind it, ``FOLDER/radiographs-000012.tar/p0001/a.png``. Where it
lies is in ``FOLDER/shards.npy``, which is mapped into memory: all processes share the one copy of the system's cache.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tempfile
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import BinaryIO

import numpy as np

from monai_afire.transforms.radiograph_io.common import RadiographError, refuse

INDEX_NAME = "shards.npy"
INDEX_TYPE = np.dtype([("key", "<u8"), ("shard", "<u4"), ("crc", "<u4"), ("offset", "<u8"), ("size", "<u8")])
# begins with what it looks for, and then looks back that a folder ended there: a list has very many paths
_SHARD = re.compile(r"radiographs-(\d{6})(?<![^/\\].{18})\.tar[/\\]", re.DOTALL)
_OPEN_SHARDS = 64  # of a process at once, in all threads: a thousand files is often all that it may open
_REMEDY = "write the shards again"


def shard_name(number: int) -> str:
    """File name of a shard."""
    return f"radiographs-{number:06d}.tar"


def member_key(name: str) -> int:
    """64-bit hash of a member's name, relative with "/", for the index."""
    return int.from_bytes(hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest(), "little")


def is_member(path: str | os.PathLike) -> bool:
    """Whether a path is that of a file within a shard, by its name alone."""
    return _SHARD.search(os.fspath(path)) is not None


def shard_folder(path: str) -> str | None:
    """Folder of the shards that a path leads into, with its slash, None for a file of its own."""
    return _split(path)[0] if is_member(path) else None


def without_shard(path: str) -> str:
    """The path without the shard, which ends like that of the file that the member was written from."""
    return _SHARD.sub("", path, count=1)


def open_file(path: str) -> BinaryIO:
    """Open a file, or a member of a shard, whose bytes are checked first."""
    return io.BytesIO(read_member(path)) if is_member(path) else open(path, "rb")


def read_member(path: str, limit: int | None = None) -> bytes:
    """Bytes of a file within a shard, at most ``limit`` of them; all of them are checked."""
    folder, number, _ = _split(path)
    entry = _entry(path)
    size = int(entry["size"]) if limit is None else min(limit, int(entry["size"]))
    try:
        shard = _opened(os.path.join(folder, shard_name(number)), os.getpid(), threading.get_ident())
        shard.seek(int(entry["offset"]))
        content = shard.read(size)
    except OSError as error:
        raise refuse(path, f"its shard cannot be read ({error.strerror or error})", "check the disk") from error
    if len(content) < size:
        raise refuse(path, f"its shard is cut: {len(content)} bytes of {size} are there", _REMEDY)
    if limit is None and zlib.crc32(content) != int(entry["crc"]):
        raise refuse(path, "is damaged within its shard: its bytes are not those that were written", _REMEDY)
    return content


@contextmanager
def local_file(path: str) -> Iterator[str]:
    """A path that a library can open which reads nothing but files."""
    if not is_member(path):
        yield path
        return
    content = read_member(path)
    with tempfile.TemporaryDirectory(prefix="monai_afire_") as folder:
        copy = os.path.join(folder, os.path.basename(path))
        with open(copy, "wb") as stream:
            stream.write(content)
        try:
            yield copy
        except RadiographError as error:
            raise RadiographError(str(error).replace(copy, path)) from error


def member_state(path: str) -> tuple[int, int] | None:
    """Size and checksum of a member as the index has them, None where it is not in it."""
    try:
        entry = _entry(path)
    except RadiographError:
        return None
    return int(entry["size"]), int(entry["crc"])


def absent_members(paths: Sequence[str]) -> list[str]:
    """The paths of members that their index does not have; all of a folder are looked up at once."""
    by_folder: dict[str, list[tuple[str, int, int]]] = {}
    for path in paths:
        folder, number, name = _split(path)
        by_folder.setdefault(folder, []).append((path, number, member_key(name)))
    absent: list[str] = []
    for folder, members in by_folder.items():
        names, numbers, keys = zip(*members, strict=True)
        _, known = _look_up(_index(folder, names[0]), keys, numbers)
        absent.extend(names[place] for place in np.flatnonzero(~known))
    return absent


def forget_shards() -> None:
    """Close the shards and indices that this process has opened, when they have been written anew."""
    _opened.cache_clear()
    _mapped.cache_clear()


@lru_cache(maxsize=_OPEN_SHARDS)
def _opened(path: str, process: int, thread: int) -> BinaryIO:
    """A shard that stays open; each process and thread reads at its own position."""
    return open(path, "rb")


@lru_cache(maxsize=8)
def _mapped(path: str) -> np.ndarray:
    """An index, mapped into memory."""
    index = np.load(path, mmap_mode="r", allow_pickle=False)
    if index.dtype != INDEX_TYPE or index.ndim != 1:
        raise ValueError(f"holds {index.dtype} of the shape {index.shape}")
    return index


def _index(folder: str, path: str) -> np.ndarray:
    """Index of a folder of shards; ``path`` is for messages."""
    try:
        return _mapped(os.path.join(folder, INDEX_NAME))
    except FileNotFoundError as error:
        reason = f"lies in a shard without its index {INDEX_NAME}"
        raise refuse(path, reason, "copy the whole folder of shards") from error
    except (OSError, ValueError, EOFError) as error:
        raise refuse(path, f"the index {INDEX_NAME} of its shard cannot be read ({error})", _REMEDY) from error


def _look_up(index: np.ndarray, keys: Sequence[int], numbers: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Place of each member in an index, and whether it is there, in its shard."""
    if not len(index):
        return np.zeros(len(keys), int), np.zeros(len(keys), bool)
    wanted = np.asarray(keys, dtype=np.uint64)
    places = np.minimum(np.searchsorted(index["key"], wanted), len(index) - 1)
    return places, (index["key"][places] == wanted) & (index["shard"][places] == np.asarray(numbers))


def _entry(path: str) -> np.void:
    """What the index says of a member."""
    folder, number, name = _split(path)
    index = _index(folder, path)
    [place], [known] = _look_up(index, [member_key(name)], [number])
    if not known:
        raise refuse(path, "is not in its shard", "check the name, or write the shards again")
    return index[place]


def _split(path: str) -> tuple[str, int, str]:
    """Folder of the shards, number of the shard, and name of the member with "/"."""
    match = _SHARD.search(path)
    if match is None:
        raise ValueError(f"{path}: is no path of a member of a shard")
    return path[: match.start()] or ".", int(match.group(1)), path[match.end() :].replace(os.sep, "/")
