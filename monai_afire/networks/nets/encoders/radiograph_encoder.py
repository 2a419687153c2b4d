# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the encoders: images in [0, 1] in, tokens of a known grid or maps of known scales out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from monai_afire.networks.blocks.patches import grid_size, patchify, unpatchify

# mean and standard deviation of ImageNet's photographs in gray, the paper's choice
GRAY_MEAN = 0.449
GRAY_STD = 0.226

# as many as a Swin has stages: what networks for dense prediction are made for
NUM_FEATURE_MAPS = 4


def spread_layers(count: int) -> list[int]:
    """Which of a transformer's blocks give feature maps: four, evenly spread and ending with the last."""
    return [-(-k * count // NUM_FEATURE_MAPS) - 1 for k in range(1, NUM_FEATURE_MAPS + 1)]


def normalized_but_last(maps: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Maps ``(B, C_i, H_i, W_i)``, layer-normalized over their channels without parameters, but for the last."""
    *others, last = maps
    normalized = [F.layer_norm(each.movedim(1, -1), each.shape[1:2]) for each in others]
    return [*(each.movedim(-1, 1) for each in normalized), last]


class RadiographEncoder(nn.Module):
    """
    Base of the encoders: the geometry of their tokens, and the normalization of intensities inside.

    Networks that take "an encoder" rely on what is listed here and on ``encoder(images)``, which turns images
    ``(B, C, H, W)`` in [0, 1] into tokens ``(B, L, D)``, L in row-major order of the grid, and refuses images of other
    channels or another size with a ValueError. Networks for dense prediction rely on :meth:`feature_maps`, whose
    channels and strides are known without running it. No parameter and no entry of the state dict comes from this
    class.

    A subclass has a ``forward``. If it has more to offer than its tokens it overrides :meth:`feature_maps`,
    :meth:`parameters_by_depth` for fine-tuning with one learning rate per layer, and :meth:`encode_any_size`. Encoders
    of other libraries have adapters, see :func:`monai_afire.networks.as_encoder`.

    Args:
        in_channels: C, channels of the images.
        img_size: rows and columns of the images in pixels, multiples of the patch.
        patch_size: pixels per token along each axis.
        hidden_size: D, width of the tokens.
        mean: mean intensity to subtract, one value or one per channel.
        std: standard deviation to divide by, one value or one per channel.
        feature_channels: channels of each feature map, finest map first; None for one map, the tokens.
        feature_strides: pixels per element of each feature map along each axis; None for the patch each.

    Attributes:
        grid_size: tokens along each axis; their product is L.

    Raises:
        ValueError: when the image is no multiple of the patch.

    Example:
        >>> class MeanEncoder(RadiographEncoder):
        ...     def __init__(self):
        ...         super().__init__(1, (32, 32), (8, 8), hidden_size=1, mean=0.5, std=0.25)
        ...     def forward(self, images):
        ...         return self.to_patches(images).mean(-1, keepdim=True)
        >>> MeanEncoder()(torch.rand(2, 1, 32, 32)).shape
        torch.Size([2, 16, 1])
    """

    in_channels: int
    img_size: tuple[int, ...]
    patch_size: tuple[int, ...]
    grid_size: tuple[int, ...]
    hidden_size: int
    feature_channels: tuple[int, ...]
    feature_strides: tuple[tuple[int, ...], ...]
    mean: torch.Tensor
    std: torch.Tensor

    def __init__(
        self,
        in_channels: int,
        img_size: tuple[int, ...],
        patch_size: tuple[int, ...],
        hidden_size: int,
        mean: Sequence[float] | float,
        std: Sequence[float] | float,
        feature_channels: Sequence[int] | None = None,
        feature_strides: Sequence[tuple[int, ...]] | None = None,
    ) -> None:
        # a subclass of another network, or around one, has built it before
        if "_modules" not in self.__dict__:
            super().__init__()
        self.in_channels = in_channels
        self.img_size = img_size
        self.patch_size = patch_size
        self.grid_size = grid_size(img_size, patch_size)
        self.hidden_size = hidden_size
        self.feature_channels = tuple(feature_channels or (hidden_size,))
        self.feature_strides = tuple(feature_strides or [patch_size] * len(self.feature_channels))
        for name, value in (("mean", mean), ("std", std)):
            statistic = torch.as_tensor(value, dtype=torch.float32).reshape(1, -1, 1, 1)
            # not in the state dict, which stays that of the network that the encoder is built on
            self.register_buffer(name, statistic, persistent=False)

    def normalize(self, images: torch.Tensor) -> torch.Tensor:
        """Normalize images ``(B, C, H, W)`` in [0, 1] to mean 0 and standard deviation 1 of the reference data."""
        return (images - self.mean) / self.std

    def denormalize(self, images: torch.Tensor) -> torch.Tensor:
        """Undo :meth:`normalize`, clipped to the valid range [0, 1]."""
        return (images * self.std + self.mean).clamp(0, 1)

    def to_patches(self, images: torch.Tensor) -> torch.Tensor:
        """Patches ``(B, L, P)`` of images ``(B, C, H, W)`` in [0, 1], in normalized intensity, to be restored."""
        return patchify(self.normalize(images), self.patch_size)

    def to_images(self, patches: torch.Tensor) -> torch.Tensor:
        """Undo :meth:`to_patches`: images ``(B, C, H, W)`` in [0, 1] of patches ``(B, L, P)``."""
        return self.denormalize(unpatchify(patches, self.grid_size, self.patch_size))

    def to_map(self, tokens: torch.Tensor) -> torch.Tensor:
        """Put tokens ``(B, L, D)`` on their grid: ``(B, D, *grid_size)``."""
        return tokens.transpose(1, 2).unflatten(2, self.grid_size)

    def feature_maps(self, images: torch.Tensor) -> list[torch.Tensor]:
        """
        Encode images ``(B, C, H, W)`` in [0, 1] for dense prediction.

        Returns:
            Maps ``(B, C_i, H_i, W_i)``, finest first, of ``feature_channels`` and ``feature_strides``. Here, for
            encoders that offer no more, one map: the tokens on their grid.
        """
        return [self.to_map(self(images))]

    def encode_any_size(self, images: torch.Tensor) -> torch.Tensor:
        """
        Encode images of another size than the encoder's own, for crops.

        Returns:
            Tokens ``(B, L', D)`` of as many patches as there are in the images.

        Raises:
            NotImplementedError: when the encoder takes images of its own size only.
        """
        found = f"images of {self.img_size} pixels only, but has got {tuple(images.shape)}"
        remedy = "do without crops of another size (num_local 0), or take a ViTEncoder"
        raise NotImplementedError(f"{type(self).__name__} encodes {found}: {remedy}")

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """
        The parameters in the order that an image passes them, for a learning rate that falls with the depth.

        Those of the patch embedding come first, those of the last block last. What comes after the last block (its
        norm) is not among them.
        """
        raise NotImplementedError(f"{type(self).__name__} lacks parameters_by_depth()")

    def check_images(self, images: torch.Tensor) -> None:
        """Refuse images that the encoder was not built for with a ValueError."""
        if images.shape[1:] != (self.in_channels, *self.img_size):
            wanted = f"(B, {self.in_channels}, {', '.join(map(str, self.img_size))})"
            raise ValueError(
                f"this encoder takes images {wanted}, got {tuple(images.shape)}: resize the images"
            )


class ConvolutionalEncoder(RadiographEncoder):
    """Base of the encoders whose tokens are the last map of convolutions, which take images of any size."""

    def last_map(self, images: torch.Tensor) -> torch.Tensor:
        """The map whose pixels are the tokens: ``(B, C, H, W)`` in [0, 1] to ``(B, D, H', W')``."""
        raise NotImplementedError

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Encode images ``(B, C, H, W)`` in [0, 1] to tokens ``(B, L, D)``, the last map in row-major order."""
        self.check_images(images)
        return self.encode_any_size(images)

    def encode_any_size(self, images: torch.Tensor) -> torch.Tensor:
        """Encode images of another size, whole patches along each axis: convolutions need no position embedding."""
        grid_size(images.shape[2:], self.patch_size)  # refuses what is not whole patches
        return self.last_map(images).flatten(2).transpose(1, 2)
