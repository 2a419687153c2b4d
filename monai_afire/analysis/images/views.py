# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Other views of the same images, and windows of them, with the exact places of their landmarks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from monai.networks.layers import AffineTransform
from monai.utils import convert_to_tensor

__all__ = ["ACROSS", "DEFAULT_VIEWS", "View", "compared_across", "landmark_windows", "transformed_views", "with_views"]

ACROSS = ("patients", "views", "patients_and_views")
"""What a correspondence may bridge, see :func:`compared_across`."""

# repeats the border: black edges would be landmarks of their own
_RESAMPLE = AffineTransform(padding_mode="border", zero_centered=False)


@dataclass(frozen=True)
class View:
    """
    How another exposure shows the same patient: turned, nearer, elsewhere.

    Args:
        name: in tables.
        rotation: degrees, clockwise in the plane of rows and columns, about the image's centre.
        scale: about the image's centre; above 1 the patient is larger.
        shift: along each axis (down, to the right), fraction of the image's side.

    Example:
        >>> View("nearer", scale=1.2).shift
        (0.0, 0.0)
    """

    name: str
    rotation: float = 0.0
    scale: float = 1.0
    shift: Sequence[float] = (0.0, 0.0)


DEFAULT_VIEWS = (
    View("moved up right", shift=(-0.12, 0.1)),
    View("turned", rotation=12.0),
    View("nearer, moved", rotation=-6.0, scale=1.15, shift=(0.06, -0.08)),
)
"""Views in which the place of the original image misleads by about a tenth of its side."""


def transformed_views(images: torch.Tensor, landmarks: torch.Tensor, view: View) -> tuple[torch.Tensor, torch.Tensor]:
    r"""
    Another view of each image, with its landmarks.

    With the image's centre :math:`c`, a rotation :math:`R`, the scale :math:`s` and the shift :math:`t`, what is at
    :math:`x` is then at

    .. math:: x' = c + s R (x - c) + t

    Pixels are interpolated linearly; what the image does not show repeats its border.

    Args:
        images: ``(M, C, *S)``.
        landmarks: ``(M, P, n)`` in pixels, rows before columns; NaN where one is not known.
        view: how to look at them.

    Returns:
        The views, of the images' size, and their landmarks, exactly; NaN where one has left the view.

    Raises:
        ValueError: for a shift with another number of axes, a scale that is not positive, or landmarks of another
            shape.

    Example:
        >>> images = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> views, landmarks = transformed_views(images, torch.tensor([[[1.0, 1.0]]]), View("down", shift=(0.25, 0)))
        >>> views[0, 0, :, 0].round().tolist(), landmarks.tolist()
        ([0.0, 0.0, 4.0, 8.0], [[[2.0, 1.0]]])
    """
    size = images.shape[2:]
    if len(view.shift) != len(size) or view.scale <= 0:
        raise ValueError(
            f"images of {len(size)} axes need a shift along each and a scale above 0, got shift {tuple(view.shift)} "
            f"and scale {view.scale}"
        )
    if landmarks.shape[:1] != images.shape[:1] or landmarks.shape[2:] != (len(size),):
        raise ValueError(f"expected landmarks ({len(images)}, P, {len(size)}), got {tuple(landmarks.shape)}")
    center = torch.tensor([(s - 1) / 2 for s in size], dtype=torch.float64)
    shift = torch.tensor([part * s for part, s in zip(view.shift, size, strict=True)], dtype=torch.float64)
    forward = view.scale * _rotation(view.rotation, len(size))
    moved = (landmarks.double().cpu() - center) @ forward.T + center + shift
    outside = ((moved < 0) | (moved > 2 * center)).any(-1, keepdim=True)
    moved = moved.masked_fill(outside, torch.nan).to(landmarks)
    back = torch.linalg.inv(forward)
    theta = _homogeneous(back[None], (center - back @ (center + shift))[None])
    return _RESAMPLE(images, theta.to(images)), moved


def with_views(
    images: torch.Tensor, landmarks: torch.Tensor, views: Sequence[View] = DEFAULT_VIEWS
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    The images as they are, followed by all of them in each view.

    Args:
        images: ``(M, C, *S)``.
        landmarks: ``(M, P, n)`` in pixels, rows before columns; NaN where one is not known.
        views: see :func:`transformed_views`.

    Returns:
        Images and landmarks, ``(1 + len(views)) M`` of them: number v M + m is image m in view v, and view 0 the image.

    Raises:
        ValueError: as :func:`transformed_views`.

    Example:
        >>> images, landmarks = with_views(torch.rand(2, 1, 8, 8), torch.rand(2, 3, 2))
        >>> images.shape, landmarks.shape
        (torch.Size([8, 1, 8, 8]), torch.Size([8, 3, 2]))
    """
    plain = convert_to_tensor(images, dtype=torch.float32, track_meta=False)
    places = convert_to_tensor(landmarks, dtype=torch.float32, track_meta=False)
    pairs = [(plain, places), *[transformed_views(plain, places, view) for view in views]]
    return torch.cat([image for image, _ in pairs]), torch.cat([place for _, place in pairs])


def compared_across(table: pd.DataFrame, num_images: int) -> pd.DataFrame:
    """
    Say of each pair of a table of correspondences between :func:`with_views` what it bridges.

    Args:
        table: of :func:`monai_afire.analysis.landmark_correspondence` or its baseline.
        num_images: M, of the images before views were added.

    Returns:
        The table with "across": "patients" (another patient, the same view), "views" (the same patient in another
        view) or "patients_and_views".

    Example:
        >>> table = pd.DataFrame({"reference": [0, 0, 0], "query": [1, 2, 3]})
        >>> compared_across(table, num_images=2)["across"].tolist()
        ['patients', 'views', 'patients_and_views']
    """
    same_patient = table["reference"] % num_images == table["query"] % num_images
    same_view = table["reference"] // num_images == table["query"] // num_images
    return table.assign(across=np.select([same_view, same_patient], ACROSS[:2], ACROSS[2]))


def landmark_windows(images: torch.Tensor, landmarks: torch.Tensor, window: float) -> torch.Tensor:
    """
    Cut a window around each landmark and enlarge it to the image's size.

    Args:
        images: ``(M, C, *S)``.
        landmarks: ``(M, P, n)`` in pixels, rows before columns; NaN where one is not known.
        window: side of the window as a fraction of the image's, in (0, 1].

    Returns:
        ``(M, P, C, *S)``, the landmark in the centre; the border repeats beyond the image. NaN for unknown landmarks.

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
    size = images.shape[2:]
    half = torch.tensor([(s - 1) / 2 for s in size], dtype=torch.float64)
    places = landmarks.double().cpu().flatten(0, 1)
    unknown = places.isnan().any(-1)
    back = (window * torch.eye(dims, dtype=torch.float64)).expand(len(places), -1, -1)
    theta = _homogeneous(back, places.nan_to_num() - window * half)
    windows = _RESAMPLE(images.repeat_interleave(number, dim=0), theta.to(images))
    windows[unknown.to(windows.device)] = torch.nan
    return windows.unflatten(0, (len(images), number))


def _rotation(degrees: float, dims: int) -> torch.Tensor:
    """Turns rows towards columns; further axes stay."""
    matrix = torch.eye(dims, dtype=torch.float64)
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    matrix[:2, :2] = torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)
    return matrix


def _homogeneous(linear: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Matrices (B, n + 1, n + 1) of x -> linear x + offset."""
    dims = linear.shape[-1]
    matrix = torch.eye(dims + 1, dtype=linear.dtype).repeat(len(linear), 1, 1)
    matrix[:, :dims, :dims], matrix[:, :dims, dims] = linear, offset
    return matrix
