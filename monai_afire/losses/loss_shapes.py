# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Check of the shapes that a loss is called with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def check_shapes(hint: str = "", **expected: tuple[Tensor, str]) -> None:
    """
    Refuse tensors whose shapes do not fit together, which PyTorch would broadcast to a wrong number.

    Args:
        hint: remedy, for the message.
        expected: by name, a tensor and its axes, such as ``(q, "B, L, K")``. The same letter is the same size in all
            tensors. One name with a star stands for one or more axes.
    """
    sizes: dict[str, object] = {}
    if all(_fits(tensor.shape, axes.split(", "), sizes) for tensor, axes in expected.values()):
        return
    wanted = _listed([f"{name} ({axes})" for name, (_, axes) in expected.items()])
    found = _listed([str(tuple(tensor.shape)) for tensor, _ in expected.values()])
    raise ValueError(f"expected {wanted}, got {found}" + (f": {hint}" if hint else ""))


def _fits(shape: torch.Size, axes: Sequence[str], sizes: dict[str, object]) -> bool:
    """Whether a shape has these axes, with the sizes that are known; notes those that are new."""
    found: list[object] = list(shape)
    for place, name in enumerate(axes):
        if name.startswith("*"):
            end = place + 1 + max(0, len(shape) - len(axes))
            found = [*shape[:place], shape[place:end], *shape[end:]]
    if len(shape) < len(axes) or len(found) != len(axes):
        return False
    return all(size == sizes.setdefault(name, size) for name, size in zip(axes, found, strict=True))


def _listed(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
