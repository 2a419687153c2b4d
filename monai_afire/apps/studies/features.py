# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Features of images: tokens, mean tokens, windows around landmarks, dense features."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from monai.utils import convert_to_tensor
from tqdm.auto import tqdm

from monai_afire.apps.studies.regions import WINDOW, landmark_windows
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.utils.eval_mode import eval_mode
from monai_afire.utils.precision import at_least_float32

SAME_COSINE = 1e-9
"""Cosines of :func:`l2_normalize` that differ by less are equal: their difference is rounding."""

_ROUNDING = 1e-4  # what remains of a feature after its mean is subtracted and is smaller, relatively, is rounding


def mean_token(tokens: torch.Tensor) -> torch.Tensor:
    """Embedding ``(B, D)`` of a picture, the mean of its tokens ``(B, L, D)``."""
    return tokens.mean(1)


def token_features(
    encoder: RadiographEncoder,
    number: int,
    pictures: Callable[[slice], torch.Tensor],
    reduce: Callable[[torch.Tensor], torch.Tensor] = mean_token,
    batch_size: int = 32,
) -> torch.Tensor:
    """
    What ``reduce`` keeps of the tokens of pictures that are made when their turn comes: ``(number, ...)``.

    ``pictures`` is called with a slice of 0, ..., number - 1 and gives ``(b, C, H, W)`` in [0, 1] of the encoder's
    size. The result is at least float32, on the encoder's device.
    """
    # of no picture, a batch of none says the shape
    starts = range(0, max(number, 1), batch_size)
    features = []
    with eval_mode(encoder), torch.no_grad():
        for start in tqdm(starts, "encoding", unit="batch", leave=False, disable=len(starts) < 2):
            rows = slice(start, min(start + batch_size, number))
            tokens = encoder(pictures(rows).to(encoder.mean))
            features.append(at_least_float32(reduce(tokens)))
    return torch.cat(features)


def image_features(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    batch_size: int = 32,
    reduce: Callable[[torch.Tensor], torch.Tensor] = mean_token,
) -> torch.Tensor:
    """The mean token of each image, or what else ``reduce`` makes of its tokens, ``(M, ...)`` on the CPU."""
    encoder.check_images(images)
    plain = convert_to_tensor(images, track_meta=False)
    return token_features(encoder, len(plain), plain.__getitem__, reduce, batch_size).cpu()


def landmark_features(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    landmarks: torch.Tensor,
    window: float = WINDOW,
    mirrored: bool = False,
    batch_size: int = 32,
) -> torch.Tensor:
    """
    The mean token ``(M, P, D)`` of a window around each landmark, in the encoder's size (ACE, Fig. 6 and 11).

    The window says nothing of the landmark's position in the image. Images ``(M, C, H, W)`` have any size, landmarks
    ``(M, P, 2)`` are in their pixels; the window's side is a fraction of the image's. NaN for an unknown landmark.
    """
    plain = convert_to_tensor(images, track_meta=False)
    points = convert_to_tensor(landmarks, dtype=torch.float32, track_meta=False).cpu()
    image_index, landmark_index = points.isfinite().all(-1).nonzero(as_tuple=True)

    def windows(rows: slice) -> torch.Tensor:
        image, landmark = image_index[rows], landmark_index[rows]
        sources = plain[image.to(plain.device)].to(encoder.mean)
        cut = landmark_windows(sources, points[image, landmark], window, encoder.img_size)
        return cut.flip(-1) if mirrored else cut

    number = len(image_index)
    means = token_features(encoder, number, windows, batch_size=batch_size)
    features = torch.full((*points.shape[:2], encoder.hidden_size), torch.nan)
    features[image_index, landmark_index] = means.to(features)
    return features


def dense_features(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    stride: int | None = None,
    batch_size: int = 32,
) -> torch.Tensor:
    r"""
    Features of every ``stride``-th pixel: encode shifted copies of the images and interleave their tokens.

    For a patch of P pixels and a stride s that divides it, the copies are shifted by
    :math:`d_k = k s - \lfloor (P - s) / 2 \rfloor`, :math:`k = 0, \dots, P / s - 1`, along each axis. Pixel u of a copy
    is pixel u + d of the image, the nearest pixel of the border where that is outside of it, so every copy has the size
    that the encoder takes. Token i of copy k becomes cell :math:`j = i P / s + k`, whose patch is centered, in pixels
    with the center of the first one at 0, at

    .. math:: c_j = j s - \left\lfloor \frac{P - s}{2} \right\rfloor + \frac{P - 1}{2}

    as :func:`cell_centers` says. What an encoder adds for a token's *position* is that of the token, hence the same in
    all copies. PEAC and ACE take a stride of 8; None is the patch itself: the encoder's tokens, in one pass.

    Returns:
        ``(B, D, H / stride, W / stride)`` at least float32, on the images' device.
    """
    images = convert_to_tensor(images, track_meta=False)
    encoder.check_images(images)
    copies = _shifted_copies(images, encoder, stride)
    numbered = copies.shape[:3]  # images, and shifts down and to the right

    def batch(rows: slice) -> torch.Tensor:
        return copies[torch.unravel_index(torch.arange(rows.start, rows.stop), numbered)]

    tokens = token_features(encoder, numbered.numel(), batch, lambda every: every, batch_size)
    grid = tokens.unflatten(1, encoder.grid_size).unflatten(0, numbered)
    # image, channel, row and its shift, column and its shift
    interleaved = grid.permute(0, 5, 3, 1, 4, 2)
    return interleaved.flatten(4, 5).flatten(2, 3).to(images.device)


def finest_stride(encoder: RadiographEncoder, stride: int = 8) -> int:
    """The largest divisor of the encoder's patch that is not above the stride, for comparisons side by side."""
    common = math.gcd(*encoder.patch_size)
    return max(step for step in range(1, max(stride, 1) + 1) if common % step == 0)


def cell_centers(encoder: RadiographEncoder, stride: int | None = None) -> tuple[torch.Tensor, ...]:
    """
    Where the patches of :func:`dense_features` are centered, in pixels; the center of the image's first pixel is 0.

    The first and last cells of a fine stride see a patch that reaches over the border, their centers still lie inside.
    """
    sides = zip(encoder.img_size, encoder.patch_size, _steps(encoder, stride), strict=True)
    return tuple(
        torch.arange(size // s, dtype=torch.float32) * s - (p - s) // 2 + (p - 1) / 2
        for size, p, s in sides
    )


class FeatureMaps:
    """
    Dense features of many images, chunk by chunk, so that memory does not grow with their number.

    ``remove_position`` subtracts the mean map of all images, which costs a pass over all of them.
    """

    def __init__(
        self,
        encoder: RadiographEncoder,
        images: torch.Tensor,
        stride: int | None,
        remove_position: bool,
        batch_size: int,
    ) -> None:
        self.encoder, self.stride, self.batch_size = encoder, stride, batch_size
        self.images = convert_to_tensor(images, track_meta=False)
        self.device = encoder.mean.device
        self.centers = [axis.to(self.device) for axis in cell_centers(encoder, stride)]
        steps = zip(encoder.patch_size, _steps(encoder, stride), strict=True)
        # the shifted copies of an image fill a part of a batch already
        self.chunk = max(1, batch_size // math.prod(p // s for p, s in steps))
        self.mean: torch.Tensor | None = None
        if remove_position:
            # in float64: an error of the sum would be the same in all images, and so tell the position
            total = sum(part.sum(0).cpu().double() for part in self(range(len(self.images))))
            self.mean = torch.as_tensor(total / len(self.images)).to(self.centers[0])

    def __call__(self, indices: Sequence[int]) -> Iterator[torch.Tensor]:
        """Features ``(m, D, *cells)`` of a few of the indexed images at a time."""
        starts = range(0, len(indices), self.chunk)
        for start in tqdm(starts, "dense features", unit="batch", leave=False):
            images = self.images[list(indices[start : start + self.chunk])].to(self.device)
            features = dense_features(self.encoder, images, self.stride, self.batch_size)
            yield features if self.mean is None else _without(features, self.mean)


def _steps(encoder: RadiographEncoder, stride: int | None) -> tuple[int, ...]:
    """The stride along each axis."""
    if stride is None:
        return encoder.patch_size
    if math.gcd(*encoder.patch_size) % stride:
        raise ValueError(f"stride {stride} must divide the patch {encoder.patch_size}")
    return (stride,) * len(encoder.patch_size)


def _shifted_copies(
    images: torch.Tensor, encoder: RadiographEncoder, stride: int | None
) -> torch.Tensor:
    """View ``(B, shifts down, shifts right, C, H, W)`` of images whose border is repeated as far as shifts reach."""
    steps = _steps(encoder, stride)
    widths: list[int] = []
    for p, step in zip(encoder.patch_size, steps, strict=True):
        before = (p - step) // 2
        widths = [before, p - step - before, *widths]  # F.pad begins with the last axis
    copies = F.pad(images, widths, mode="replicate")
    for axis, (side, step) in enumerate(zip(encoder.img_size, steps, strict=True)):
        copies = copies.unfold(2 + axis, side, step)
    return copies.movedim(1, 3)


def _without(features: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    """Subtract the mean map; where nothing but rounding remains, nothing does, or it would give the position away."""
    difference = features - mean
    size = difference.norm(dim=1, keepdim=True)
    return difference * (size > _ROUNDING * features.norm(dim=1, keepdim=True))


def l2_normalize(features: torch.Tensor) -> torch.Tensor:
    """
    Divide features ``(..., D)`` by their length, in double precision where the device has it; zeros stay zeros.

    Encoders whose features are all alike have cosines between 0.999999 and 1, in which float32, and TF32 even more,
    sees what is not there.
    """
    precise = torch.float32 if features.device.type == "mps" else torch.float64
    return F.normalize(features.to(precise), dim=-1)
