# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The learning rate that fits a batch size."""

from __future__ import annotations

from monai_afire.utils.distributed import world_size

__all__ = ["scaled_lr"]

_REFERENCE_BATCH = 256


def scaled_lr(base: float, batch_size: int, accumulation_steps: int = 1) -> float:
    r"""
    Linear scaling rule: the learning rate grows with the global batch.

    .. math:: base \cdot batch\_size \cdot accumulation\_steps \cdot processes / 256

    Goyal et al., *Accurate, Large Minibatch SGD*, 2017.

    Args:
        base: learning rate for 256 images.
        batch_size: images per process and pass.
        accumulation_steps: passes per optimizer step.

    Returns:
        The learning rate for all processes of the run.

    Example:
        >>> scaled_lr(0.0005, 512)
        0.001
    """
    return base * batch_size * accumulation_steps * world_size() / _REFERENCE_BATCH
