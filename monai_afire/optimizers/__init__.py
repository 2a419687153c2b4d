# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Parameter groups for the optimizers of PyTorch."""

from __future__ import annotations

from monai_afire.optimizers.parameter_groups import (
    layer_decay_groups,
    scaled_lr,
    weight_decay_groups,
)

__all__ = [
    "layer_decay_groups",
    "scaled_lr",
    "weight_decay_groups",
]
