# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Readers of single radiograph files, one module per family of formats, and the scaling of intensities they share."""

from __future__ import annotations

from monai_afire.transforms.radiograph_io.common import (
    RadiographError,
    RadiographPixels,
    RadiographWarning,
    SizeLimits,
)
from monai_afire.transforms.radiograph_io.formats import (
    SUPPORTED_EXTENSIONS,
    extension_of,
    identify_content,
    supported_types,
)

__all__ = [
    "RadiographError",
    "RadiographPixels",
    "RadiographWarning",
    "SUPPORTED_EXTENSIONS",
    "SizeLimits",
    "extension_of",
    "identify_content",
    "supported_types",
]
