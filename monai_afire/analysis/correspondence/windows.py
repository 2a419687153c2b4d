# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Zero-shot landmark correspondence by windows that slide over an image, each encoded alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pandas as pd
import torch
import torch.nn.functional as F
from monai.utils import convert_to_tensor
from numpy.typing import NDArray
from tqdm.auto import tqdm

from monai_afire.analysis.correspondence.measures import checked_landmarks, correspondence_table
from monai_afire.analysis.features.tokens import token_features
from monai_afire.analysis.images.study_images import reference_indices
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["window_correspondence"]


def window_correspondence(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    landmarks: torch.Tensor | NDArray,
    reference: Sequence[int] | int = 5,
    stride: int = 8,
    progress: bool = True,
    batch_size: int = 32,
) -> pd.DataFrame:
    r"""
    Find the landmarks of reference images in all other images by the window with the nearest feature (ACE, Fig. 7).

    The feature :math:`f(x)` is the mean token of the window of the encoder's own size around x, cut out of a larger
    image without any resampling, zeros beyond the border. A landmark x of a reference image is in another one at

    .. math:: \hat x = c_{j^*}, \qquad j^* = \arg\min_j \lVert f(x) - f(c_j) \rVert_2

    with :math:`c_j` the centres of windows that slide by ``stride`` pixels from border to border. The paper has images
    of 1024 pixels, windows of 448 and a stride of 8.

    The encoder is not told where in the image a window lies, so that, unlike the tokens of
    :func:`monai_afire.analysis.landmark_correspondence`, features give no positions away, but for the zeros that those
    near the border see. The price is one pass for each place: :math:`(S / stride)^n` for each image. Any number of
    axes.

    Args:
        encoder: any :class:`monai_afire.networks.RadiographEncoder`, on any device, which the work is done on.
        images: ``(M, C, *S)`` in [0, 1], of any size, usually larger than the encoder's; at least two.
        landmarks: ``(M, P, n)`` in pixels, rows before columns; the centre of the first pixel is 0. NaN where a
            landmark is not known: those pairs are left out.
        reference: indices of the reference images, or how many to take, evenly spaced over all.
        stride: pixels between two windows.
        progress: whether to show a progress bar over the windows.
        batch_size: windows in a pass of the encoder.

    Returns:
        The columns of :func:`monai_afire.analysis.landmark_correspondence`, with the "distance" of the features
        instead of their similarity. Equally near windows: the first counts.

    Raises:
        ValueError: when channels or shapes do not fit, for landmarks outside of the image, fewer than two images, a
            reference that does not exist, or a stride below 1.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=16, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> images, landmarks = torch.rand(3, 1, 32, 32), 31 * torch.rand(3, 5, 2)
        >>> window_correspondence(encoder, images, landmarks, reference=[0], progress=False).shape
        (10, 8)
    """
    images = convert_to_tensor(images, track_meta=False)
    size, window = tuple(images.shape[2:]), encoder.img_size
    if images.shape[1] != encoder.in_channels or len(size) != len(window):
        raise ValueError(
            f"windows of {encoder.in_channels} channels and {window} pixels, which this encoder takes, cannot be cut "
            f"out of images {tuple(images.shape)}"
        )
    if stride < 1:
        raise ValueError(f"stride must be at least 1 pixel, got {stride}")
    places = checked_landmarks(landmarks, size, len(images))
    references = reference_indices(reference, len(images))
    middle = torch.tensor([(w - 1) / 2 for w in window])
    at_landmarks = (places.nan_to_num() - middle).round().long()
    steps = [range(-((w - 1) // 2), s - (w - 1) // 2, stride) for s, w in zip(size, window, strict=True)]
    sliding = torch.tensor(list(product(*steps)))
    number = len(references) * places.shape[1] + len(images) * len(sliding)
    with tqdm(total=number, disable=not progress, unit="window", desc="windows") as bar:
        to_find = torch.cat([_features(encoder, images[i], at_landmarks[i], batch_size, bar) for i in references])
        nearest = [_nearest(to_find, _features(encoder, image, sliding, batch_size, bar)) for image in images]
    shape = (len(images), len(references), places.shape[1])
    found = (sliding + middle)[torch.cat([index for _, index in nearest])].reshape(*shape, -1).transpose(0, 1)
    distance = torch.cat([distance for distance, _ in nearest]).reshape(shape).transpose(0, 1)
    table = correspondence_table(found.numpy(), places.numpy(), references, size, distance.numpy())
    return table.rename(columns={"similarity": "distance"})


def _features(
    encoder: RadiographEncoder, image: torch.Tensor, starts: torch.Tensor, batch_size: int, bar: tqdm
) -> torch.Tensor:
    """Mean tokens (N, D) of the windows of an image (C, *S) that begin at starts (N, n), which may be outside of it."""
    window = encoder.img_size
    # a window around a pixel of the image reaches no further than its size beyond the border
    widths = [width for w in reversed(window) for width in (w, w)]
    padded = F.pad(image.to(encoder.mean), widths)

    def windows(rows: slice) -> torch.Tensor:
        parts = []
        for start in starts[rows].tolist():
            box = (slice(None), *(slice(a + w, a + 2 * w) for a, w in zip(start, window, strict=True)))
            parts.append(padded[box])
        return torch.stack(parts) if parts else padded.new_empty((0, len(image), *window))

    return token_features(encoder, len(starts), windows, batch_size=batch_size, bar=bar)


def _nearest(to_find: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Distance and index (N,) of the nearest of (M, D) features to each of (N, D), on the CPU."""
    # differences, not products: near features must not drown in rounding
    distance = torch.cdist(to_find, features, compute_mode="donot_use_mm_for_euclid_dist")
    smallest, index = distance.min(1)
    return smallest.cpu(), index.cpu()
