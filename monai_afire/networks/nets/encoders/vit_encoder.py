# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Vision transformer encoder for radiographs: MONAI's ViT, tuned for self-supervised pre-training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from monai.networks.nets import ViT
from monai.utils import ensure_tuple_rep
from torch import nn

from monai_afire.networks.blocks.patches import grid_size
from monai_afire.networks.blocks.position_embedding import (
    resize_position_embedding,
    without_meshgrid_warning,
)
from monai_afire.networks.blocks.transformer import prepare_transformer_blocks, through_blocks
from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.encoders.radiograph_encoder import (
    GRAY_MEAN,
    GRAY_STD,
    NUM_FEATURE_MAPS,
    RadiographEncoder,
    spread_layers,
)


@keeps_arguments
class ViTEncoder(RadiographEncoder, ViT):
    """
    MONAI's ``ViT`` that takes images in [0, 1] and returns tokens.

    The network is MONAI's and its state dict keys are too, so weights load both ways. Differences: intensities are
    normalized inside (no caller can forget it), attention is fused, blocks start from Xavier-uniform weights,
    unused parameters are frozen, the defaults are ViT-B/16 with a fixed sine-cosine position embedding.

    Args:
        in_channels: C, channels of the images.
        img_size: spatial size in pixels; each axis a multiple of the patch.
        patch_size: edge length(s) of a patch in pixels.
        hidden_size: D, width of the tokens.
        mlp_dim: width of the MLP in each block; None for 4 D.
        num_layers: number of transformer blocks.
        num_heads: attention heads per block.
        pos_embed_type: "sincos", "learnable", "fourier" or "none", as in MONAI.
        qkv_bias: bias of the query/key/value projections.
        dropout_rate: dropout in the blocks.
        mean: mean intensity to subtract, one value or one per channel.
        std: standard deviation to divide by, one value or one per channel.
        norm_eps: eps of the layer norms, which no state dict keeps: 1e-5 in MONAI, 1e-6 in timm, 1e-12 in Hugging
            Face's ViT. ``load_encoder_weights`` sets the source's; a network built anew for its result needs it here.
        use_checkpoint: recompute the activations of each block in the backward pass: less memory, more time.

    Raises:
        ValueError: when an axis of the image is not a multiple of the patch.

    Example:
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=2, num_heads=2)
        >>> encoder(torch.rand(2, 1, 32, 32)).shape
        torch.Size([2, 4, 24])
        >>> [tuple(features.shape) for features in encoder.feature_maps(torch.rand(2, 1, 32, 32))]
        [(2, 24, 2, 2), (2, 24, 2, 2), (2, 24, 2, 2), (2, 24, 2, 2)]
    """

    def __init__(
        self,
        in_channels: int = 1,
        img_size: Sequence[int] | int = 224,
        patch_size: Sequence[int] | int = 16,
        hidden_size: int = 768,
        mlp_dim: int | None = None,
        num_layers: int = 12,
        num_heads: int = 12,
        pos_embed_type: str = "sincos",
        qkv_bias: bool = True,
        dropout_rate: float = 0.0,
        mean: Sequence[float] | float = GRAY_MEAN,
        std: Sequence[float] | float = GRAY_STD,
        norm_eps: float = 1e-5,
        use_checkpoint: bool = False,
    ) -> None:
        image_shape = ensure_tuple_rep(img_size, 2)
        patch_shape = ensure_tuple_rep(patch_size, 2)
        grid_size(image_shape, patch_shape)  # refuses what is not whole patches
        with without_meshgrid_warning():
            ViT.__init__(
                self,
                in_channels=in_channels,
                img_size=image_shape,
                patch_size=patch_shape,
                hidden_size=hidden_size,
                mlp_dim=4 * hidden_size if mlp_dim is None else mlp_dim,
                num_layers=num_layers,
                num_heads=num_heads,
                pos_embed_type=pos_embed_type,
                spatial_dims=2,
                dropout_rate=dropout_rate,
                qkv_bias=qkv_bias,
            )
        prepare_transformer_blocks(self.blocks)
        for layer in self.modules():
            if isinstance(layer, nn.LayerNorm):
                layer.eps = norm_eps
        self.use_checkpoint = use_checkpoint
        widths = [hidden_size] * NUM_FEATURE_MAPS
        super().__init__(in_channels, image_shape, patch_shape, hidden_size, mean, std, widths)

    def changed_arguments(self) -> dict[str, float]:
        """Arguments that differ since construction: loading weights sets the eps of their layer norms."""
        return {"norm_eps": self.norm.eps}

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Encode images ``(B, C, H, W)`` in [0, 1] to tokens ``(B, L, D)`` after the last layer norm."""
        self.check_images(images)
        return self._through_blocks(self.patch_embedding(self.normalize(images)))

    def visible_tokens(self, images: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """
        Encode some patches of the images alone, each at its place: the others cost nothing but their embedding.

        Args:
            images: ``(B, C, H, W)`` in [0, 1].
            visible: ``(B, K)`` int64, the row-major places of the patches to encode.

        Returns:
            ``(B, K, D)`` tokens after the last layer norm, in the order of ``visible``.
        """
        self.check_images(images)
        tokens = self.patch_embedding(self.normalize(images))
        return self._through_blocks(tokens.take_along_dim(visible.unsqueeze(-1), dim=1))

    def encode_any_size(self, images: torch.Tensor) -> torch.Tensor:
        """
        Encode images of another size, with the position embedding interpolated over their patches (bicubic).

        As in DINO, the embedding is stretched over the image whatever part of the whole it shows. For images of the
        encoder's own size this is :meth:`forward`.

        Args:
            images: ``(B, C, H, W)`` in [0, 1], each axis a multiple of the patch.

        Returns:
            ``(B, L', D)`` tokens after the last layer norm, L' in row-major order of the images' own grid.
        """
        if images.shape[2:] == self.img_size or images.shape[1:2] != (self.in_channels,):
            return self(images)
        grid = grid_size(images.shape[2:], self.patch_size)
        embedding = self.patch_embedding
        tokens = embedding.patch_embeddings(self.normalize(images)).flatten(2).transpose(1, 2)
        positions = resize_position_embedding(embedding.position_embeddings, self.grid_size, grid)
        return self._through_blocks(embedding.dropout(tokens + positions))

    def feature_maps(self, images: torch.Tensor) -> list[torch.Tensor]:
        r"""
        Encode images ``(B, C, H, W)`` in [0, 1], with the outputs of several blocks, for dense prediction.

        The blocks are four of the n, evenly spread and ending with the last one: :math:`\lceil k n / 4 \rceil - 1` for
        k = 1, ..., 4 (2, 5, 8 and 11 of 12; of fewer than four some come twice: 0, 1, 2 and 2 of three). The output of
        the last block passes the encoder's own last layer norm and so holds the tokens of :meth:`forward`; those of
        other blocks are normalized over their channels without parameters, as ``SwinEncoder`` does it.

        Returns:
            Four maps ``(B, D, *grid)``, all with the stride of the patch; ``UPerNet`` rescales them.
        """
        self.check_images(images)
        tokens = self.patch_embedding(self.normalize(images))
        layers = spread_layers(len(self.blocks))
        maps = {}
        for number, block in enumerate(self.blocks):
            tokens = through_blocks([block], tokens, self.use_checkpoint)
            if number in layers:
                maps[number] = F.layer_norm(tokens, tokens.shape[-1:], eps=self.norm.eps)
        maps[layers[-1]] = self.norm(tokens)
        return [self.to_map(maps[layer]) for layer in layers]

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """Those of the patch embedding (with the position embedding), then of every block."""
        return [list(layer.parameters()) for layer in (self.patch_embedding, *self.blocks)]

    def _through_blocks(self, tokens: torch.Tensor) -> torch.Tensor:
        """From embedded patches (B, L, D) to the tokens after the last layer norm."""
        return self.norm(through_blocks(self.blocks, tokens, self.use_checkpoint))
