# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Search of a folder for radiographs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable

from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.transforms.radiograph_io.formats import (
    HEAD_BYTES,
    SUPPORTED_EXTENSIONS,
    extension_of,
    identify_content,
    picture_or_archive,
    supported_types,
)
from monai_afire.utils.files import RESULTS_MARK
from monai_afire.utils.text import first_few

_RADIOGRAPH = "radiograph"
_IGNORED_NAMES = {"dicomdir", "__macosx"}


def scan_radiographs(folder: str | os.PathLike) -> list[str]:
    """
    Find the radiographs below a folder, by extension in any case, and DICOM files of any other extension by content.

    Hidden files, DICOMDIR and what is no regular file are left out, and, with a warning that counts and names them,
    subfolders and files that cannot be read, links to nothing, pictures of other extensions or formats, archives, and
    pictures among the results of this package; a subfolder that links back is visited once.

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
        raise DatalistError(
            f"{root}: {'is a file, not a folder' if os.path.exists(root) else 'no such folder'}."
        )
    found: list[str] = []
    skipped: list[str] = []
    unknown: list[str] = []  # which may hold radiographs
    results: list[str] = []  # folders
    pending, visited = [""], set()
    while pending:
        relative = pending.pop()
        here = os.path.join(root, relative)
        try:
            status = os.stat(here)
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            if relative and os.path.exists(os.path.join(here, RESULTS_MARK)):
                results.append(here)
                continue
            with os.scandir(here) as entries:
                _visit(entries, relative, pending, found, skipped, unknown)
        except OSError as error:
            warnings.warn(f"{here}: left out, cannot be listed ({error.strerror}).", stacklevel=2)
    if skipped:
        text = (
            f"{len(skipped):,} entries left out, which cannot be read: {first_few(sorted(skipped))}"
        )
        warnings.warn(f"{root}: {text}; {len(found):,} radiographs are found.", stacklevel=2)
    if unknown:
        text = f"{len(unknown):,} files left out, which may hold radiographs: {first_few(sorted(unknown))}"
        remedy = f"unpack or convert them, or give them their extension ({supported_types()})"
        warnings.warn(
            f"{root}: {text}; {len(found):,} radiographs are found; {remedy}.", stacklevel=2
        )
    if count := sum(len(scan_radiographs(result)) for result in results):
        text = f"{count:,} pictures left out, which lie among results of monai_afire: {first_few(sorted(results))}"
        warnings.warn(f"{root}: {text}; {len(found):,} radiographs are found.", stacklevel=2)
    return sorted(found)


def _visit(
    entries: Iterable[os.DirEntry[str]],
    folder: str,
    pending: list[str],
    found: list[str],
    skipped: list[str],
    unknown: list[str],
) -> None:
    """Enter the subfolders and the radiographs of a folder into their lists, and what is left out into others."""
    for entry in entries:
        if entry.name.startswith(".") or entry.name.lower() in _IGNORED_NAMES:
            continue
        name = f"{folder}/{entry.name}" if folder else entry.name
        try:
            if entry.is_dir():
                pending.append(name)
                continue
            kind = _kind(entry)
        except OSError as error:  # of this entry alone: the others can still be read
            skipped.append(f"{name} ({error.strerror})")
            continue
        if kind == _RADIOGRAPH:
            found.append(name)
        elif kind:
            unknown.append(f"{name} ({kind})")


def _kind(entry: os.DirEntry[str]) -> str:
    """
    Whether a file is a radiograph: by its extension, or DICOM by its content, whatever the extension.

    Returns:
        ``_RADIOGRAPH``; what else the file is that may hold one; "" for what holds none, such as a text.
    """
    extension = extension_of(entry.name)
    if (
        not entry.is_file()
    ):  # asked before it is opened: a named pipe would wait for a writer for ever
        if entry.is_symlink() and (not extension or extension in SUPPORTED_EXTENSIONS):
            entry.stat()
        return ""
    if extension in SUPPORTED_EXTENSIONS:
        return _RADIOGRAPH
    with open(entry.path, "rb") as stream:
        head = stream.read(HEAD_BYTES)
    content = identify_content(head)
    if content == "DICOM":
        return _RADIOGRAPH
    return f"{content} of another extension" if content else picture_or_archive(head, extension)
