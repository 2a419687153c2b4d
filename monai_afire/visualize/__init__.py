# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pictures during training: grids, colors of tokens."""

from __future__ import annotations

from monai_afire.visualize.figures import picture_grid
from monai_afire.visualize.token_colors import token_colors

__all__ = [
    "picture_grid",
    "token_colors",
]
