# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Colors of tokens by their principal components."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

_SHARE_OUTSIDE = 0.02


@torch.no_grad()
def token_colors(tokens: torch.Tensor) -> NDArray[np.float64]:
    """
    Color tokens by their first three principal components: tokens of one color are alike.

    The components are those of all given tokens together, so that colors compare across images. Each component becomes
    one of red, green and blue, from its 2nd to its 98th percentile; its sign is that of its largest entry.

    Args:
        tokens: ``(..., D)``, two or more of them.

    Returns:
        ``(..., 3)`` in [0, 1]; 0.5 where all tokens are the same.

    Example:
        >>> token_colors(torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]))[:, 0].round(2).tolist()
        [1.0, 1.0, 0.0]
    """
    rows = tokens.detach().flatten(0, -2).double().cpu()
    centered = rows - rows.mean(0)
    _, axes = torch.linalg.eigh(centered.T @ centered)
    axes = axes.flip(1)[:, :3]
    signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    values = (centered @ (axes * signs)).numpy()
    values = np.pad(values, ((0, 0), (0, 3 - values.shape[1])))
    low, high = np.quantile(values, [_SHARE_OUTSIDE, 1 - _SHARE_OUTSIDE], axis=0)
    spread = high - low
    visible = spread > 1e-9 * max(float(rows.abs().max()), 1e-9)
    scaled = np.where(visible, (values - low) / np.where(visible, spread, 1), 0.5)
    return scaled.clip(0, 1).reshape(*tokens.shape[:-1], 3)
