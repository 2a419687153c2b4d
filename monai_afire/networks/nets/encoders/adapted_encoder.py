# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the adapters: another library's backbone, with everything that this package asks of an encoder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from monai_afire.networks.nets.encoders.radiograph_encoder import (
    RadiographEncoder,
    normalized_but_last,
)
from monai_afire.utils.eval_mode import eval_mode

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class AdaptedEncoder(RadiographEncoder):
    """
    Base of the adapters: the library's network is ``model``, unchanged, and its parameters are the encoder's.

    Images come in [0, 1] with ``in_channels`` channels. Gray ones become the model's channels, and all are normalized
    with the statistics that the model was trained with, inside. What is compared with images, such as restored patches,
    stays gray, normalized with the mean of these statistics over the channels.

    Parameters that no token depends on (a pooler, a mask token, a classification head) are frozen: distributed training
    stops at parameters without a gradient.

    A subclass calls :meth:`adapt` at the end of its constructor and has :meth:`encode`, :meth:`encode_maps` and
    :meth:`blocks`.

    Args:
        model: the library's network.

    Attributes:
        unused: names of the model's parameters that no token depends on.
    """

    model: Any
    unused: frozenset[str]
    model_mean: torch.Tensor
    model_std: torch.Tensor

    def __init__(self, model: nn.Module) -> None:
        nn.Module.__init__(self)  # the interface follows from what the model gives for an image
        self.model = model

    def encode(self, pixels: torch.Tensor) -> torch.Tensor:
        """Tokens ``(B, L, D)`` in row-major order, from normalized images with the model's channels."""
        raise NotImplementedError

    def encode_maps(self, pixels: torch.Tensor) -> list[torch.Tensor]:
        """Feature maps ``(B, C_i, *S_i)``, finest first, the tokens of :meth:`encode` last."""
        raise NotImplementedError

    def blocks(self) -> list[nn.Module]:
        """The model's blocks in the order that an image passes them; empty where they are not known."""
        raise NotImplementedError

    def own_tensors(
        self, tensors: Mapping[str, torch.Tensor], file: str
    ) -> dict[str, torch.Tensor]:
        """Tensors of a file, which messages name, by the model's names; others may be among them."""
        return dict(tensors)

    def adapt(
        self,
        in_channels: int,
        model_channels: int,
        img_size: tuple[int, ...],
        mean: Sequence[float] | float,
        std: Sequence[float] | float,
    ) -> None:
        """
        Set the interface by what the model gives for an image of zeros, and freeze what it does not use.

        Args:
            in_channels: channels of the images.
            model_channels: channels that the model takes.
            img_size: spatial size of the images in pixels.
            mean: mean intensity, one value or one per channel of the model.
            std: standard deviation, one value or one per channel of the model.
        """
        if in_channels not in (1, model_channels):
            raise ValueError(
                f"the model takes images of {model_channels} channels, and in_channels is {in_channels}"
            )
        shape = (1, model_channels, *[1] * len(img_size))
        for name, values in (("model_mean", mean), ("model_std", std)):
            given = torch.as_tensor(values, dtype=torch.float32).flatten().expand(model_channels)
            self.register_buffer(name, given.clone().reshape(shape), persistent=False)
        device = next(self.model.parameters()).device
        probe = torch.zeros(1, model_channels, *img_size, device=device)
        with eval_mode(self.model):
            self._set_interface(in_channels, img_size, self._maps_of(probe))
            self.unused = self._without_effect(probe)
        for name in self.unused:
            self.model.get_parameter(name).requires_grad_(False)

    def _set_interface(
        self, in_channels: int, img_size: tuple[int, ...], maps: Sequence[torch.Tensor]
    ) -> None:
        """The constructor of the base, once there are the maps of an image."""
        mean, std = self.model_mean, self.model_std
        if in_channels == 1:
            mean, std = mean.mean(), std.mean()
        strides = [_stride(img_size, each.shape[2:]) for each in maps]
        super().__init__(
            in_channels,
            img_size,
            patch_size=strides[-1],
            hidden_size=maps[-1].shape[1],
            mean=mean.flatten().tolist(),
            std=std.flatten().tolist(),
            feature_channels=[each.shape[1] for each in maps],
            feature_strides=strides,
        )

    def _maps_of(self, probe: torch.Tensor) -> list[torch.Tensor]:
        """The maps that the model gives for an image."""
        try:
            with torch.no_grad():
                return self.encode_maps(probe)
        except Exception as error:  # every library has its own
            raise ValueError(
                f"{type(self.model).__name__} does not take images {tuple(probe.shape)} ({error}): give another size"
            ) from error

    def _without_effect(self, probe: torch.Tensor) -> frozenset[str]:
        """Names of the parameters that the tokens do not depend on; checks the tokens' shape."""
        named = {name: each for name, each in self.model.named_parameters() if each.requires_grad}
        with torch.enable_grad():
            tokens = self.encode(probe)
            if not named or not tokens.requires_grad:
                return frozenset()
            gradients = torch.autograd.grad(tokens.sum(), list(named.values()), allow_unused=True)
        if tokens.shape[1:] != (math.prod(self.grid_size), self.hidden_size):
            raise ValueError(
                f"tokens {tuple(tokens.shape)} are not one for each of {self.grid_size} patches"
            )
        return frozenset(name for name, each in zip(named, gradients, strict=True) if each is None)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Encode images ``(B, C, *S)`` in [0, 1] to the model's last tokens ``(B, L, D)``, those of patches alone."""
        return self.encode(self.pixels(images))

    def feature_maps(self, images: torch.Tensor) -> list[torch.Tensor]:
        """
        Encode images ``(B, C, *S)`` in [0, 1] to maps ``(B, C_i, *S_i)``, finest first.

        The last one holds the tokens of :meth:`forward`, the others are layer-normalized over their channels without
        parameters.
        """
        return normalized_but_last(self.encode_maps(self.pixels(images)))

    def pixels(self, images: torch.Tensor) -> torch.Tensor:
        """Images ``(B, C, *S)`` in [0, 1] as the model takes them: its channels, normalized."""
        self.check_images(images)
        return (images - self.model_mean) / self.model_std

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """
        The parameters in the order that an image passes them: those before the first block, then every block's.

        A merge of patches is as deep as the block before it. Parameters behind the last block are not among them.
        """
        blocks = self.blocks()
        if not blocks:
            raise NotImplementedError(
                f"the layers of {type(self.model).__name__} are not known: give layer_decay 1"
            )
        number = {id(each): k for k, block in enumerate(blocks, 1) for each in block.parameters()}
        layers: list[list[nn.Parameter]] = [[] for _ in range(len(blocks) + 1)]
        current = 0
        for parameter in self.model.parameters():  # in the order of registration
            current = number.get(id(parameter), current)
            if current < len(blocks) or id(parameter) in number:
                layers[current].append(parameter)
        return layers


def _stride(img_size: Sequence[int], map_size: Sequence[int]) -> tuple[int, ...]:
    if any(size % cells for size, cells in zip(img_size, map_size, strict=True)):
        raise ValueError(
            f"an image of {img_size} pixels gives a map of {tuple(map_size)}, which whole patches do not fill"
        )
    return tuple(size // cells for size, cells in zip(img_size, map_size, strict=True))
