# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Inferers: how an engine runs the network on a batch."""

from __future__ import annotations

from monai_afire.inferers.autocast import AutocastInferer
from monai_afire.inferers.windows import WindowInferer, network_inferer

__all__ = ["AutocastInferer", "WindowInferer", "network_inferer"]
