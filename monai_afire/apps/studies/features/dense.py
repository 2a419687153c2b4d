# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Dense features: those of an encoder at a stride finer than its patches, of one batch or of many images in chunks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from monai.utils import convert_to_tensor
from tqdm.auto import tqdm

from monai_afire.apps.studies.features.tokens import token_features
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder

_ROUNDING = 1e-4  # what remains of a feature after its mean is subtracted and is smaller, relatively, is rounding


def dense_features(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    stride: int | None = None,
    batch_size: int = 32,
) -> torch.Tensor:
    r"""
    Features of every ``stride``-th pixel: encode shifted copies of the images and interleave their tokens.

    For a patch of P pixels and a stride s that divides it, the copies are shifted by
    :math:`d_k = k s - \lfloor (P - s) / 2 \rfloor`, :math:`k = 0, \dots, P / s - 1`, along each axis, which is
    :math:`(P/s)^n` passes in n dimensions. Pixel u of a copy is pixel u + d of the image, the nearest pixel of the
    border where that is outside of it, so every copy has the size that the encoder takes. Token i of copy k becomes
    cell :math:`j = i P / s + k`, whose patch is centered, in pixels with the center of the first one at 0, at

    .. math:: c_j = j s - \left\lfloor \frac{P - s}{2} \right\rfloor + \frac{P - 1}{2}

    For an even P - s that is :math:`j s + (s - 1) / 2`, the middle of the s pixels of the cell; for an odd one, half a
    pixel more. :func:`cell_centers` returns these numbers. What an encoder adds for a token's *position* is that of
    the token, hence the same in all copies.

    The encoder works in evaluation mode without gradients, on its own device; the mode of each of its parts is as
    before afterwards, whatever happens.

    Args:
        encoder: any :class:`monai_afire.networks.RadiographEncoder`.
        images: ``(B, C, *S)`` in [0, 1], of the encoder's size, on any device.
        stride: pixels between two cells, a divisor of the patch; PEAC and ACE take 8. None for the patch itself: the
            encoder's tokens, in one pass.
        batch_size: copies of images in a pass.

    Returns:
        ``(B, D, *S / stride)`` at least float32, on the images' device.

    Raises:
        ValueError: for images of another size than the encoder's, a stride that does not divide the patch, or
            batch_size < 1.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> dense_features(encoder, torch.rand(2, 1, 32, 32), stride=8).shape
        torch.Size([2, 24, 4, 4])
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    images = convert_to_tensor(images, track_meta=False)
    encoder.check_images(images)
    num_shifts, dims = shifts_per_axis(encoder, stride), len(encoder.grid_size)
    copies = _shifted_copies(images, encoder, num_shifts)

    def batch(rows: slice) -> torch.Tensor:
        return copies[
            torch.unravel_index(torch.arange(rows.start, rows.stop), copies.shape[: 1 + dims])
        ]

    number = len(images) * math.prod(num_shifts)
    tokens = token_features(encoder, number, batch, lambda every: every, batch_size).to(
        images.device
    )
    cells = [count * size for count, size in zip(num_shifts, encoder.grid_size, strict=True)]
    interleaved = [
        axis
        for pair in zip(range(1 + dims, 1 + 2 * dims), range(1, 1 + dims), strict=True)
        for axis in pair
    ]
    tokens = tokens.reshape(len(images), *num_shifts, *encoder.grid_size, encoder.hidden_size)
    return tokens.permute(0, -1, *interleaved).reshape(len(images), encoder.hidden_size, *cells)


def shifts_per_axis(encoder: RadiographEncoder, stride: int | None = None) -> tuple[int, ...]:
    """
    Shifted copies along each axis that :func:`dense_features` encodes; their product is the passes per image.

    Args:
        encoder: the encoder.
        stride: as in :func:`dense_features`.

    Returns:
        One number per axis.

    Raises:
        ValueError: for a stride that does not divide the patch.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> shifts_per_axis(encoder, 8)
        (2, 2)
    """
    steps = _checked_stride(encoder, stride)
    return tuple(p // s for p, s in zip(encoder.patch_size, steps, strict=True))


def finest_stride(encoder: RadiographEncoder, stride: int = 8) -> int:
    """
    The stride to take with any encoder, for comparisons side by side.

    Args:
        encoder: the encoder.
        stride: pixels that are wished for, at least 1; PEAC and ACE take 8.

    Returns:
        The largest divisor of the patch that is not above it.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=28, patch_size=14, hidden_size=24, num_layers=1, num_heads=2)
        >>> finest_stride(encoder, 8)
        7
    """
    return max(step for step in _divisors(encoder) if step <= max(stride, 1))


def cell_centers(encoder: RadiographEncoder, stride: int | None = None) -> tuple[torch.Tensor, ...]:
    """
    Where the patches of :func:`dense_features` are centered.

    Args:
        encoder: the encoder.
        stride: as in :func:`dense_features`.

    Returns:
        For each axis ``(cells,)`` float32, pixels; the center of the image's first pixel is 0. The first and last cells
        of a fine stride see a patch that reaches over the border, their centers still lie inside.

    Raises:
        ValueError: for a stride that does not divide the patch.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> cell_centers(encoder, 8)[0]
        tensor([ 3.5000, 11.5000, 19.5000, 27.5000])
    """
    steps = _checked_stride(encoder, stride)
    return tuple(
        torch.arange(size // s, dtype=torch.float32) * s - (p - s) // 2 + (p - 1) / 2
        for size, p, s in zip(encoder.img_size, encoder.patch_size, steps, strict=True)
    )


@dataclass
class FeatureMaps:
    """
    Dense features of many images, chunk by chunk, so that memory does not grow with their number.

    Args:
        encoder: any :class:`monai_afire.networks.RadiographEncoder`, on any device, which the work is done on.
        images: ``(M, C, *S)`` in [0, 1], of the encoder's size, on any device.
        stride: as in :func:`dense_features`.
        batch_size: copies of images in a pass.
        bar: to advance by the images.

    Raises:
        ValueError: for a stride that does not divide the patch.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> maps = FeatureMaps(encoder, torch.rand(5, 1, 32, 32), None, batch_size=2, bar=tqdm(disable=True))
        >>> [(rows, tuple(features.shape)) for rows, features in maps([4, 0, 1])]
        [([4, 0], (2, 24, 2, 2)), ([1], (1, 24, 2, 2))]
    """

    encoder: RadiographEncoder
    images: torch.Tensor
    stride: int | None
    batch_size: int
    bar: tqdm

    def __post_init__(self) -> None:
        self.images = convert_to_tensor(self.images, track_meta=False)
        self.centers = [
            axis.to(self.encoder.mean.device) for axis in cell_centers(self.encoder, self.stride)
        ]
        # the shifted copies of an image fill a part of a batch already
        self.chunk = max(
            1, self.batch_size // math.prod(shifts_per_axis(self.encoder, self.stride))
        )
        self.mean: torch.Tensor | None = None

    def remove_mean(self) -> None:
        """Subtract the mean map of all images from now on."""
        # in float64: an error of the sum would be the same in all images, and so tell the position
        total = sum(part.sum(0).cpu().double() for _, part in self(range(len(self.images))))
        self.mean = torch.as_tensor(total / len(self.images)).to(self.centers[0])

    def __call__(self, indices: Sequence[int]) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Some indices at a time, and their features (m, D, *cells)."""
        for start in range(0, len(indices), self.chunk):
            rows = list(indices[start : start + self.chunk])
            images = self.images[rows].to(self.centers[0].device)
            features = dense_features(self.encoder, images, self.stride, self.batch_size)
            self.bar.update(len(rows))
            yield rows, features if self.mean is None else _without(features, self.mean)


def _divisors(encoder: RadiographEncoder) -> list[int]:
    """Strides that divide the patch along every axis."""
    common = math.gcd(*encoder.patch_size)
    return [step for step in range(1, common + 1) if common % step == 0]


def _checked_stride(encoder: RadiographEncoder, stride: int | None) -> tuple[int, ...]:
    """The stride along each axis."""
    if stride is None:
        return encoder.patch_size
    if stride not in _divisors(encoder):
        raise ValueError(
            f"stride {stride} must divide {encoder.patch_size}: choose one of {_divisors(encoder)}"
        )
    return (stride,) * len(encoder.patch_size)


def _shifted_copies(
    images: torch.Tensor, encoder: RadiographEncoder, num_shifts: Sequence[int]
) -> torch.Tensor:
    """View ``(B, *num_shifts, C, *S)`` of images whose border is repeated as far as the shifts reach."""
    steps = [p // count for p, count in zip(encoder.patch_size, num_shifts, strict=True)]
    before = [(p - step) // 2 for p, step in zip(encoder.patch_size, steps, strict=True)]
    widths = [
        (b, p - step - b) for b, p, step in zip(before, encoder.patch_size, steps, strict=True)
    ]
    copies = F.pad(images, [width for pair in reversed(widths) for width in pair], mode="replicate")
    for axis, (side, step) in enumerate(zip(encoder.img_size, steps, strict=True)):
        copies = copies.unfold(2 + axis, side, step)
    return copies.movedim(1, 1 + len(steps))


def _without(features: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    """Subtract the mean map; where nothing but rounding remains, nothing does, or it would give the position away."""
    difference = features - mean
    size = difference.norm(dim=1, keepdim=True)
    return difference * (size > _ROUNDING * features.norm(dim=1, keepdim=True))
