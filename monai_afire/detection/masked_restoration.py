# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Masked restoration: each token is restored from the others, so that a lesion cannot be copied through."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from monai.inferers import Inferer

from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.afire import AFiRe


def complementary_masks(grid_size: Sequence[int], stride: int = 2, block: int = 1) -> torch.Tensor:
    """
    Masks ``(G, L)`` over a patch grid that hide every token exactly once, far apart from each other.

    Each pass hides one block of tokens out of ``stride`` along each axis, like one color of a chessboard.

    Args:
        grid_size: patches along each axis.
        stride: distance of the hidden blocks in blocks; there are at most ``stride ** 2`` masks.
        block: tokens per axis that are hidden together; larger lesions want larger blocks.

    Raises:
        ValueError: when one mask would hide everything.

    Example:
        >>> complementary_masks((2, 4)).int().sum(0).tolist(), complementary_masks((2, 4)).shape
        ([1, 1, 1, 1, 1, 1, 1, 1], torch.Size([4, 8]))
    """
    # with NumPy, so that torch.export sees a constant instead of a number of masks that depends on data
    phases = np.indices(tuple(grid_size)).reshape(len(grid_size), -1) // block % stride
    group = np.ravel_multi_index(tuple(phases), (stride,) * len(grid_size))
    masks = torch.tensor((np.unique(group)[:, None] == group).tolist())
    if len(masks) < 2 and math.prod(grid_size) > 1:
        grid = f"all {math.prod(grid_size)} tokens of the grid {tuple(grid_size)}"
        raise ValueError(f"stride {stride} and block {block} hide {grid} at once: take stride 2")
    return masks


@keeps_arguments
class MaskedRestorationInferer(Inferer):
    """
    Restore an image with every token hidden behind its mask token once, in G complementary passes of the decoder.

    The encoder runs once; the G passes of the decoder are one batch. What is hidden is the token, as in training: its
    neighbors' tokens have seen its pixels in the encoder.

    Args:
        stride: see :func:`complementary_masks`.
        block: see :func:`complementary_masks`.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = AFiRe(encoder, num_clusters=8, head_dim=16, decoder_dim=16, decoder_layers=1, decoder_heads=2)
        >>> MaskedRestorationInferer()(torch.rand(2, 1, 32, 32), network).shape
        torch.Size([2, 1, 32, 32])
    """

    def __init__(self, stride: int = 2, block: int = 1) -> None:
        super().__init__()
        self.stride = stride
        self.block = block

    def __call__(self, inputs: torch.Tensor, network: AFiRe) -> torch.Tensor:  # type: ignore[override]
        """Restore images ``(B, C, H, W)`` in [0, 1] with a pre-trained network."""
        patches = self.restore_patches(network.encoder(inputs), network)
        return network.encoder.to_images(patches)

    def restore_patches(self, tokens: torch.Tensor, network: AFiRe) -> torch.Tensor:
        """The same from the tokens ``(B, L, D)`` of ``network.encoder``: patches ``(B, L, P)``, normalized."""
        masks = complementary_masks(network.encoder.grid_size, self.stride, self.block).to(
            tokens.device
        )
        batch, passes = tokens.shape[0], masks.shape[0]
        hidden = masks.unsqueeze(1).expand(-1, batch, -1).flatten(0, 1)  # (G B, L)
        restored = network.decoder(tokens.repeat(passes, 1, 1), hidden)
        # each token is taken from the one pass that hid it; where, not a product, keeps infinities out
        kept = torch.where(hidden.unsqueeze(-1), restored, 0)
        return kept.unflatten(0, (passes, batch)).sum(0)
