# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Search of a folder for radiographs, and the mark by which it leaves folders of results out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.transforms.radiograph_files import (
    HEAD_BYTES,
    SUPPORTED_EXTENSIONS,
    extension_of,
    identify_content,
    inflated_head,
    supported_types,
)
from monai_afire.utils.text import first_few

RESULTS_MARK = ".monai_afire_results"
"""File in a folder of results."""
_RADIOGRAPH = "radiograph"
_OTHER_PICTURES = {
    b"GIF8": "GIF",
    b"RIFF": "WebP",
    b"\x00\x00\x00\x0cjP  ": "JPEG 2000",
    b"\xff\x4f\xff\x51": "JPEG 2000",
    b"P5": "PGM",
}
_PICTURES = (".gif", ".webp", ".jp2", ".j2k", ".heic", ".avif", ".pgm", ".img", ".dic", ".acr")
_ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar", ".bz2", ".xz", ".zst", ".iso")
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
        found = "is a file, not a folder" if os.path.exists(root) else "no such folder"
        raise DatalistError(f"{root}: {found}.")
    search = _Search(root)
    search.walk()
    for text in search.left_out():
        warnings.warn(text, stacklevel=2)
    return sorted(search.found)


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


@dataclass
class _Search:
    """
    What a folder and its subfolders hold, by names relative to it.

    Args:
        root: the folder.
        found: radiographs.
        skipped: what cannot be read, with the reason.
        unknown: files that may hold radiographs, with what they are.
        results: paths of folders with results of this package.
        unlisted: paths of folders whose entries cannot be listed, with the reason.
    """

    root: str
    found: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)

    def walk(self) -> None:
        """Visit the folder and its subfolders, each once, however many links lead there."""
        pending, visited = [""], set()
        while pending:
            relative = pending.pop()
            here = os.path.join(self.root, relative)
            try:
                status = os.stat(here)
                if (status.st_dev, status.st_ino) in visited:
                    continue
                visited.add((status.st_dev, status.st_ino))
                if relative and os.path.exists(os.path.join(here, RESULTS_MARK)):
                    self.results.append(here)
                    continue
                with os.scandir(here) as entries:
                    for entry in entries:
                        self._enter(entry, relative, pending)
            except OSError as error:
                self.unlisted.append(f"{here}: left out, cannot be listed ({error.strerror}).")

    def _enter(self, entry: os.DirEntry[str], folder: str, pending: list[str]) -> None:
        """Enter an entry of a subfolder where it belongs; other subfolders become pending."""
        if entry.name.startswith(".") or entry.name.lower() in _IGNORED_NAMES:
            return
        name = f"{folder}/{entry.name}" if folder else entry.name
        try:
            if entry.is_dir():
                pending.append(name)
                return
            kind = _kind(entry)
        except OSError as error:  # of this entry alone: the others can still be read
            self.skipped.append(f"{name} ({error.strerror})")
            return
        if kind == _RADIOGRAPH:
            self.found.append(name)
        elif kind:
            self.unknown.append(f"{name} ({kind})")

    def left_out(self) -> Iterator[str]:
        """What to tell of the entries that are no radiographs, or may be some."""
        yield from self.unlisted
        found = f"{len(self.found):,} radiographs are found"
        if self.skipped:
            text = f"{len(self.skipped):,} entries left out, which cannot be read"
            yield f"{self.root}: {text}: {first_few(sorted(self.skipped))}; {found}."
        if self.unknown:
            text = f"{len(self.unknown):,} files left out, which may hold radiographs"
            remedy = f"unpack or convert them, or give them their extension ({supported_types()})"
            yield f"{self.root}: {text}: {first_few(sorted(self.unknown))}; {found}; {remedy}."
        if count := sum(len(scan_radiographs(result)) for result in self.results):
            text = f"{count:,} pictures left out, which lie among results of monai_afire"
            yield f"{self.root}: {text}: {first_few(sorted(self.results))}; {found}."


def _kind(entry: os.DirEntry[str]) -> str:
    """
    Whether a file is a radiograph: by its extension, or DICOM by its content, whatever the extension.

    Returns:
        ``_RADIOGRAPH``; what else the file is that may hold one; "" for what holds none, such as a text.
    """
    extension = extension_of(entry.name)
    # asked before it is opened: a named pipe would wait for a writer for ever
    if not entry.is_file():
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
    return f"{content} of another extension" if content else _picture_or_archive(head, extension)


def _picture_or_archive(head: bytes, extension: str) -> str:
    """What a file is that may hold radiographs and that nothing here reads, "" for another file."""
    for signature, name in _OTHER_PICTURES.items():
        if head.startswith(signature):
            return f"{name} picture"
    content = identify_content(inflated_head(head))
    if content:
        return f"compressed {content}"
    if extension in _ARCHIVES:
        return "archive"
    return "unknown picture" if extension in _PICTURES else ""
