# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Dense prediction on radiographs with a pre-trained encoder: segmentation and landmark heat maps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from monai_afire.networks.blocks.feature_pyramid import (
    FeaturePyramid,
    MultiScaleNeck,
    PyramidPooling,
    resize_features,
)
from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.transfer_network import TransferNetwork


@keeps_arguments
class UPerNet(TransferNetwork):
    """
    UPerNet (Xiao et al., ECCV 2018) on a pre-trained encoder.

    Pyramid pooling gives the encoder's coarsest feature map the context of the whole image; a feature pyramid takes it
    down to the finest map and fuses all levels; a 1 x 1 convolution classifies, and its logits are interpolated
    linearly to the size of the image. The maps of a ViT, which all have the stride p of its patch, first become a
    pyramid of strides p/4, p/2, p and 2p (:class:`MultiScaleNeck`); those of a Swin are one already.

    The norms are group norms instead of the paper's batch norms: a batch of one image works in training too. There is
    no sigmoid or softmax at the end, so the outputs serve overlapping structures, exclusive classes and heat maps of
    landmarks, one per landmark.

    Args:
        encoder: used as it is, not copied; pre-trained weights come from ``load_encoder_weights``.
        num_classes: number of structures, classes or landmarks.
        channels: width of the head, at least 2; 512 in the paper, far less does for one kind of image.
        pool_sizes: elements per axis of the pooled grids.
        freeze_encoder: train all but the encoder, see :class:`TransferNetwork`.
        dropout_rate: dropout of whole channels before the classification.
        prior: probability (of a sigmoid) of each class everywhere before training, between 0 and 1. Of structures that
            take few pixels, a training from 0.5 spends its first hundreds of steps on the background alone. 0.5 is
            right where the outputs are no logits.

    Raises:
        TypeError: when the encoder is none, see :func:`monai_afire.networks.as_encoder`.
        ValueError: when there is no class, or the prior is not between 0 and 1.

    Example:
        >>> from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=2, num_heads=2)
        >>> UPerNet(encoder, num_classes=3, channels=16)(torch.rand(2, 1, 32, 32)).shape
        torch.Size([2, 3, 32, 32])
    """

    def __init__(
        self,
        encoder: nn.Module,
        num_classes: int,
        channels: int = 128,
        pool_sizes: Sequence[int] = (1, 2, 3, 6),
        freeze_encoder: bool = False,
        dropout_rate: float = 0.1,
        prior: float = 0.5,
    ) -> None:
        super().__init__(encoder, num_classes, freeze_encoder)
        if not 0 < prior < 1:
            raise ValueError(f"prior must be a probability between 0 and 1, got {prior}")
        widths, strides = self.encoder.feature_channels, self.encoder.feature_strides
        self.neck: MultiScaleNeck | None = None
        if len(widths) > 1 and len(set(strides)) == 1:
            self.neck = MultiScaleNeck(strides[0], widths)
            widths = self.neck.out_channels
        self.pooling = PyramidPooling(widths[-1], channels, pool_sizes)
        self.pyramid = FeaturePyramid(widths[:-1], channels)
        self.dropout = nn.Dropout2d(dropout_rate)
        self.classifier = nn.Conv2d(channels, num_classes, kernel_size=1)
        nn.init.trunc_normal_(self.classifier.weight, std=0.02)
        nn.init.constant_(self.classifier.get_parameter("bias"), math.log(prior / (1 - prior)))
        self.train()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Predict every pixel of images ``(B, C, H, W)`` in [0, 1]: logits ``(B, num_classes, H, W)``."""
        with self.encoder_gradient():
            maps = self.encoder.feature_maps(images)
        if self.neck is not None:
            maps = self.neck(maps)
        fused = self.pyramid([*maps[:-1], self.pooling(maps[-1])])
        return resize_features(self.classifier(self.dropout(fused)), self.encoder.img_size)
