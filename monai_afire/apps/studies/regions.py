# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Regions of images: random boxes and their parts, windows around landmarks, and affine perturbations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from monai.networks.layers import AffineTransform
from monai.transforms.utils import create_rotate, create_scale, create_translate
from monai.utils import convert_to_tensor

from monai_afire.transforms.grid_crop import resize

WINDOW = 448 / 1024
"""Side of ACE's windows around landmarks, as a fraction of the image's."""

# repeats the border: black edges would be landmarks of their own
_RESAMPLE = AffineTransform(padding_mode="border", zero_centered=False)


class Perturbation(NamedTuple):
    """An affine change that simulates another exposure of the same patient: turned, nearer, elsewhere."""

    name: str
    rotation: float = 0.0  # degrees, clockwise, about the image's center
    scale: float = 1.0  # above 1 the patient is larger
    shift: tuple[float, float] = (0.0, 0.0)  # down and to the right, fractions of the image's sides


PERTURBATIONS = (
    Perturbation("moved up right", shift=(-0.12, 0.1)),
    Perturbation("turned", rotation=12.0),
    Perturbation("nearer, moved", rotation=-6.0, scale=1.15, shift=(0.06, -0.08)),
)
"""Perturbations that move a landmark by about a tenth of the image's side."""


def perturbed_images(
    images: torch.Tensor, landmarks: torch.Tensor, perturbation: Perturbation
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Perturb images ``(M, C, H, W)`` and their landmarks ``(M, P, 2)``: what is at x is then at x'.

    .. math:: x' = c + s R (x - c) + t

    with the image's center c, the rotation R, the scale s and the shift t. Pixels are interpolated linearly; what the
    image does not show repeats its border. Landmarks that have left the image are NaN.
    """
    size = np.array(images.shape[2:])
    last = size - 1
    turn = -math.radians(perturbation.rotation)  # rows towards columns
    forward = (
        create_translate(2, (last / 2 + np.array(perturbation.shift) * size).tolist())
        @ create_scale(2, (perturbation.scale,) * 2)
        @ create_rotate(2, turn)
        @ create_translate(2, (-last / 2).tolist())
    )
    moved = landmarks.double().cpu().numpy() @ forward[:2, :2].T + forward[:2, 2]
    moved[((moved < 0) | (moved > last)).any(-1)] = np.nan
    theta = torch.from_numpy(np.linalg.inv(forward))[None]
    return _RESAMPLE(images, theta.to(images)), torch.from_numpy(moved).to(landmarks)


def with_perturbations(
    images: torch.Tensor, landmarks: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """M images and landmarks as they are, then in each of PERTURBATIONS: p M + m is image m in perturbation p."""
    plain = convert_to_tensor(images, dtype=torch.float32, track_meta=False)
    points = convert_to_tensor(landmarks, dtype=torch.float32, track_meta=False)
    moved = [perturbed_images(plain, points, perturbation) for perturbation in PERTURBATIONS]
    pictures, places = zip((plain, points), *moved, strict=True)
    return torch.cat(pictures), torch.cat(places)


def landmark_windows(
    images: torch.Tensor, landmarks: torch.Tensor, window: float, size: Sequence[int]
) -> torch.Tensor:
    """
    Cut a window around the landmark ``(N, 2)`` of each image ``(N, C, H, W)``, resampled to ``(N, C, *size)``.

    The window's side is a fraction of the image's, in (0, 1]. The landmark is in its center; beyond the image the
    border repeats. There is no smoothing before a reduction.
    """
    if not len(landmarks):  # PyTorch resamples at least one image
        return images.new_empty((0, images.shape[1], *size))
    half = torch.tensor([(pixels - 1) / 2 for pixels in size], dtype=torch.float64)
    sides = zip(images.shape[2:], size, strict=True)
    step = torch.tensor([window * s / t for s, t in sides], dtype=torch.float64)
    theta = torch.eye(3, dtype=torch.float64).repeat(len(landmarks), 1, 1)
    theta[:, :2, :2] *= step
    theta[:, :2, 2] = landmarks.double().cpu() - step * half
    return _RESAMPLE(images, theta.to(images), tuple(size))


def random_boxes(
    number: int, img_size: Sequence[int], side: Sequence[float], generator: torch.Generator
) -> torch.Tensor:
    """
    Boxes ``(N, 4)`` of random size at random places, wholly inside the image: row, column, height, width in pixels.

    ``side`` is the smallest and largest side as a share of the image's, one share for both axes of a box. Sides are
    even, so that a box can be halved.
    """
    size = torch.tensor(img_size)
    share = side[0] + (side[1] - side[0]) * torch.rand(number, 1, generator=generator)
    sizes = (2 * (share * size / 2).round().long()).clamp_min(2).minimum(size // 2 * 2)
    room = size - sizes + 1
    drawn = torch.rand(number, 2, generator=generator) * room
    return torch.cat([drawn.long().minimum(room - 1), sizes], dim=1)


def split_boxes(boxes: torch.Tensor, parts: int, axes: torch.Tensor) -> torch.Tensor:
    """Cut boxes ``(N, 4)`` into halves along one of the axes ``(N,)``, or into quarters: ``(N, parts, 4)``."""
    cut = torch.ones(len(boxes), 2, dtype=torch.long) if parts == 4 else F.one_hot(axes, 2)
    sizes = boxes[:, 2:] // (1 + cut)
    corners = torch.tensor(list(product(range(2), repeat=2))).expand(len(boxes), -1, -1)
    steps = corners[(corners <= cut[:, None]).all(-1)].reshape(-1, parts, 2)
    starts = boxes[:, None, :2] + steps * sizes[:, None]
    return torch.cat([starts, sizes[:, None].expand_as(starts)], dim=-1)


def crop_and_resize(images: torch.Tensor, boxes: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """Cut one box ``(N, 4)`` out of each image and resize it linearly, with antialiasing; nothing else is seen."""
    crops = images.new_empty((len(images), images.shape[1], *size))
    for crop, image, box in zip(crops, images, boxes.tolist(), strict=True):
        row, column, height, width = box
        crop[:] = resize(image[:, row : row + height, column : column + width], size)
    return crops


def box_masks(boxes: torch.Tensor, img_size: Sequence[int]) -> torch.Tensor:
    """Pixels ``(N, H, W)`` that boxes ``(N, 4)`` touch; a box without extent has none."""
    lower, extent = boxes.chunk(2, dim=1)
    first, end = lower.floor(), torch.where(extent > 0, lower + extent, lower).ceil()
    rows, columns = (
        (torch.arange(length) >= first[:, axis, None])
        & (torch.arange(length) < end[:, axis, None])
        & (extent > 0).all(1, keepdim=True)
        for axis, length in enumerate(img_size)
    )
    return rows[:, :, None] & columns[:, None, :]
