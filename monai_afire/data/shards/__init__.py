# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Shards: very many radiographs in few tar files, written by one command, read by the options of a folder or a list."""

from __future__ import annotations

__all__ = ()  # monai_afire.data exports what is public: datalists need the folders, and the writing needs datalists
