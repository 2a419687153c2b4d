# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""How an engine runs a network."""

from __future__ import annotations

from monai_afire.inferers.autocast import AutocastInferer

__all__ = [
    "AutocastInferer",
]
