# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Search of a folder for radiographs, and the mark by which it leaves folders of results out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.transforms.radiograph_files import (
    HEAD_BYTES,
    SUPPORTED_EXTENSIONS,
    extension_of,
    identify_content,
    supported_types,
)
from monai_afire.utils.text import first_few

RESULTS_MARK = ".monai_afire_results"
"""File in a folder of results."""
_RADIOGRAPH = "radiograph"
_UNREADABLE = "cannot be read"
_IGNORED_NAMES = ("dicomdir", "__macosx")


def scan_radiographs(folder: str | os.PathLike) -> list[str]:
    """
    Find the radiographs below a folder, by extension in any case, and DICOM files of any other extension by content.

    Hidden files, DICOMDIR and what is no regular file are left out, and, with a warning that counts and names them,
    subfolders and files that cannot be read, pictures of other extensions, and folders of results of this package; a
    subfolder that links back is visited once.

    Returns:
        Names relative to the folder with "/", sorted.

    Raises:
        DatalistError: When the folder does not exist or is a file.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> (folder / "day 1").mkdir()
        >>> for name in ("b.PNG", "notes.txt", "day 1/a.dcm"):
        ...     (folder / name).touch()
        >>> scan_radiographs(folder)
        ['b.PNG', 'day 1/a.dcm']
    """
    root = os.path.expanduser(os.fspath(folder))
    if not os.path.isdir(root):
        problem = "is a file, not a folder" if os.path.exists(root) else "no such folder"
        raise DatalistError(f"{root}: {problem}.")
    kinds = dict(_kinds(root))
    found = sorted(name for name, kind in kinds.items() if kind == _RADIOGRAPH)
    left_out = sorted(f"{name} ({kind})" for name, kind in kinds.items() if kind != _RADIOGRAPH)
    if left_out:
        warnings.warn(
            f"{root}: {len(left_out):,} entries are left out: {first_few(left_out)}; {len(found):,} "
            f"radiographs are found. Give files their extension ({supported_types()}).",
            stacklevel=2,
        )
    return found


def _kinds(root: str) -> Iterator[tuple[str, str]]:
    """Names below a folder, and what they are or why they are left out; each subfolder is visited once."""
    pending, visited = [""], set()
    while pending:
        folder = pending.pop()
        here = os.path.join(root, folder)
        try:
            status = os.stat(here)
            with os.scandir(here) as listed:
                entries = list(listed)
        except OSError as error:
            yield here, f"{_UNREADABLE}: {error.strerror}"
            continue
        if (status.st_dev, status.st_ino) in visited:
            continue
        visited.add((status.st_dev, status.st_ino))
        if folder and any(entry.name == RESULTS_MARK for entry in entries):
            yield folder, "results of monai_afire"
            continue
        for entry in entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.name.startswith(".") or entry.name.lower() in _IGNORED_NAMES:
                continue
            if _is_folder(entry):
                pending.append(name)
            elif kind := _kind(entry):
                yield name, kind


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links in a circle
        return False


def _kind(entry: os.DirEntry[str]) -> str:
    """Whether a file is a radiograph, or else why one is left out; "" for other files, such as a text."""
    extension = extension_of(entry.name)
    try:
        if not entry.is_file():  # a named pipe would wait for a writer for ever
            is_lost = entry.is_symlink() and extension in SUPPORTED_EXTENSIONS
            return f"{_UNREADABLE}: link to nothing" if is_lost else ""
        if extension in SUPPORTED_EXTENSIONS:
            return _RADIOGRAPH
        with open(entry.path, "rb") as stream:
            head = stream.read(HEAD_BYTES)
    except OSError as error:
        return f"{_UNREADABLE}: {error.strerror}"
    content = identify_content(head)
    if content == "DICOM":
        return _RADIOGRAPH
    return content and f"{content} of another extension"


def mark_results(
    folder: str | os.PathLike, sources: Iterable[str], subfolders: Iterable[str] = ()
) -> None:
    """
    Mark a folder of results, so that a search for radiographs does not take pictures in it for input.

    Where one of the sources lies in it, it cannot be left out: then those subfolders are marked that hold only results.
    """
    start = os.path.join(os.path.abspath(folder), "")
    holds_sources = any(os.path.abspath(source).startswith(start) for source in sources)
    for marked in [Path(folder, name) for name in subfolders] if holds_sources else [Path(folder)]:
        with suppress(FileExistsError):  # a file in the way: an error of the first result
            marked.mkdir(exist_ok=True)
            text = "Results of monai_afire: a search for radiographs leaves this folder out.\n"
            (marked / RESULTS_MARK).write_text(text)
