# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Anatomy-driven self-supervised learning for radiographs (AFiRe, PEAC, ACE) in MONAI.

Importing the package loads all its components, after which their short names resolve as ``_target_`` in MONAI configs:
MONAI finds components in every loaded module whose name begins with "monai".
"""

from __future__ import annotations

from monai_afire import (
    analysis,
    anomaly,
    data,
    engines,
    handlers,
    inferers,
    losses,
    metrics,
    networks,
    optimizers,
    options,
    transforms,
    utils,
    visualize,
)

__version__ = "1.0.0"

__all__ = [
    "analysis",
    "anomaly",
    "data",
    "engines",
    "handlers",
    "inferers",
    "losses",
    "metrics",
    "networks",
    "optimizers",
    "options",
    "transforms",
    "utils",
    "visualize",
]
