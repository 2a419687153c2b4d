# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Folders of shards, which stand for a folder of radiographs or for a datalist: recognized, checked and verified."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from monai_afire.data.datalist.datalist_checks import DatalistError, read_json
from monai_afire.transforms.radiograph_io.shards import (
    INDEX_NAME,
    INDEX_TYPE,
    absent_members,
    forget_shards,
    is_member,
    shard_name,
)
from monai_afire.utils.text import first_few

MANIFEST_NAME, LIST_NAME, FILES_NAME = "shards.json", "datalist.json", "files.json"
VERSION = 1
_AGAIN = "copy it again, or write the shards again"
_SHOWN = 200  # characters of a name in a message


def is_shard_folder(folder: str | os.PathLike) -> bool:
    """Whether a folder is one that ``monai-afire data shards`` has written to the end."""
    root = os.path.expanduser(os.fspath(folder))
    if os.path.isfile(os.path.join(root, MANIFEST_NAME)):
        return True
    if os.path.isfile(os.path.join(root, shard_name(0))):
        reason = f"holds shards, but no {MANIFEST_NAME}: writing or copying them was interrupted"
        raise DatalistError(f"{root}: {reason}; do it again.")
    return False


def listed_shards(folder: str | os.PathLike | None) -> str | None:
    """The datalist of a folder of shards that were written from one; None for any other folder."""
    if not folder or not is_shard_folder(folder):
        return None
    path = os.path.join(os.path.expanduser(os.fspath(folder)), LIST_NAME)
    return path if os.path.isfile(path) else None


def shard_files(folder: str | os.PathLike) -> list[str]:
    """Names of the members of shards that were written from a folder, ``SHARD/NAME``, in the order of that folder."""
    source = Path(folder).expanduser() / FILES_NAME
    manifest = check_shards(source.parent)
    content = read_json(source, "the names of the images", _AGAIN)
    names = content.get("files") if isinstance(content, dict) else None
    if not isinstance(names, list) or len(names) != manifest["members"]:
        raise DatalistError(f"{source}: does not name the {manifest['members']:,} images of the shards; {_AGAIN}.")
    _check_names(source, names)
    if len(set(names)) < len(names):
        raise DatalistError(f"{source}: names an image twice; {_AGAIN}.")
    return names


def _check_names(source: Path, names: list[Any]) -> None:
    """Make sure that names are those of members, which lead nowhere else."""
    wrong = [name for name in names if not isinstance(name, str) or not is_member(name) or ".." in Path(name).parts]
    wrong = wrong or absent_members([f"{source.parent}/{name}" for name in names])
    if wrong:
        shown = first_few([repr(name)[:_SHOWN] for name in wrong])
        raise DatalistError(f"{source}: {len(wrong):,} of {len(names):,} names are of no image: {shown}; {_AGAIN}.")


def check_shards(folder: str | os.PathLike) -> dict[str, Any]:
    """Make sure that shards and index are as they were written, by sizes and the checksum of the index."""
    root = Path(folder).expanduser()
    manifest = _read_manifest(root / MANIFEST_NAME)
    forget_shards()  # what this process has open may have been replaced
    wrong = [problem for shard in manifest["shards"] if (problem := _problem(root / shard["name"], shard["bytes"]))]
    if wrong:
        text = f"{len(wrong):,} of {len(manifest['shards']):,} shards cannot be used: {first_few(wrong)}"
        raise DatalistError(f"{root}: {text}; copy them again, or write them again.")
    _check_index(root / INDEX_NAME, manifest)
    return manifest


def _read_manifest(path: Path) -> dict[str, Any]:
    manifest = read_json(path, "the list of the shards", _AGAIN)
    version = manifest.get("version") if isinstance(manifest, dict) else None
    if version != VERSION:
        raise DatalistError(f"{path}: is of version {version!r} where {VERSION} is expected; write the shards again.")
    whole = all(isinstance(manifest.get(key), int) for key in ("members", "index_crc"))
    shards = manifest.get("shards")
    if not whole or not isinstance(shards, list) or not all(map(_is_entry, enumerate(shards))):
        raise DatalistError(f"{path}: is not as it was written; {_AGAIN}.")
    return manifest


def _is_entry(numbered: tuple[int, Any]) -> bool:
    number, shard = numbered
    return isinstance(shard, dict) and shard.get("name") == shard_name(number) and isinstance(shard.get("bytes"), int)


def _problem(path: Path, size: int) -> str:
    """What is wrong with a shard, "" if nothing is."""
    if not path.is_file():
        return f"{path.name} does not exist"
    found = path.stat().st_size
    return "" if found == size else f"{path.name} has {found:,} bytes of {size:,}"


def _check_index(path: Path, manifest: dict[str, Any]) -> None:
    try:
        content = path.read_bytes()
        index = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DatalistError(f"{path}: the index of the shards cannot be read ({error}); {_AGAIN}.") from error
    fits = index.dtype == INDEX_TYPE and index.shape == (manifest["members"],)
    fits = fits and bool((index["key"][1:] > index["key"][:-1]).all())  # it is searched by halves
    if not fits or zlib.crc32(content) != manifest["index_crc"]:
        raise DatalistError(f"{path}: the index of the shards is damaged or of other shards; {_AGAIN}.")


def verify_shards(folder: str | os.PathLike, progress: bool = True) -> str:
    """
    Compare every image of a folder of shards with the checksum that it was written with, and the names with the index.

    Args:
        folder: of the shards.
        progress: show a bar.

    Returns:
        One line that says how many images are whole.

    Raises:
        DatalistError: When shards or index are missing or cut, images are damaged, or a list names other files; the
            first few are named by their shard and place.
        OSError: when the disk fails.
    """
    root = Path(folder).expanduser()
    manifest = check_shards(root)
    if (root / LIST_NAME).is_file():
        content = read_json(root / LIST_NAME, "the datalist", _AGAIN)
        _check_names(root / LIST_NAME, list(_listed_paths(content)))
    else:
        shard_files(root)
    index = np.load(root / INDEX_NAME, mmap_mode="r", allow_pickle=False)
    index = index[np.lexsort((index["offset"], index["shard"]))]  # as they lie: read from front to back
    damaged = []
    starts = np.searchsorted(index["shard"], np.arange(len(manifest["shards"]) + 1))
    for number in tqdm(range(len(manifest["shards"])), "shards", disable=not progress):
        with open(root / shard_name(number), "rb") as stream:
            for entry in index[starts[number] : starts[number + 1]]:
                stream.seek(int(entry["offset"]))
                if zlib.crc32(stream.read(int(entry["size"]))) != int(entry["crc"]):
                    damaged.append(f"{shard_name(number)} at byte {int(entry['offset'])}")
    if damaged:
        text = f"{len(damaged):,} of {len(index):,} files are damaged: {first_few(damaged)}"
        raise DatalistError(f"{root}: {text}; copy these shards again, or write them again.")
    return f"{root}: {len(index):,} files in {len(manifest['shards']):,} shards are as they were written."


def _listed_paths(content: Any) -> Iterator[str]:
    """Every text of a datalist, at any depth, that names a member of a shard, or an image wherever it is."""
    if isinstance(content, str):
        yield from [content] if is_member(content) else []
    elif isinstance(content, (list, dict)):
        image = content.get("image") if isinstance(content, dict) else None
        if isinstance(image, str) and not is_member(image):
            yield image
        for value in content.values() if isinstance(content, dict) else content:
            yield from _listed_paths(value)
