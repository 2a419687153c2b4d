# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Federated learning: what MONAI's client lacks when it is several processes."""

from __future__ import annotations

from monai_afire.apps.federated.client import DistributedMonaiAlgo

__all__ = ["DistributedMonaiAlgo"]
