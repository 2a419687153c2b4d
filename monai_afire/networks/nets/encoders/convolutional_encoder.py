# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the encoders whose tokens are the last map of convolutions."""

from __future__ import annotations

from abc import abstractmethod

import torch

from monai_afire.networks.blocks.patches import grid_size
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder


class ConvolutionalEncoder(RadiographEncoder):
    """Base of the encoders whose tokens are the last map of convolutions, which take images of any size."""

    @abstractmethod
    def last_map(self, images: torch.Tensor) -> torch.Tensor:
        """The map whose pixels are the tokens: ``(B, C, *S)`` in [0, 1] to ``(B, D, *S')``."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """
        Encode images.

        Args:
            images: ``(B, C, *S)`` in [0, 1].

        Returns:
            ``(B, L, D)`` tokens, the last feature map in row-major order.

        Raises:
            ValueError: when channels or size differ from the encoder's.
        """
        self.check_images(images)
        return self.encode_any_size(images)

    def encode_any_size(self, images: torch.Tensor) -> torch.Tensor:
        """
        Encode images of another size: convolutions need no position embedding.

        Args:
            images: ``(B, C, *S)`` in [0, 1], each axis a multiple of the patch.

        Returns:
            ``(B, L', D)`` tokens in row-major order of the images' own grid.

        Raises:
            ValueError: when the channels differ from the encoder's, or an axis is not a multiple of the patch.
        """
        if images.shape[1] != self.in_channels:
            self.check_images(images)
        grid_size(images.shape[2:], self.patch_size)  # refuses what is not whole patches
        return self.last_map(images).flatten(2).transpose(1, 2)
