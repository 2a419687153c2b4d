# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Token features: what is kept of an encoder's tokens, at positions of the grid, around landmarks, of whole images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import torch
from monai.utils import convert_to_tensor
from tqdm.auto import tqdm

from monai_afire.apps.studies.images.affine import WINDOW, landmark_windows
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.utils.eval_mode import eval_mode
from monai_afire.utils.precision import at_least_float32


def mean_token(tokens: torch.Tensor) -> torch.Tensor:
    """
    Embedding of a picture, the mean of its tokens.

    Args:
        tokens: ``(B, L, D)``.

    Returns:
        ``(B, D)``.

    Example:
        >>> mean_token(torch.tensor([[[0.0], [1.0]]]))
        tensor([[0.5000]])
    """
    return tokens.mean(1)


def token_features(
    encoder: RadiographEncoder,
    number: int,
    pictures: Callable[[slice], torch.Tensor],
    reduce: Callable[[torch.Tensor], torch.Tensor] = mean_token,
    batch_size: int = 32,
    bar: tqdm | None = None,
) -> torch.Tensor:
    """
    What is kept of the tokens of pictures that are made when their turn comes.

    The encoder works in evaluation mode without gradients on its own device.

    Args:
        encoder: any :class:`monai_afire.networks.RadiographEncoder`.
        number: N, how many pictures there are.
        pictures: called with a slice of 0, ..., N - 1 for these pictures ``(b, C, *S)`` in [0, 1], of the encoder's
            size.
        reduce: takes what is kept, ``(b, ...)``, from the tokens ``(b, L, D)`` of a batch.
        batch_size: pictures in a pass.
        bar: to advance by the pictures.

    Returns:
        ``(N, ...)`` at least float32, on the encoder's device.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> images = torch.rand(5, 1, 32, 32)
        >>> token_features(encoder, 5, lambda rows: images[rows], batch_size=2).shape
        torch.Size([5, 24])
    """
    features = []
    with eval_mode(encoder), torch.no_grad():
        for start in range(0, max(number, 1), batch_size):
            # of no picture, a batch of none says the shape
            rows = slice(start, min(start + batch_size, number))
            tokens = encoder(pictures(rows).to(encoder.mean))
            features.append(at_least_float32(reduce(tokens)))
            if bar is not None:
                bar.update(rows.stop - rows.start)
    return torch.cat(features)


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
    return image_features(
        encoder, images, batch_size, progress, lambda tokens: tokens[:, list(positions)]
    )


def image_features(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    batch_size: int = 32,
    progress: bool = True,
    reduce: Callable[[torch.Tensor], torch.Tensor] = mean_token,
) -> torch.Tensor:
    """
    The mean token of each image (AFiRe, Fig. 5 a), or what else ``reduce`` makes of its tokens.

    Args:
        encoder: as in :func:`position_features`.
        images: ``(M, C, *S)`` in [0, 1], of the encoder's size.
        batch_size: images in a pass.
        progress: whether to show a progress bar.
        reduce: as in :func:`token_features`.

    Returns:
        ``(M, D)``, or what ``reduce`` gives, at least float32, on the CPU.

    Raises:
        ValueError: for images of another size than the encoder's.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> image_features(encoder, torch.rand(3, 1, 32, 32), progress=False).shape
        torch.Size([3, 24])
    """
    encoder.check_images(images)
    plain = convert_to_tensor(images, track_meta=False)
    with tqdm(total=len(plain), disable=not progress, unit="image", desc="tokens") as bar:
        return token_features(
            encoder, len(plain), lambda rows: plain[rows], reduce, batch_size, bar
        ).cpu()


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
    The mean token of a window around each landmark, in the encoder's size (ACE, Fig. 6 and 11).

    The window says nothing of the landmark's position in the image, so an encoder that knows positions alone gives all
    landmarks the same feature.

    Args:
        encoder: as in :func:`position_features`.
        images: ``(M, C, *S)`` in [0, 1], of any size; with that of :func:`native_size` windows show the file's pixels.
        landmarks: ``(M, P, n)`` in pixels, rows before columns; NaN where one is not known.
        window: side of the window as a fraction of the image's; ACE takes 448 of 1024 pixels.
        mirrored: whether to mirror the windows left to right.
        batch_size: windows in a pass.
        progress: whether to show a progress bar over the windows.

    Returns:
        ``(M, P, D)``, at least float32, on the CPU; NaN for landmarks that are not known.

    Raises:
        ValueError: for images of other channels or axes than the encoder's, landmarks of another number or with other
            axes, or a window out of range.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> landmark_features(encoder, torch.rand(2, 1, 32, 32), torch.full((2, 3, 2), 9.0), progress=False).shape
        torch.Size([2, 3, 24])
    """
    check_sources(encoder, images)
    points = convert_to_tensor(
        landmarks, dtype=torch.float32, device=torch.device("cpu"), track_meta=False
    )
    if points.ndim != 3 or len(points) != len(images) or points.shape[2] != len(encoder.img_size):
        raise ValueError(
            f"expected landmarks ({len(images)}, P, {len(encoder.img_size)}), got {tuple(points.shape)}"
        )
    known = ~points.isnan().any(-1)
    features = torch.full((*points.shape[:2], encoder.hidden_size), torch.nan)
    image_index, landmark_index = known.nonzero(as_tuple=True)
    plain = convert_to_tensor(images, track_meta=False)

    def windows(rows: slice) -> torch.Tensor:
        image, landmark = image_index[rows], landmark_index[rows]
        sources = plain[image.to(plain.device)].to(encoder.mean)
        cut = landmark_windows(sources, points[image, landmark][:, None], window, encoder.img_size)[
            :, 0
        ]
        return cut.flip(-1) if mirrored else cut

    with tqdm(total=len(image_index), disable=not progress, unit="window", desc="windows") as bar:
        means = token_features(encoder, len(image_index), windows, batch_size=batch_size, bar=bar)
    features[image_index, landmark_index] = means.to(features)
    return features


def check_sources(encoder: RadiographEncoder, images: torch.Tensor) -> None:
    """
    Check images of any size, out of which an encoder's input is cut.

    Args:
        encoder: as in :func:`position_features`.
        images: ``(M, C, *S)``.

    Raises:
        ValueError: for other channels or another number of axes than the encoder's.
    """
    if images.ndim != 2 + len(encoder.img_size) or images.shape[1] != encoder.in_channels:
        cut = (encoder.in_channels, *encoder.img_size)
        raise ValueError(
            f"windows {cut}, as the encoder takes, cannot be cut out of images {tuple(images.shape)}"
        )


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
    places = list(product(*(_spread(size, min(per_axis, size)) for size in grid)))
    names = [", ".join(str(cell + 1) for cell in place) for place in places]
    return [int(np.ravel_multi_index(place, tuple(grid))) for place in places], names


def _spread(size: int, number: int) -> list[int]:
    """The middles of equal parts of an axis."""
    return [(2 * part + 1) * size // (2 * number) for part in range(number)]
