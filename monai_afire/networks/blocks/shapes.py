# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Check of what a trainer hands to a network."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def check_shapes(**expected: tuple[torch.Tensor, Sequence[int]]) -> None:
    """
    Refuse tensors of other shapes than a network's pass needs.

    Args:
        expected: tensor and shape by the name of the argument.

    Raises:
        ValueError: when a shape differs; the message names the argument.

    Example:
        >>> check_shapes(offset=(torch.zeros(2, 3), (2, 2)))
        Traceback (most recent call last):
        ValueError: offset must be (2, 2), got (2, 3): are the keys of prepare_batch in the order of the arguments?
    """
    for name, (value, shape) in expected.items():
        if tuple(value.shape) != tuple(shape):
            hint = "are the keys of prepare_batch in the order of the arguments?"
            raise ValueError(f"{name} must be {tuple(shape)}, got {tuple(value.shape)}: {hint}")
