# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Anatomy-driven self-supervised learning for radiographs (AFiRe, PEAC, ACE) in MONAI.

Importing the package loads its core, after which short names resolve as ``_target_`` in MONAI configs: MONAI finds
components in every loaded module whose name begins with "monai". Applications, :mod:`monai_afire.apps`, are loaded
when a config or a command names them.
"""

from __future__ import annotations

from monai_afire import (
    data,
    detection,
    engines,
    handlers,
    inferers,
    losses,
    metrics,
    networks,
    optimizers,
    transforms,
    utils,
    visualize,
)

__version__ = "1.0.0"

__all__ = [
    "data",
    "detection",
    "engines",
    "handlers",
    "inferers",
    "losses",
    "metrics",
    "networks",
    "optimizers",
    "transforms",
    "utils",
    "visualize",
]
