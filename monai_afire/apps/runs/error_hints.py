# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Hints on faults of the machine (memory, disk, files): what to do about them."""

from __future__ import annotations

import errno
import re

_SHARED_MEMORY = (
    "the loader processes ran out of shared memory (/dev/shm). In Docker start the container with --shm-size 8g or "
    "--ipc=host, in Kubernetes mount an emptyDir of medium Memory at /dev/shm; or use fewer or no loader processes "
    "(--num_workers 0)."
)
_WORKER_KILLED = (
    "the operating system has ended a loader process, nearly always because the memory was used up (dmesg or the "
    "cluster's log says so). Ask for more memory, use fewer loader processes (--num_workers), keep fewer images in "
    "memory (--cache none) or make the batch smaller (--batch_size). Then go on with --resume True."
)
_DISK_FULL = (
    "the disk is full or a quota is used up: free space or choose another folder (--output_dir; in training also "
    "--ckpt_dir). What was complete before is untouched: the same command with --resume True goes on from there."
)
_NO_COMPILER = (
    "--train::trainer::compile True builds code while training, and found no compiler to do so: install g++ (in a "
    "container, build-essential; another one is named by the environment variable CXX) and, for a GPU, PyTorch's "
    "triton; or train without --train::trainer::compile."
)
_REMEDIES = (
    (
        r"No working C\+\+ compiler|working triton installation|Failed to find C compiler",
        _NO_COMPILER,
    ),
    (r"shared memory|worker.*Bus error|/dev/shm", _SHARED_MEMORY),
    (r"worker.*(is killed by signal|exited unexpectedly)", _WORKER_KILLED),
)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def hint_for(error: BaseException) -> str | None:
    """Say what to do about an error that comes from the machine: a loader process killed, a full disk, no compiler."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno in _FULL:
            return _DISK_FULL
        for pattern, remedy in _REMEDIES:
            if isinstance(found, (RuntimeError, OSError)) and re.search(pattern, str(found)):
                return remedy
        found = found.__cause__ or found.__context__
    return None
