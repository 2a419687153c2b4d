# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Volumes larger than the network's input, covered by windows of its size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from monai.inferers import SlidingWindowInferer
from monai.utils import ensure_tuple_rep

from monai_afire.inferers.autocast import AutocastInferer


class WindowInferer(AutocastInferer):
    """
    Run the network on overlapping windows of an image, by MONAI's ``SlidingWindowInferer``, under autocast.

    Where windows overlap, their outputs are averaged with Gaussian weights: the middle of a window, which sees most of
    its surroundings, counts most. An image of the window's size gives exactly the output of the network.

    Args:
        size: sides of a window, those of the network's input.
        overlap: share of a window's side that the next one covers, too, in [0, 1).
        batch_size: windows in one pass.
        enabled, dtype: as for :class:`AutocastInferer`.

    Raises:
        ValueError: for an overlap out of range; when called, for an image smaller than a window, or of other axes.

    Example:
        >>> inferer = WindowInferer((4, 4, 4), overlap=0.5, enabled=False)
        >>> inferer(torch.ones(1, 1, 4, 7, 9), lambda window: 2 * window).unique()
        tensor([2.])
    """

    def __init__(
        self,
        size: Sequence[int],
        overlap: float = 0.25,
        batch_size: int = 1,
        enabled: bool = True,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        super().__init__(enabled, dtype)
        if not 0 <= overlap < 1:
            raise ValueError(f"overlap must be in [0, 1), got {overlap}")
        self.size = tuple(size)
        self.windows = SlidingWindowInferer(self.size, batch_size, overlap, mode="gaussian")

    def __call__(self, inputs: torch.Tensor, network: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``network(window, *args, **kwargs)`` on windows of ``inputs`` ``(B, C, *S)``; their joined output."""
        shape = tuple(inputs.shape[2:])
        if len(shape) != len(self.size) or any(side < least for side, least in zip(shape, self.size, strict=True)):
            found = f"windows of {self.size} need images (B, C, *S) at least as large, got {tuple(inputs.shape)}"
            raise ValueError(f"{found}: pad them (fit_images with cover=True does)")
        on_window = super().__call__
        if shape == self.size:  # weights would round, even those of one window
            return on_window(inputs, network, *args, **kwargs)
        return self.windows(inputs, lambda window: on_window(window, network, *args, **kwargs))


def network_inferer(
    enabled: bool = True,
    cover: bool = False,
    size: int | Sequence[int] = 0,
    spatial_dims: int = 3,
    overlap: float = 0.25,
    batch_size: int = 1,
) -> AutocastInferer:
    """
    The inferer of a bundle: the whole input at once, or by windows.

    Args:
        enabled: as for :class:`AutocastInferer`.
        cover: whether images may be larger than the network's input, see :class:`WindowInferer`.
        size: side of the network's input, one for all axes or one for each.
        spatial_dims: number of axes.
        overlap: of the windows.
        batch_size: windows in one pass.

    Example:
        >>> network_inferer(cover=True, size=48).size, type(network_inferer()).__name__
        ((48, 48, 48), 'AutocastInferer')
    """
    if not cover:
        return AutocastInferer(enabled)
    return WindowInferer(ensure_tuple_rep(size, spatial_dims), overlap, batch_size, enabled)
