# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Masked restoration: each token is restored from the others, so that a lesion cannot be copied through."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from monai_afire.networks.nets.afire import AFiRe


def complementary_masks(grid_size: Sequence[int]) -> torch.Tensor:
    """
    Masks ``(G, L)`` over a patch grid that hide every token exactly once, and no two neighbors together.

    Each mask hides every second token of every second row: four masks, fewer where an axis has one token.

    Example:
        >>> complementary_masks((2, 4)).int().tolist()[0]
        [1, 0, 1, 0, 0, 0, 0, 0]
    """
    # with NumPy, so that torch.export sees a constant instead of a number of masks that depends on data
    rows, columns = np.indices(tuple(grid_size)).reshape(2, -1) % 2
    group = 2 * rows + columns
    return torch.tensor((np.unique(group)[:, None] == group).tolist())


def restore_masked(tokens: torch.Tensor, network: AFiRe) -> torch.Tensor:
    """
    Restore every patch while its token is hidden behind its mask token, in G complementary passes of the decoder.

    What is hidden is the token, as in training: its neighbors' tokens have seen its pixels in the encoder.

    Args:
        tokens: ``(B, L, D)`` of ``network.encoder``.
        network: the pre-trained network.

    Returns:
        ``(B, L, P)`` patches in normalized intensity.
    """
    masks = complementary_masks(network.encoder.grid_size).to(tokens.device)
    batch, passes = tokens.shape[0], masks.shape[0]
    hidden = masks.unsqueeze(1).expand(-1, batch, -1).flatten(0, 1)  # (G B, L)
    restored = network.decoder(tokens.repeat(passes, 1, 1), hidden)
    # each token is taken from the one pass that hid it; where, not a product, keeps infinities out
    kept = torch.where(hidden.unsqueeze(-1), restored, 0)
    return kept.unflatten(0, (passes, batch)).sum(0)
