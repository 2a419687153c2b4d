# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Caches of prepared items, in memory and on disk."""

from __future__ import annotations

from monai_afire.data.cache.cached_dataset import cached_dataset
from monai_afire.data.cache.disk_cache import DiskCachedDataset

__all__ = ["DiskCachedDataset", "cached_dataset"]
