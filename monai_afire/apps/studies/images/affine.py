# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Affine resampling of images with their landmarks: synthetic perturbations, and windows around landmarks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from monai.networks.layers import AffineTransform
from monai.transforms.utils import create_rotate, create_scale, create_translate
from monai.utils import convert_to_tensor

WINDOW = 448 / 1024
"""Side of ACE's windows around landmarks, as a fraction of the image's."""

# repeats the border: black edges would be landmarks of their own
_RESAMPLE = AffineTransform(padding_mode="border", zero_centered=False)


@dataclass(frozen=True)
class Perturbation:
    """
    An affine change that simulates another exposure of the same patient: turned, nearer, elsewhere.

    Args:
        name: in tables.
        rotation: degrees, clockwise in the plane of rows and columns, about the image's center.
        scale: about the image's center; above 1 the patient is larger.
        shift: along each axis (down, to the right), fraction of the image's side.

    Example:
        >>> Perturbation("nearer", scale=1.2).shift
        (0.0, 0.0)
    """

    name: str
    rotation: float = 0.0
    scale: float = 1.0
    shift: Sequence[float] = (0.0, 0.0)


DEFAULT_PERTURBATIONS = (
    Perturbation("moved up right", shift=(-0.12, 0.1)),
    Perturbation("turned", rotation=12.0),
    Perturbation("nearer, moved", rotation=-6.0, scale=1.15, shift=(0.06, -0.08)),
)
"""Perturbations that move a landmark by about a tenth of the image's side."""


def perturbed_images(
    images: torch.Tensor, landmarks: torch.Tensor, perturbation: Perturbation
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""
    Perturb each image, and its landmarks with it.

    With the image's center :math:`c`, a rotation :math:`R`, the scale :math:`s` and the shift :math:`t`, what is at
    :math:`x` is then at

    .. math:: x' = c + s R (x - c) + t

    Pixels are interpolated linearly; what the image does not show repeats its border.

    Args:
        images: ``(M, C, *S)``.
        landmarks: ``(M, P, n)`` in pixels, rows before columns; NaN where one is not known.
        perturbation: of all of them.

    Returns:
        The perturbed images, of the same size, and their landmarks, exactly; NaN where one has left the image.

    Raises:
        ValueError: for a shift with another number of axes, a scale that is not positive, or landmarks of another
            shape.

    Example:
        >>> images = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> down = Perturbation("down", shift=(0.25, 0))
        >>> perturbed, landmarks = perturbed_images(images, torch.tensor([[[1.0, 1.0]]]), down)
        >>> perturbed[0, 0, :, 0].round().tolist(), landmarks.tolist()
        ([0.0, 0.0, 4.0, 8.0], [[[2.0, 1.0]]])
    """
    size = images.shape[2:]
    if len(perturbation.shift) != len(size) or perturbation.scale <= 0:
        raise ValueError(
            f"{perturbation} needs a shift along each of {len(size)} axes, and a scale above 0"
        )
    if landmarks.shape[:1] != images.shape[:1] or landmarks.shape[2:] != (len(size),):
        raise ValueError(
            f"expected landmarks ({len(images)}, P, {len(size)}), got {tuple(landmarks.shape)}"
        )
    last, dims = np.array(size) - 1, len(size)
    turn = -math.radians(perturbation.rotation)  # rows towards columns
    forward = (
        create_translate(dims, (last / 2 + np.array(perturbation.shift) * size).tolist())
        @ create_scale(dims, (perturbation.scale,) * dims)
        @ create_rotate(dims, turn)
        @ create_translate(dims, (-last / 2).tolist())
    )
    moved = landmarks.double().cpu().numpy() @ forward[:dims, :dims].T + forward[:dims, dims]
    moved[((moved < 0) | (moved > last)).any(-1)] = np.nan
    theta = torch.from_numpy(np.linalg.inv(forward))[None]
    return _RESAMPLE(images, theta.to(images)), torch.from_numpy(moved).to(landmarks)


def with_perturbations(
    images: torch.Tensor,
    landmarks: torch.Tensor,
    perturbations: Sequence[Perturbation] = DEFAULT_PERTURBATIONS,
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    The images as they are, followed by all of them in each perturbation.

    Args:
        images: ``(M, C, *S)``.
        landmarks: ``(M, P, n)`` in pixels, rows before columns; NaN where one is not known.
        perturbations: see :func:`perturbed_images`.

    Returns:
        Images and landmarks, ``(1 + len(perturbations)) M`` of them: number p M + m is image m in perturbation p, and
        p = 0 the image itself.

    Raises:
        ValueError: as :func:`perturbed_images`.

    Example:
        >>> images, landmarks = with_perturbations(torch.rand(2, 1, 8, 8), torch.rand(2, 3, 2))
        >>> images.shape, landmarks.shape
        (torch.Size([8, 1, 8, 8]), torch.Size([8, 3, 2]))
    """
    plain = convert_to_tensor(images, dtype=torch.float32, track_meta=False)
    points = convert_to_tensor(landmarks, dtype=torch.float32, track_meta=False)
    pairs = [
        (plain, points),
        *[perturbed_images(plain, points, perturbation) for perturbation in perturbations],
    ]
    return torch.cat([image for image, _ in pairs]), torch.cat([moved for _, moved in pairs])


def landmark_windows(
    images: torch.Tensor, landmarks: torch.Tensor, window: float, size: Sequence[int] | None = None
) -> torch.Tensor:
    """
    Cut a window around each landmark and resample it to one size.

    Args:
        images: ``(M, C, *S)``.
        landmarks: ``(M, P, n)`` in pixels, rows before columns; NaN where one is not known.
        window: side of the window as a fraction of the image's, in (0, 1].
        size: of the result, T; None for that of the images. Where it is that of the window in pixels, no pixel is
            enlarged. There is no smoothing before a reduction.

    Returns:
        ``(M, P, C, *T)``, the landmark in the center; the border repeats beyond the image. NaN for unknown landmarks.

    Raises:
        ValueError: for a window out of range.

    Example:
        >>> images = torch.rand(2, 1, 5, 5)
        >>> windows = landmark_windows(images, torch.tensor([[[1.0, 3.0]], [[2.0, 2.0]]]), 0.5)
        >>> bool(windows[0, 0, 0, 2, 2].isclose(images[0, 0, 1, 3]))
        True
    """
    if not 0 < window <= 1:
        raise ValueError(f"window must be a fraction of the image's side in (0, 1], got {window}")
    number, dims = landmarks.shape[1:]
    size = tuple(images.shape[2:] if size is None else size)
    if not landmarks.numel():  # PyTorch resamples at least one image
        return images.new_empty((len(images), number, images.shape[1], *size))
    half = torch.tensor([(pixels - 1) / 2 for pixels in size], dtype=torch.float64)
    step = torch.tensor(
        [window * s / t for s, t in zip(images.shape[2:], size, strict=True)], dtype=torch.float64
    )
    points = landmarks.double().cpu().flatten(0, 1)
    theta = torch.eye(dims + 1, dtype=torch.float64).repeat(len(points), 1, 1)
    theta[:, :dims, :dims] *= step
    theta[:, :dims, dims] = points.nan_to_num() - step * half
    windows = _RESAMPLE(images.repeat_interleave(number, dim=0), theta.to(images), size)
    windows[points.isnan().any(-1).to(windows.device)] = torch.nan
    return windows.unflatten(0, (len(images), number))
