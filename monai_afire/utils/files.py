# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writing files so that a crash never leaves half of one."""

from __future__ import annotations

import glob
import os
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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


def check_writable(folder: str | os.PathLike, option: str = "") -> Path:
    """
    Make sure that files can be written into a folder, before hours of work depend on it.

    A small file is really written and deleted.

    Args:
        folder: the folder; made if missing.
        option: that names the folder, such as "--cache_dir", for the message; "" for an output folder.

    Returns:
        The folder.

    Raises:
        OSError: when the folder cannot be made or written to; the message names it.
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".writable.") as file:
            file.write(bytes(4096))  # an empty file can be made on a full disk
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        elsewhere = f"another folder by {option}" if option else "another output folder"
        remedy = f"free space, change its permissions or choose {elsewhere}"
        raise OSError(f"cannot write to {path}: {error.strerror or error}; {remedy}") from error
    return path


def refuse_existing(
    *paths: str | os.PathLike,
    remedy: str = "choose another folder, or go on with that run by --resume True where it was stopped",
) -> None:
    """Refuse to write where another run has written, with a FileExistsError: results of two runs are never mixed."""
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
    """Path as seen from a folder, with slashes; the absolute path from no folder (""), or another drive of Windows."""
    try:
        name = os.path.relpath(path, folder) if folder else os.path.abspath(path)
    except ValueError:  # Windows has no way from one drive to another
        name = os.path.abspath(path)
    return name.replace(os.sep, "/")


def spelling_on_disk(path: str | os.PathLike) -> str:
    """
    Say how a file that does not exist is spelled on disk, if it is there in the spelling of another system.

    Windows separates folders by backslashes. macOS takes letters with accents apart (Unicode's form NFD), where most
    lists have them in one (NFC): both look the same in a message. Returns "" where no file is there either.
    """
    name = os.fspath(path)
    slashed = name.replace("\\", "/") if os.sep == "/" else name
    if slashed != name and os.path.exists(slashed):
        return "backslashes separate folders on Windows alone: write / instead"
    for form in ("NFC", "NFD"):
        found = unicodedata.normalize(form, slashed)
        if found != slashed and os.path.exists(found):
            return f"on disk the name is spelled in another Unicode form ({form})"
    return ""


def common_folder(files: Iterable[str | os.PathLike]) -> str:
    """The deepest folder that holds all files; "" where there is none: for no files, or on two drives of Windows."""
    try:
        return os.path.commonpath([os.path.dirname(file) for file in files])
    except ValueError:
        return ""


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
