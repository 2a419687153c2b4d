# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Features of chosen places of many images: positions of the grid, landmarks, whole images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import torch
from monai.utils import convert_to_tensor
from tqdm.auto import tqdm

from monai_afire.analysis.features.tokens import mean_tokens, reduced_tokens
from monai_afire.analysis.images.views import landmark_windows
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["WINDOW", "image_features", "landmark_features", "position_features", "spread_positions"]

WINDOW = 448 / 1024
"""Side of ACE's windows around landmarks, as a fraction of the image's."""


def position_features(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    positions: Sequence[int],
    batch_size: int = 32,
    progress: bool = True,
) -> torch.Tensor:
    """
    The tokens at some positions of the grid (AFiRe, Fig. 5 b).

    Args:
        encoder: any :class:`monai_afire.networks.RadiographEncoder`, on any device, which the work is done on.
        images: ``(M, C, *S)`` in [0, 1], of the encoder's size.
        positions: indices of tokens, in row-major order of the grid, e.g. of :func:`spread_positions`.
        batch_size: images in a pass.
        progress: whether to show a progress bar.

    Returns:
        ``(M, len(positions), D)``, at least float32, on the CPU.

    Raises:
        ValueError: for images of another size than the encoder's.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> position_features(encoder, torch.rand(3, 1, 32, 32), [0, 5], progress=False).shape
        torch.Size([3, 2, 24])
    """
    return _of_images(encoder, images, lambda tokens: tokens[:, list(positions)], batch_size, progress)


def image_features(
    encoder: RadiographEncoder, images: torch.Tensor, batch_size: int = 32, progress: bool = True
) -> torch.Tensor:
    """
    The mean token of each image (AFiRe, Fig. 5 a).

    Args:
        encoder: as in :func:`position_features`.
        images: ``(M, C, *S)`` in [0, 1], of the encoder's size.
        batch_size: images in a pass.
        progress: whether to show a progress bar.

    Returns:
        ``(M, D)``, at least float32, on the CPU.

    Raises:
        ValueError: for images of another size than the encoder's.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> image_features(encoder, torch.rand(3, 1, 32, 32), progress=False).shape
        torch.Size([3, 24])
    """
    return _of_images(encoder, images, lambda tokens: tokens.mean(1), batch_size, progress)


def landmark_features(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    landmarks: torch.Tensor,
    window: float = WINDOW,
    mirrored: bool = False,
    batch_size: int = 32,
    progress: bool = True,
) -> torch.Tensor:
    """
    The mean token of a window around each landmark, enlarged to the encoder's size (ACE, Fig. 6 and 11).

    The window says nothing of the landmark's place in the image, so an encoder that knows positions alone gives all
    landmarks the same feature.

    Args:
        encoder: as in :func:`position_features`.
        images: ``(M, C, *S)`` in [0, 1], of the encoder's size.
        landmarks: ``(M, P, n)`` in pixels, rows before columns; NaN where one is not known.
        window: side of the window as a fraction of the image's; ACE takes 448 of 1024 pixels.
        mirrored: whether to mirror the windows along the last axis, left to right.
        batch_size: windows in a pass.
        progress: whether to show a progress bar over the windows.

    Returns:
        ``(M, P, D)``, at least float32, on the CPU; NaN for landmarks that are not known.

    Raises:
        ValueError: for images of another size than the encoder's, landmarks of another number or with other axes, or
            a window out of range.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> landmark_features(encoder, torch.rand(2, 1, 32, 32), torch.full((2, 3, 2), 9.0), progress=False).shape
        torch.Size([2, 3, 24])
    """
    encoder.check_images(images)
    places = convert_to_tensor(landmarks, dtype=torch.float32, device=torch.device("cpu"), track_meta=False)
    if places.ndim != 3 or len(places) != len(images) or places.shape[2] != len(encoder.img_size):
        raise ValueError(f"expected landmarks ({len(images)}, P, {len(encoder.img_size)}), got {tuple(places.shape)}")
    known = ~places.isnan().any(-1)
    features = torch.full((*places.shape[:2], encoder.hidden_size), torch.nan)
    image_index, landmark_index = known.nonzero(as_tuple=True)
    plain = convert_to_tensor(images, track_meta=False)

    def windows(rows: slice) -> torch.Tensor:
        chosen, which = image_index[rows], landmark_index[rows]
        sources = plain[chosen.to(plain.device)].to(encoder.mean)
        cut = landmark_windows(sources, places[chosen, which][:, None], window)[:, 0]
        return cut.flip(-1) if mirrored else cut

    with tqdm(total=len(image_index), disable=not progress, unit="window", desc="windows") as bar:
        means = mean_tokens(encoder, len(image_index), windows, batch_size, bar)
    features[image_index, landmark_index] = means.to(features)
    return features


def spread_positions(grid: Sequence[int], per_axis: int = 3) -> tuple[list[int], list[str]]:
    """
    Positions of the grid in the middle of ``per_axis`` equal parts of each axis; AFiRe shows nine.

    Args:
        grid: tokens along each axis.
        per_axis: positions along each axis, as many as it has where it has fewer.

    Returns:
        Their indices in row-major order, and their names, "row, column" (from 1).

    Raises:
        ValueError: for less than one position.

    Example:
        >>> spread_positions((8, 8), per_axis=2)
        ([18, 22, 50, 54], ['3, 3', '3, 7', '7, 3', '7, 7'])
    """
    if per_axis < 1:
        raise ValueError(f"per_axis must be at least 1, got {per_axis}")
    axes = [[(2 * k + 1) * size // (2 * min(per_axis, size)) for k in range(min(per_axis, size))] for size in grid]
    indices, names = [], []
    for place in product(*axes):
        index = 0
        for cell, size in zip(place, grid, strict=True):
            index = index * size + cell
        indices.append(index)
        names.append(", ".join(str(cell + 1) for cell in place))
    return indices, names


def _of_images(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    reduce: Callable[[torch.Tensor], torch.Tensor],
    batch_size: int,
    progress: bool,
) -> torch.Tensor:
    """What ``reduce`` takes from the tokens (b, L, D) of images, on the CPU."""
    encoder.check_images(images)
    plain = convert_to_tensor(images, track_meta=False)
    with tqdm(total=len(plain), disable=not progress, unit="image", desc="tokens") as bar:
        return reduced_tokens(encoder, len(plain), lambda rows: plain[rows], reduce, batch_size, bar).cpu()
