# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Figures of merit."""

from __future__ import annotations

from monai_afire.metrics.pretraining import (
    afire_metrics,
    position_accuracy,
    prototype_entropy,
    prototype_information,
    restoration_gain,
)

__all__ = ["afire_metrics", "position_accuracy", "prototype_entropy", "prototype_information", "restoration_gain"]
