# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Common parts of an experiment's pre-trainings and fine-tunings: the error, names and fingerprints of files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

__all__ = ["ExperimentError", "config_argument", "file_digest"]


class ExperimentError(ValueError):
    """An experiment cannot be run as asked; the message says what was found and how to put it right."""


def config_argument(paths: Sequence[str]) -> str:
    """
    Write one or several configs as ``--config_file`` takes them.

    Example:
        >>> config_argument(["train.json"]), config_argument(["train.json", "paper.json"])
        ('train.json', '["train.json", "paper.json"]')
    """
    return paths[0] if len(paths) == 1 else json.dumps(list(paths))


def file_digest(path: str) -> str:
    """Digest of a file's content; it is read again when time or size say that it is another file."""
    status = Path(path).stat()
    return _digest_of(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _digest_of(path: str, modified: int, size: int) -> str:
    """Weights are large, and the same for many runs."""
    sha = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()
