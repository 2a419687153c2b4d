# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Residual network as an encoder of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from monai.networks.nets import ResNet
from monai.utils import ensure_tuple_rep
from torch import nn

from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.encoders.radiograph_encoder import (
    GRAY_MEAN,
    GRAY_STD,
    NUM_FEATURE_MAPS,
    ConvolutionalEncoder,
    normalized_but_last,
)

_SMALLEST_PATCH = 2 ** (NUM_FEATURE_MAPS - 1)  # every stage after the first halves the map
_GROUP_WIDTH = 8


@keeps_arguments
class ResidualEncoder(ConvolutionalEncoder):
    """
    MONAI's ``ResNet`` as an encoder: the last feature map is the grid of tokens, its four stages are the pyramid.

    Convolutions know that neighboring pixels belong together. With thousands of images rather than millions this is
    worth more than the attention of a ViT. The stem has group normalization (Wu and He, ECCV 2018), the blocks have
    batch normalization, since MONAI's ``ResNet`` gives its ``norm`` to the stem alone. So use batches of 16 or more.

    Args:
        in_channels: C, channels of the images.
        img_size: spatial size in pixels; each axis a multiple of the patch.
        patch_size: pixels per token: 8, 16 or 32. The stem has stride 1, 2, or 2 with a maximum pooling.
        hidden_size: D, channels of the last stage; the others have D / 2, D / 4 and D / 8. A multiple of 64.
        depths: residual blocks of each of the four stages; (2, 2, 2, 2) is ResNet-18.
        mean: mean intensity to subtract, one value or one per channel.
        std: standard deviation to divide by, one value or one per channel.

    Raises:
        ValueError: for another patch, a width that is no multiple of 64, or an axis of the image that is not a
            multiple of the patch.

    Example:
        >>> encoder = ResidualEncoder(img_size=64, patch_size=8, hidden_size=64, depths=(1, 1, 1, 1))
        >>> encoder(torch.rand(2, 1, 64, 64)).shape
        torch.Size([2, 64, 64])
        >>> [tuple(features.shape[1:]) for features in encoder.feature_maps(torch.rand(2, 1, 64, 64))]
        [(8, 64, 64), (16, 32, 32), (32, 16, 16), (64, 8, 8)]
    """

    def __init__(
        self,
        in_channels: int = 1,
        img_size: Sequence[int] | int = 224,
        patch_size: int = 32,
        hidden_size: int = 512,
        depths: Sequence[int] = (2, 2, 2, 2),
        mean: Sequence[float] | float = GRAY_MEAN,
        std: Sequence[float] | float = GRAY_STD,
    ) -> None:
        factors = [2**k for k in range(NUM_FEATURE_MAPS - 1, -1, -1)]
        patches = [_SMALLEST_PATCH * factor for factor in (1, 2, 4)]
        if patch_size not in patches:
            raise ValueError(
                f"patch_size must be one of {patches}, the strides of four stages, got {patch_size}"
            )
        if hidden_size < 1 or hidden_size % (_GROUP_WIDTH * factors[0]):
            raise ValueError(
                f"hidden_size must be a multiple of {_GROUP_WIDTH * factors[0]}, got {hidden_size}"
            )
        widths = [hidden_size // factor for factor in factors]
        strides = [ensure_tuple_rep(patch_size // factor, 2) for factor in factors]
        size = ensure_tuple_rep(img_size, 2)
        super().__init__(in_channels, size, strides[-1], hidden_size, mean, std, widths, strides)
        self.model = ResNet(
            block="basic",
            layers=list(depths),
            block_inplanes=widths,
            spatial_dims=2,
            n_input_channels=in_channels,
            conv1_t_size=7 if patch_size > _SMALLEST_PATCH else 3,
            conv1_t_stride=2 if patch_size > _SMALLEST_PATCH else 1,
            no_max_pool=patch_size < 4 * _SMALLEST_PATCH,
            feed_forward=False,
            bias_downsample=False,
            norm=("group", {"num_groups": widths[0] // _GROUP_WIDTH}),
        )

    def last_map(self, images: torch.Tensor) -> torch.Tensor:
        """The last stage's output."""
        return self._maps(images)[-1]

    def feature_maps(self, images: torch.Tensor) -> list[torch.Tensor]:
        """
        Encode images for dense prediction: the maps of the four stages, finest first.

        The last one holds the tokens of :meth:`forward`; the others are layer-normalized over their channels without
        parameters.
        """
        self.check_images(images)
        return normalized_but_last(self._maps(images))

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """Of the stem, then of every residual block."""
        stem = [*self.model.conv1.parameters(), *self.model.bn1.parameters()]
        return [stem, *(list(block.parameters()) for stage in self._stages() for block in stage)]

    def _stages(self) -> list[nn.Sequential]:
        model = self.model
        return [model.layer1, model.layer2, model.layer3, model.layer4]

    def _maps(self, images: torch.Tensor) -> list[torch.Tensor]:
        """The outputs of the four stages."""
        model = self.model
        values = model.act(model.bn1(model.conv1(self.normalize(images))))
        if not model.no_max_pool:
            values = model.maxpool(values)
        maps = []
        for stage in self._stages():
            values = stage(values)
            maps.append(values)
        return maps
