# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Dense features: those of an encoder at a stride finer than its patches, of one batch or of many images in chunks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

import torch
import torch.nn.functional as F
from monai.utils import convert_to_tensor, ensure_tuple_rep
from tqdm.auto import tqdm

from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder
from monai_afire.utils.eval_mode import eval_mode
from monai_afire.utils.precision import at_least_float32

_ROUNDING = 1e-4  # what remains of a feature after its mean is subtracted and is smaller, relatively, is rounding


def dense_features(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    stride: Sequence[int] | int | None = None,
    batch_size: int = 32,
) -> torch.Tensor:
    r"""
    Features of every ``stride``-th pixel: encode shifted copies of the images and interleave their tokens.

    For a patch of P pixels and a stride s that divides it, the copies are shifted by
    :math:`d_k = k s - \lfloor (P - s) / 2 \rfloor`, :math:`k = 0, \dots, P / s - 1`, along each axis, which is
    :math:`(P/s)^n` passes in n dimensions. Pixel u of a copy is pixel u + d of the image, the nearest pixel of the
    border where that is outside of it, so every copy has the size that the encoder takes. Token i of copy k becomes
    cell :math:`j = i P / s + k`, whose patch is centred, in pixels with the centre of the first one at 0, at

    .. math:: c_j = j s - \left\lfloor \frac{P - s}{2} \right\rfloor + \frac{P - 1}{2}

    For an even P - s that is :math:`j s + (s - 1) / 2`, the middle of the s pixels of the cell; for an odd one, half a
    pixel more. :func:`cell_centers` returns these numbers. What an encoder adds for a token's *position* is that of
    the token, hence the same in all copies.

    The encoder works in evaluation mode without gradients, on its own device; the mode of each of its parts is as
    before afterwards, whatever happens.

    Args:
        encoder: any :class:`monai_afire.networks.RadiographEncoder`.
        images: ``(B, C, *S)`` in [0, 1], of the encoder's size, on any device.
        stride: pixels between two cells, one number or one per axis, each a divisor of the patch; PEAC and ACE take 8.
            None for the patch itself: the encoder's tokens, in one pass.
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
    steps = _checked_stride(encoder, stride)
    num_shifts = shifts_per_axis(encoder, stride)
    padded = _pad(images, encoder.patch_size, steps)
    cells = [g * n for g, n in zip(encoder.grid_size, num_shifts, strict=True)]
    copies = [(number, shift) for number in range(len(images)) for shift in product(*map(range, num_shifts))]
    features = at_least_float32(images[:0]).new_empty((len(images), encoder.hidden_size, *cells))
    with eval_mode(encoder), torch.no_grad():
        for start in range(0, len(copies), batch_size):
            chunk = copies[start : start + batch_size]
            shifted = [padded[number][_window(shift, steps, encoder.img_size)] for number, shift in chunk]
            tokens = encoder(torch.stack(shifted).to(encoder.mean.device)).to(features)
            maps = tokens.transpose(1, 2).unflatten(2, encoder.grid_size)
            for (number, shift), feature_map in zip(chunk, maps, strict=True):
                features[number][_interleaved(shift, num_shifts)] = feature_map
    return features


def shifts_per_axis(encoder: RadiographEncoder, stride: Sequence[int] | int | None = None) -> tuple[int, ...]:
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
    common = math.gcd(*encoder.patch_size)
    return max(step for step in range(1, common + 1) if common % step == 0 and (step <= stride or step == 1))


def cell_centers(encoder: RadiographEncoder, stride: Sequence[int] | int | None = None) -> tuple[torch.Tensor, ...]:
    """
    Where the patches of :func:`dense_features` are centred.

    Args:
        encoder: the encoder.
        stride: as in :func:`dense_features`.

    Returns:
        For each axis ``(cells,)`` float32, pixels; the centre of the image's first pixel is 0. The first and last cells
        of a fine stride see a patch that reaches over the border, their centres still lie inside.

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

    def __init__(
        self,
        encoder: RadiographEncoder,
        images: torch.Tensor,
        stride: Sequence[int] | int | None,
        batch_size: int,
        bar: tqdm,
    ) -> None:
        self.encoder = encoder
        self.images = convert_to_tensor(images, track_meta=False)
        self.stride = stride
        self.batch_size = batch_size
        self.bar = bar
        self.centers = [axis.to(encoder.mean.device) for axis in cell_centers(encoder, stride)]
        # the shifted copies of an image fill a part of a batch already
        self.chunk = max(1, batch_size // math.prod(shifts_per_axis(encoder, stride)))
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


def _checked_stride(encoder: RadiographEncoder, stride: Sequence[int] | int | None) -> tuple[int, ...]:
    if stride is None:
        return encoder.patch_size
    steps: tuple[int, ...] = ensure_tuple_rep(stride, len(encoder.patch_size))
    if any(s < 1 or p % s for p, s in zip(encoder.patch_size, steps, strict=True)):
        common = math.gcd(*encoder.patch_size)
        divisors = [s for s in range(1, common + 1) if common % s == 0]
        raise ValueError(
            f"stride {stride} does not divide the encoder's patch of {encoder.patch_size} pixels, so shifted tokens "
            f"cannot be interleaved: choose one of {divisors}"
        )
    return steps


def _pad(images: torch.Tensor, patch: Sequence[int], steps: Sequence[int]) -> torch.Tensor:
    """Repeat the border as far as the shifts reach before and behind the image."""
    widths = []
    for p, s in zip(reversed(patch), reversed(steps), strict=True):  # F.pad begins with the last axis
        before = (p - s) // 2
        widths += [before, p - s - before]
    return F.pad(images, widths, mode="replicate") if any(widths) else images


def _window(shift: Sequence[int], steps: Sequence[int], img_size: Sequence[int]) -> tuple[slice, ...]:
    """The part of a padded image that is its copy number ``shift``."""
    return (slice(None), *(slice(k * s, k * s + size) for k, s, size in zip(shift, steps, img_size, strict=True)))


def _interleaved(shift: Sequence[int], num_shifts: Sequence[int]) -> tuple[slice, ...]:
    """The cells of a feature map that copy number ``shift`` gives."""
    return (slice(None), *(slice(k, None, n) for k, n in zip(shift, num_shifts, strict=True)))


def _without(features: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    """Subtract the mean map; where nothing but rounding remains, nothing does, or it would give the position away."""
    difference = features - mean
    size = difference.norm(dim=1, keepdim=True)
    return difference * (size > _ROUNDING * features.norm(dim=1, keepdim=True))
