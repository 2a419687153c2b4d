# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writing of a folder of radiographs, or of a datalist's, into tar files of some hundred megabytes."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from monai.utils import ensure_tuple
from tqdm import tqdm

from monai_afire.data.datalist.datalist_checks import PATH_KEYS, SECTIONS, DatalistError
from monai_afire.data.datalist.loading import load_radiograph_datalist, read_sections
from monai_afire.data.shards.folders import FILES_NAME, LIST_NAME, MANIFEST_NAME, VERSION
from monai_afire.transforms.radiograph_io.shards import INDEX_NAME, INDEX_TYPE, is_member, member_key, shard_name
from monai_afire.utils.files import atomic_path, check_writable, path_from, write_text
from monai_afire.utils.folder_lock import folder_lock
from monai_afire.utils.garbage_collection import garbage_collection_paused
from monai_afire.utils.text import first_few

_END = bytes(2 * tarfile.BLOCKSIZE)  # of a tar file
_LEAST_MEGABYTES = 1


@garbage_collection_paused()
def write_shards(
    output: str | os.PathLike,
    dataset_dir: str | os.PathLike | None = None,
    datalist: str | os.PathLike | None = None,
    shard_megabytes: int = 256,
    progress: bool = True,
) -> str:
    """
    Write radiographs into few large tar files, which any option that takes a folder or a list reads instead.

    The files' own bytes are kept, in the order of the folder or list. Beside the shards lie ``shards.npy``, which says
    where each file is, ``shards.json``, which says how large the shards are, and ``datalist.json`` with the sections of
    the list (or ``files.json`` with the names of the folder). The shards alone are plain tar files, as WebDataset has
    them. A list without a section "validation" is divided by patient as every bundle divides it, and both are written.

    Args:
        output: folder to write to, empty or with an interrupted writing.
        dataset_dir: folder of the radiographs, or that the names of the list start from.
        datalist: JSON file of the sections "training", "validation" and "test"; None for the whole folder.
        shard_megabytes: size at which the next shard is begun, at least 1.
        progress: show a bar.

    Returns:
        One line that says what was written.

    Raises:
        DatalistError: When folder or list cannot be used, a file cannot be stored, or ``output`` holds shards or
            anything else.
        OSError: when a file cannot be read or written.
        RuntimeError: when another process is writing into ``output``.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> source, shards = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
        >>> for number in range(3):
        ...     Image.linear_gradient("L").rotate(90 * number).save(source / f"{number}.png")
        >>> _ = write_shards(shards, source, progress=False)
        >>> from monai_afire.data import bundle_items
        >>> from monai_afire.transforms import LoadRadiograph
        >>> [item["image"][-28:] for item in bundle_items("test", str(shards))][:2]
        ['radiographs-000000.tar/0.png', 'radiographs-000000.tar/1.png']
        >>> LoadRadiograph()(shards / "radiographs-000000.tar" / "0.png").shape
        torch.Size([1, 256, 256])
    """
    if shard_megabytes < _LEAST_MEGABYTES:
        raise DatalistError(f"shard_megabytes must be at least {_LEAST_MEGABYTES}, got {shard_megabytes}.")
    root = Path(output).expanduser()
    _unfinished_writing(root)
    content = _listed(Path(datalist).expanduser(), dataset_dir) if datalist else {}
    items = [item for name in SECTIONS for item in content.get(name) or ()]
    if not datalist:
        items = load_radiograph_datalist(dataset_dir, section="all")
    with folder_lock(check_writable(root)):
        for stale in _unfinished_writing(root):  # again: another process may have written meanwhile
            stale.unlink(missing_ok=True)
        writer = _ShardWriter(root, shard_megabytes * 1_000_000)
        count = _add_files(writer, items, None if datalist else dataset_dir, progress)
        if datalist:
            _finish(root, writer, content, LIST_NAME)
        else:
            _finish(root, writer, {"files": [item["image"] for item in items]}, FILES_NAME)
    return f"{root}: {count:,} files in {len(writer.sizes):,} shards, {sum(writer.sizes) / 1e6:,.0f} MB."


def _add_files(
    writer: _ShardWriter, items: list[dict[str, Any]], folder: str | os.PathLike | None, progress: bool
) -> int:
    """Write the files of items and put the paths of the members in their place; returns how many files there are."""
    paths = (path for item in items for key in PATH_KEYS for path in ensure_tuple(item.get(key) or ()))
    files = list(dict.fromkeys(paths))
    base = os.path.abspath(os.path.expanduser(folder)) if folder else os.path.commonpath(map(os.path.dirname, files))
    members = {}
    for path in tqdm(files, "files", disable=not progress):
        members[path] = writer.add(path, path_from(path, base))
    for item in items:
        for key in PATH_KEYS:
            if value := item.get(key):
                item[key] = members[value] if isinstance(value, str) else [members[path] for path in value]
    return len(files)


def _unfinished_writing(root: Path) -> list[Path]:
    """
    Files that an interrupted writing has left; a list is one of them only beside the index, which comes first.

    Raises:
        DatalistError: When the folder holds anything else, which would be overwritten or mixed up with the shards.
    """
    if (root / MANIFEST_NAME).exists():
        raise DatalistError(f"{root}: holds shards already; give an empty folder, or delete them first.")
    entries = sorted(root.iterdir()) if root.is_dir() else []
    lists = [LIST_NAME, FILES_NAME] if (root / INDEX_NAME).exists() else []
    own = re.compile("|".join([r"radiographs-\d{6}\.tar", r"\.(lock|.+\.tmp)", *map(re.escape, (INDEX_NAME, *lists))]))
    if others := [entry.name for entry in entries if not own.fullmatch(entry.name)]:
        reason = f"is not empty: {first_few(others)}"
        raise DatalistError(f"{root}: {reason}; give a folder that is empty or does not exist, for shards alone.")
    return [entry for entry in entries if entry.name != ".lock"]


def _listed(source: Path, dataset_dir: str | os.PathLike | None) -> dict[str, Any]:
    """A datalist's content with its sections checked as a bundle checks them, and with absolute paths."""
    content = read_sections(source)
    sections = [name for name in SECTIONS if content.get(name)]
    if not sections:
        raise DatalistError(f"{source}: has none of the sections {', '.join(SECTIONS)}.")
    if "training" in sections and "validation" not in content:
        sections.append("validation")
    divided = {
        name: load_radiograph_datalist(dataset_dir, source, name, hold_out=True, content=content) for name in sections
    }
    return {**content, **divided}


@dataclass
class _ShardWriter:
    """Writes files into shards one after another, and notes where."""

    root: Path
    most_bytes: int
    sizes: list[int] = field(default_factory=list)
    entries: list[tuple[int, ...]] = field(default_factory=list)
    stream: IO[bytes] | None = None

    def add(self, path: str, name: str) -> str:
        """Append a file; returns the member's path relative to the folder of the shards."""
        if path.lower().endswith(".mhd") or is_member(path):
            reason = "is in a shard already" if is_member(path) else "has its pixels in another file"
            raise DatalistError(f"{path}: {reason}, and cannot be stored; save it as a file of its own (.mha, .png).")
        content = Path(path).read_bytes()
        header = tarfile.TarInfo(name)
        header.size = len(content)
        block = header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        padding = bytes(-len(content) % tarfile.BLOCKSIZE)
        if self.stream is not None and self.stream.tell() + len(block) + len(content) > self.most_bytes:
            self.close()
        if self.stream is None:
            self.stream = open(self.root / shard_name(len(self.sizes)), "wb", buffering=io.DEFAULT_BUFFER_SIZE * 64)  # noqa: SIM115
        offset = self.stream.tell() + len(block)
        for part in (block, content, padding):
            self.stream.write(part)
        number = len(self.sizes)
        self.entries.append((member_key(name), number, zlib.crc32(content), offset, len(content)))
        return f"{shard_name(number)}/{name}"

    def close(self) -> None:
        """End the shard, on the disk."""
        if self.stream is None:
            return
        self.stream.write(_END)
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.sizes.append(self.stream.tell())
        self.stream.close()
        self.stream = None


def _finish(root: Path, writer: _ShardWriter, content: dict[str, Any], list_name: str) -> None:
    """Write index and list, and last of all the file without which nobody takes the folder for one of shards."""
    writer.close()
    index = np.array(sorted(writer.entries), INDEX_TYPE)
    if (index["key"][1:] == index["key"][:-1]).any():
        raise DatalistError(f"{root}: two files have names that cannot be told apart in the index; rename one.")
    packed = io.BytesIO()
    np.save(packed, index)
    with atomic_path(root / INDEX_NAME) as temporary:
        temporary.write_bytes(packed.getbuffer())
    write_text(root / list_name, json.dumps(content))
    manifest = {
        "version": VERSION,
        "members": len(index),
        "index_crc": zlib.crc32(packed.getbuffer()),
        "shards": [{"name": shard_name(number), "bytes": size} for number, size in enumerate(writer.sizes)],
    }
    write_text(root / MANIFEST_NAME, json.dumps(manifest, indent=1))
