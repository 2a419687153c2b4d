# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writing files so that a crash never leaves half of one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["atomic_path", "check_writable"]


@contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[Path]:
    """
    Write to a temporary file beside ``path`` and put it in place when it is complete.

    The temporary file is flushed to disk and renamed on a clean exit, deleted on an exception: ``path`` holds either
    its old content or all of the new one, whenever the process or the machine dies.

    Args:
        path: the file to write; its folder is made if missing.

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
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp's files are private, others may want to read this one
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(folder: str | os.PathLike) -> Path:
    """
    Make sure that files can be written into a folder, before hours of work depend on it.

    Args:
        folder: the folder; made if missing.

    Returns:
        The folder.

    Raises:
        OSError: when the folder cannot be made or written to; the message names it.

    Example:
        >>> import tempfile
        >>> check_writable(tempfile.mkdtemp()).is_dir()
        True
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".writable."):
            pass
    except OSError as error:
        raise OSError(
            f"cannot write to {path}: {error.strerror or error}; free space, change its permissions or choose another "
            "output folder"
        ) from error
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
