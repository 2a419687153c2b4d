# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Shards: very many radiographs in few tar files, written by one command, read by the options of a folder or a list."""

from __future__ import annotations

from monai_afire.data.shards.verifying import verify_shards
from monai_afire.data.shards.writing import write_shards

__all__ = [
    "verify_shards",
    "write_shards",
]
