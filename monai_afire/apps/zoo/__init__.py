# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A bundle as MONAI's Model Zoo takes it, and as an archive."""

from __future__ import annotations

from monai_afire.apps.zoo.model_zoo import package_for_zoo, zoo_problems
from monai_afire.apps.zoo.packing import pack_bundle

__all__ = [
    "pack_bundle",
    "package_for_zoo",
    "zoo_problems",
]
