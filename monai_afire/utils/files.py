# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writing files so that a crash never leaves half of one."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from numpy.typing import NDArray
from PIL import Image


@contextmanager
def atomic_path(path: str | os.PathLike, flush: bool = True) -> Iterator[Path]:
    """
    Write to a temporary file beside ``path`` and put it in place when it is complete.

    The temporary file is flushed to disk and renamed on a clean exit, deleted on an exception: ``path`` holds either
    its old content or all of the new one, whenever the process or the machine dies.

    Args:
        path: the file to write; its folder is made if missing.
        flush: False spares the wait for the disk, for what can be made again: after a power cut the file may be cut.

    Yields:
        The temporary file's path.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "note.txt"
        >>> with atomic_path(target) as temporary:
        ...     _ = temporary.write_text("all of it")
        >>> target.read_text(), len(list(target.parent.iterdir()))
        ('all of it', 1)
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if flush:
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
        # mkstemp's files are private, others may want to read this one
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text by :func:`atomic_path`; names of files that are no valid text get question marks."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")


def save_png(pixels: NDArray, path: str | os.PathLike) -> None:
    """Write a picture as PNG; weak compression makes it a little larger and takes a third of the time."""
    with atomic_path(path) as temporary:
        Image.fromarray(pixels).save(temporary, format="PNG", compress_level=1)


def joined_path(path: str | os.PathLike | Sequence[str | os.PathLike]) -> Path:
    """A path, or the path of parts, as configs give it: ``["@output_dir", "picture.png"]``."""
    return Path(path) if isinstance(path, (str, os.PathLike)) else Path(*path)


def check_writable(
    folder: str | os.PathLike,
    *others: str | os.PathLike,
    needed_bytes: int = 0,
    option: str = "",
) -> Path:
    """
    Make sure that files can be written into a folder, before hours of work depend on it.

    A small file is really written and deleted. A quota below the free space is not seen.

    Args:
        folder: the folder; made if missing.
        others: further folders.
        needed_bytes: what is going to be written; more must be free.
        option: that names the folder, such as "--cache_dir", for the message; "" for an output folder.

    Returns:
        The first folder.

    Raises:
        OSError: when the folder cannot be made or written to, or the disk is too full; the message names it.

    Example:
        >>> import tempfile
        >>> check_writable(tempfile.mkdtemp()).is_dir()
        True
    """
    for other in others:
        check_writable(other, needed_bytes=needed_bytes, option=option)
    path = Path(folder)
    elsewhere = f"another folder by {option}" if option else "another output folder"
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".writable.") as file:
            file.write(bytes(4096))  # an empty file can be made on a full disk
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        remedy = f"free space, change its permissions or choose {elsewhere}"
        raise OSError(f"cannot write to {path}: {error.strerror or error}; {remedy}") from error
    disk = shutil.disk_usage(path)
    if disk.total and disk.free < needed_bytes:  # a total of 0: the file system does not know
        sizes = f"{disk.free / 1e6:,.0f} MB are free, about {needed_bytes / 1e6:,.0f} MB are going to be written"
        raise OSError(f"the disk of {path} is too full: {sizes}; free space or choose {elsewhere}")
    return path


def refuse_existing(
    *paths: str | os.PathLike,
    remedy: str = "choose another folder, or go on with that run by --resume True where it was stopped",
) -> None:
    """
    Refuse to write where another run has written, so that results of two runs are never mixed.

    Args:
        paths: of the results of a new run, files and folders.
        remedy: end of the message, what to do instead.

    Raises:
        FileExistsError: when one exists; the message names it.

    Example:
        >>> refuse_existing("no/such.csv")
    """
    found = next((path for path in map(Path, paths) if path.exists()), None)
    if found is not None:
        raise FileExistsError(f"{found} is of another run: {remedy}")


def is_safetensors(path: str | os.PathLike) -> bool:
    """Whether a file begins as those of safetensors do, whatever its name: the length of a header, then the header."""
    with Path(path).open("rb") as file:
        return file.read(9)[8:] == b"{"


def remove_leftovers(path: str | os.PathLike) -> None:
    """Delete the temporary files of :func:`atomic_path` that a killed process has left beside a path, or within it."""
    target = Path(path)
    within = target.rglob(".*.tmp") if target.is_dir() else ()
    for leftover in (*target.parent.glob(f".{glob.escape(target.name)}.*.tmp"), *within):
        leftover.unlink(missing_ok=True)


def path_from(path: str | os.PathLike, folder: str | os.PathLike) -> str:
    """
    Path as seen from a folder, with slashes; the absolute path from no folder (""), or on another drive of Windows.

    Example:
        >>> path_from("/data/images/a.png", "/data/lists")
        '../images/a.png'
    """
    try:
        name = os.path.relpath(path, folder) if folder else os.path.abspath(path)
    except ValueError:  # Windows has no way from one drive to another
        name = os.path.abspath(path)
    return name.replace(os.sep, "/")


def spelling_on_disk(path: str | os.PathLike) -> str:
    """
    Say how a file that does not exist is spelled on disk, if it is there in the spelling of another system.

    Windows separates folders by backslashes. macOS takes letters with accents apart (Unicode's form NFD), where most
    lists have them in one (NFC): both look the same in a message.

    Args:
        path: that leads to no file.

    Returns:
        What differs, "" where no file is there in another spelling either.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / unicodedata.normalize("NFD", "Müller.png")).write_text("")
        >>> spelling_on_disk(folder / "Müller.png")
        'on disk the name is spelled in another Unicode form (NFD, the list has NFC)'
    """
    name = os.fspath(path)
    if name.isascii() and "\\" not in name:
        return ""
    slashed = name.replace("\\", "/") if os.sep == "/" else name
    found = _of_another_form(slashed)
    if not found:
        return ""
    differences = []
    if slashed != name:
        differences.append("backslashes separate folders on Windows alone: write / instead")
    if found != slashed:
        form = "NFC" if unicodedata.is_normalized("NFC", slashed) else "NFD"
        other = "NFD" if form == "NFC" else "NFC"
        differences.append(
            f"on disk the name is spelled in another Unicode form ({other}, the list has {form})"
        )
    return "; ".join(differences)


def _of_another_form(path: str) -> str:
    """The path of what is on disk, whatever the Unicode form of each folder's and the file's name; "" for none."""
    if os.path.exists(path):
        return path
    folder, name = os.path.split(path)
    if not name or folder == path:
        return ""
    there = _of_another_form(folder) if folder else "."
    if not os.path.isdir(there):
        return ""
    names = _names_by_form(there, os.stat(there).st_mtime_ns)
    match = names.get(unicodedata.normalize("NFC", name))
    if match is None:
        return ""
    return os.path.join(there, match) if folder else match


@lru_cache(maxsize=8)  # a list may have very many names of another form in one folder
def _names_by_form(folder: str, changed: int) -> dict[str, str]:
    """Names in a folder by their NFC form, as of the time when it was changed."""
    return {unicodedata.normalize("NFC", name): name for name in os.listdir(folder)}


def common_folder(files: Iterable[str | os.PathLike]) -> str:
    """
    The deepest folder that holds all files; "" where there is none: for no files, or on two drives of Windows.

    Example:
        >>> common_folder(["/data/a/1.png", "/data/b/2.png"])
        '/data'
    """
    try:
        return os.path.commonpath([os.path.dirname(file) for file in files])
    except ValueError:
        return ""


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
