# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Engines: preparation of batches for MONAI's trainers."""

from __future__ import annotations

from monai_afire.engines.augmented_batch import PrepareBatchAugmented
from monai_afire.engines.prepare_batch import PrepareBatchKeys, PrepareBatchLesions

__all__ = [
    "PrepareBatchAugmented",
    "PrepareBatchKeys",
    "PrepareBatchLesions",
]
