# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Check of the shapes that a loss is called with."""

from __future__ import annotations

from torch import Tensor


def check_shapes(hint: str = "", **expected: tuple[Tensor, str]) -> None:
    """
    Refuse tensors whose shapes do not fit together, which PyTorch would broadcast to a wrong number.

    Args:
        hint: remedy, for the message.
        expected: by name, a tensor and its axes, such as ``(q, "B, L, K")``. The same letter is the same size in all.
    """
    sizes: dict[str, int] = {}
    for tensor, axes in expected.values():
        letters, shape = axes.split(", "), list(tensor.shape)
        known = [sizes.setdefault(*axis) for axis in zip(letters, shape, strict=False)]
        if len(letters) != len(shape) or known != shape:
            wanted = ", ".join(f"{name} ({axes})" for name, (_, axes) in expected.items())
            found = ", ".join(str(tuple(each.shape)) for each, _ in expected.values())
            raise ValueError(f"expected {wanted}, got {found}" + (f": {hint}" if hint else ""))
