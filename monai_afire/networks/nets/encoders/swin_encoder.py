# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Swin transformer encoder for radiographs, composed of the parts of MONAI's Swin transformer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from monai.networks.blocks import PatchEmbed
from monai.networks.nets.swin_unetr import BasicLayer, PatchMergingV2
from monai.utils import ensure_tuple_rep
from torch import nn

from monai_afire.networks.blocks.patches import grid_size
from monai_afire.networks.blocks.transformer import init_linear
from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.encoders.radiograph_encoder import (
    GRAY_MEAN,
    GRAY_STD,
    RadiographEncoder,
)


@keeps_arguments
class SwinEncoder(RadiographEncoder):
    r"""
    Swin transformer (Liu et al., ICCV 2021) that takes images in [0, 1] and returns tokens.

    The defaults are Swin-B at 448 x 448 pixels: 14 x 14 tokens of width 1024, each of 32 x 32 pixels. The stages are
    patch embedding, blocks of windowed attention and, *between* two stages only, a merge of 2 x 2 patches into one of
    twice the width; MONAI's ``SwinTransformer`` merges after its last stage too. Stage :math:`i` of
    :math:`0, \dots, n - 1` has width :math:`2^i E` and stride :math:`2^i p` for the embedding's width E and patch p.

    ``patch_size``, the attribute, is what a *token* covers: the embedding patch times :math:`2^{n - 1}`.

    Along an axis on which a stage has no more patches than ``window_size``, its window is the whole axis and is not
    shifted, as in timm; the table of relative positions then is smaller, so weights of such a stage belong to this
    image size. Where windows do not divide an axis, it is padded with zeros as in the original.

    Args:
        in_channels: C, channels of the images.
        img_size: spatial size in pixels; each axis a multiple of the attribute ``patch_size``.
        patch_size: edge length(s) of a patch of the embedding in pixels.
        window_size: patches per axis of an attention window.
        embed_dim: E, width of the first stage.
        depths: blocks per stage.
        num_heads: attention heads per stage.
        mlp_ratio: width of the MLP in each block over that of its tokens.
        qkv_bias: bias of the query/key/value projections.
        drop_path_rate: probability to skip a residual branch of the last block; rises linearly from 0 at the first.
        use_checkpoint: recompute activations in the backward pass: less memory, more time.
        mean: mean intensity to subtract, one value or one per channel.
        std: standard deviation to divide by, one value or one per channel.

    Raises:
        ValueError: when there are not as many heads as stages, or the image is no multiple of a token's pixels.

    Example:
        >>> encoder = SwinEncoder(img_size=64, patch_size=2, embed_dim=8, depths=(1, 2), num_heads=(2, 4))
        >>> encoder.patch_size, encoder.grid_size, encoder.hidden_size
        ((4, 4), (16, 16), 16)
        >>> images = torch.rand(3, 1, 64, 64)
        >>> encoder(images).shape
        torch.Size([3, 256, 16])
        >>> [tuple(stage.shape) for stage in encoder.feature_maps(images)]
        [(3, 8, 32, 32), (3, 16, 16, 16)]
    """

    def __init__(
        self,
        in_channels: int = 1,
        img_size: Sequence[int] | int = 448,
        patch_size: Sequence[int] | int = 4,
        window_size: Sequence[int] | int = 7,
        embed_dim: int = 128,
        depths: Sequence[int] = (2, 2, 18, 2),
        num_heads: Sequence[int] = (4, 8, 16, 32),
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        drop_path_rate: float = 0.0,
        use_checkpoint: bool = False,
        mean: Sequence[float] | float = GRAY_MEAN,
        std: Sequence[float] | float = GRAY_STD,
    ) -> None:
        image_shape = ensure_tuple_rep(img_size, 2)
        patch_shape = ensure_tuple_rep(patch_size, 2)
        windows = ensure_tuple_rep(window_size, 2)
        widths = [embed_dim * 2**stage for stage in range(len(depths))]
        token_shape = tuple(p * 2 ** (len(depths) - 1) for p in patch_shape)
        strides = [tuple(p * 2**stage for p in patch_shape) for stage in range(len(depths))]
        super().__init__(
            in_channels, image_shape, token_shape, widths[-1], mean, std, widths, strides
        )
        self.window_size = windows
        self.patch_embed = PatchEmbed(patch_shape, in_channels, embed_dim, nn.LayerNorm, 2)
        first_grid = grid_size(image_shape, patch_shape)
        rates = iter(np.linspace(0, drop_path_rate, sum(depths)).tolist())
        self.layers = nn.ModuleList()
        for stage, (depth, heads) in enumerate(zip(depths, num_heads, strict=True)):
            layer = BasicLayer(
                dim=widths[stage],
                depth=depth,
                num_heads=heads,
                window_size=_window_of_stage(stage, windows, first_grid),
                drop_path=list(islice(rates, depth)),
                mlp_ratio=mlp_ratio,
                qkv_bias=qkv_bias,
                use_checkpoint=use_checkpoint,
            )
            self.layers.append(layer)
        self.downsamples = nn.ModuleList(
            PatchMergingV2(width, spatial_dims=2) for width in widths[:-1]
        )
        self.norm = nn.LayerNorm(widths[-1])
        self.apply(init_linear)

    def feature_maps(self, images: torch.Tensor) -> list[torch.Tensor]:
        """
        Encode images ``(B, C, H, W)`` in [0, 1] at all scales, for dense prediction.

        Every map is layer-normalized over its channels, as MONAI's ``SwinTransformer`` does it; the last one, with the
        encoder's own last layer norm, holds the tokens of :meth:`forward`.

        Returns:
            One map ``(B, C_i, H_i, W_i)`` per stage, finest first: Swin-B has 128, 256, 512 and 1024 channels at
            strides 4, 8, 16 and 32.
        """
        *finer, last = self._stages(images)
        normalized = [F.layer_norm(stage, stage.shape[-1:]) for stage in finer]
        return [stage.movedim(-1, 1) for stage in (*normalized, self.norm(last))]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Encode images ``(B, C, H, W)`` in [0, 1] to tokens ``(B, L, D)`` after the last layer norm."""
        return self.norm(self._stages(images)[-1].flatten(1, -2))

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """Of the patch embedding, then of every block; a merge of patches is as deep as the block before it."""
        layers = [list(self.patch_embed.parameters())]
        for stage, layer in enumerate(self.layers):
            layers += [
                list(block.parameters()) for block in layer.get_submodule("blocks").children()
            ]
            layers[-1] += self.downsamples[stage : stage + 1].parameters()
        return layers

    def _stages(self, images: torch.Tensor) -> list[torch.Tensor]:
        """Outputs (B, H_i, W_i, C_i) of the stages, channels last and not normalized."""
        self.check_images(images)
        features = self.patch_embed(self.normalize(images))
        outputs: list[torch.Tensor] = []
        for stage, layer in enumerate(self.layers):
            if outputs:
                features = self.downsamples[stage - 1](outputs[-1]).movedim(-1, 1)
            outputs.append(layer(features).movedim(1, -1))
        return outputs


def _window_of_stage(
    stage: int, windows: Sequence[int], first_grid: Sequence[int]
) -> tuple[int, ...]:
    """
    Window cut to the grid of a stage.

    MONAI cuts it, too, but looks positions up in the table of the full window.
    """
    grid = (cells // 2**stage for cells in first_grid)
    return tuple(map(min, windows, grid))
