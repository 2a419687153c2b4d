# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lock of a folder, so that one run at a time writes into it."""

from __future__ import annotations

import errno
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"

_BETWEEN_TRIES = 0.5  # seconds

# seconds for which a run that torchrun may have started again waits for the lock of a machine that is gone: a network
# drive gives it back after its lease, of 90 s on most
_LAUNCHER_PATIENCE = 120.0

logger = logging.getLogger(__name__)

_held: dict[Path, int] = {}  # folders that this process holds -> how often


@contextmanager
def folder_lock(folder: str | os.PathLike, patience: float = 0.0) -> Iterator[None]:
    """
    Keep other processes from writing into a folder that exists, for as long as the context lasts.

    The operating system holds the lock, not the file: that of a process that was killed is gone with it, whatever is
    left in the folder. Within one process a folder may be locked again. On Windows, and on network drives without
    locks, nothing is locked; for the latter there is a warning.

    Args:
        folder: the folder.
        patience: seconds to wait for another process to end.

    Raises:
        RuntimeError: when another process holds it, still; the message names folder and process.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with folder_lock(folder):
        ...     [path.name for path in folder.iterdir()]
        ['.lock']
        >>> list(folder.iterdir())
        []
    """
    path = Path(folder).resolve() / LOCK_FILE
    handle = None if fcntl is None or path in _held else _acquire(path, time.monotonic() + patience)
    _held[path] = _held.get(path, 0) + 1
    try:
        yield
    finally:
        _held[path] -= 1
        if not _held[path]:
            del _held[path]
        if handle is not None:
            # before the lock is given back: the next process makes a file of its own
            path.unlink(missing_ok=True)
            os.close(handle)


def launcher_patience(resume: bool) -> float:
    """Seconds for which a run waits for a folder: none, unless torchrun may have started it again."""
    return _LAUNCHER_PATIENCE if resume and "TORCHELASTIC_RUN_ID" in os.environ else 0.0


def _acquire(path: Path, deadline: float) -> int | None:
    """The locked file, None where the file system has no locks."""
    has_warned = False
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            # a lock of the process (POSIX): children that are forked, such as a loader's, do not keep it alive
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.read(handle, 200).decode(errors="replace").strip() or "another process"
            os.close(handle)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                path.unlink(missing_ok=True)
                found = f"{path.parent} cannot be locked ({error.strerror})"
                logger.warning(f"{found}: see that no other run writes into it")
                return None
            if time.monotonic() >= deadline:
                raise _held_by(owner, path.parent) from None
            if not has_warned:
                logger.warning(f"waiting for another run to leave {path.parent} ({owner})")
            has_warned = True
            time.sleep(_BETWEEN_TRIES)
            continue
        if _is_at(path, handle):
            _sign(handle)
            return handle
        os.close(handle)  # its last owner has deleted it meanwhile


def _held_by(owner: str, folder: Path) -> RuntimeError:
    remedy = "wait for its end, or choose other folders (--output_dir, in training also --ckpt_dir)"
    return RuntimeError(f"another run is writing into {folder} ({owner}): {remedy}")


def _sign(handle: int) -> None:
    """Write into the file of a lock whose it is."""
    place = f"process {os.getpid()} on {socket.gethostname()}"
    os.truncate(handle, 0)
    os.write(handle, f"{place} since {time.strftime('%F %T')}\n".encode())


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
