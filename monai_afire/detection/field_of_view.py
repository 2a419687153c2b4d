# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Fields of view: moved copies of the images, neighboring views, and the square around the lungs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from monai_afire.networks.nets.lung_finder import LungFinder

# of the copies that normal images are joined by: how differently patients are placed
ZOOM = 0.12  # of all axes together, as a logarithm; each axis differs by half of it
TURN = math.radians(7)
SHIFT = 0.06  # of the side

# of the views in which an image is scored
MAX_VIEWS = 9
_STEP_ZOOM, _STEP_TURN, _STEP_SHIFT = 0.08, math.radians(5), 0.04


def moved(
    images: torch.Tensor,
    zoom: torch.Tensor,
    turn: torch.Tensor,
    shift: torch.Tensor,
    mode: str = "bicubic",
    outside: str = "border",
) -> torch.Tensor:
    """
    Resample images with another field of view.

    Args:
        images: ``(B, C, H, W)``.
        zoom: ``(B, 2)``, size of the new field of view along rows and columns; above 1 shows more.
        turn: ``(B,)``, rotation in radians.
        shift: ``(B, 2)``, of the center along rows and columns, as a fraction of the side.
        mode: of ``torch.nn.functional.grid_sample``.
        outside: "border" continues the image, "zeros" does not.

    Returns:
        ``(B, C, H, W)``, between the smallest and the largest value of each image where it is continued.

    Example:
        >>> image = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> one_row_down = moved(image, torch.ones(1, 2), torch.zeros(1), torch.tensor([[0.25, 0.0]]))
        >>> one_row_down[0, 0, :, 0].round().tolist()
        [4.0, 8.0, 12.0, 12.0]
    """
    height, width = images.shape[-2:]
    rows, columns = zoom.unbind(1)
    cos, sin = turn.cos(), turn.sin()
    # affine_grid counts the axes from the last one, in halves of the side
    along_columns = torch.stack([columns * cos, -rows * sin * height / width, 2 * shift[:, 1]], 1)
    along_rows = torch.stack([columns * sin * width / height, rows * cos, 2 * shift[:, 0]], 1)
    theta = torch.stack([along_columns, along_rows], 1).to(images)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    views = F.grid_sample(images, grid, mode=mode, padding_mode=outside, align_corners=False)
    if outside == "zeros":
        return views
    axes = (1, 2, 3)
    return views.clamp(images.amin(axes, keepdim=True), images.amax(axes, keepdim=True))


def random_views(images: torch.Tensor, numbers: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """
    A copy of each image with a randomly chosen field of view, which depends on the image's number and the seed alone.

    Args:
        images: ``(B, C, H, W)``.
        numbers: ``(B,)`` whole numbers from 0.
        seed: of the draw.

    Returns:
        ``(B, C, H, W)``.
    """
    draws = []
    for number in numbers.tolist():
        # of a seed the generator uses the lower 32 bits
        generator = torch.Generator().manual_seed((seed << 24) + int(number))
        draws.append(2 * torch.rand(6, generator=generator) - 1)
    drawn = torch.stack(draws).to(images.device)
    zoom = (ZOOM * drawn[:, :1] + ZOOM / 2 * drawn[:, 1:3]).exp()
    return moved(images, zoom, TURN * drawn[:, 3], SHIFT * drawn[:, 4:])


def fixed_view(images: torch.Tensor, number: int) -> torch.Tensor:
    """
    One of the neighboring fields of view: as it is, wider and closer, turned and shifted both ways.

    Args:
        images: ``(B, C, H, W)``.
        number: 0 for the image itself, up to ``MAX_VIEWS`` - 1.

    Returns:
        ``(B, C, H, W)``.
    """
    if number == 0:
        return images
    sign = 1 if number % 2 else -1
    zoom = torch.ones(len(images), 2, device=images.device)
    turn = torch.zeros(len(images), device=images.device)
    shift = torch.zeros(len(images), 2, device=images.device)
    if number <= 2:
        zoom = zoom * math.exp(sign * _STEP_ZOOM)
    elif number <= 4:
        turn = turn + sign * _STEP_TURN
    else:
        shift[:, 1 - (number - 5) // 2] = sign * _STEP_SHIFT
    return moved(images, zoom, turn, shift)


FIELDS_OF_VIEW = ("image", "lungs")


class LungView(nn.Module):
    """
    Crop and scale radiographs so that the lungs lie alike in all of them, and map token maps back to the image.

    A detector compares places. Where a patient is placed differently, or another part of the picture is chest, it
    would compare lung with arm.

    Raises:
        FileNotFoundError: where the package was installed without its bundles.

    Example:
        >>> view = LungView()
        >>> images, field = view(torch.rand(2, 1, 64, 64))
        >>> images.shape, view.to_picture(torch.rand(2, 3, 16), (4, 4), field).shape
        (torch.Size([2, 1, 64, 64]), torch.Size([2, 3, 16]))
    """

    def __init__(self) -> None:
        super().__init__()
        self.finder = LungFinder.released()

    def train(self, mode: bool = True) -> LungView:
        """The finder stays as it is: frozen and in evaluation mode."""
        super().train(False)
        return self

    @torch.no_grad()
    def forward(
        self, images: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """
        Cut out the lungs' square.

        Args:
            images: ``(B, C, H, W)``.

        Returns:
            Images of the same shape; what lies beyond the picture is continued from its border. And the field: zoom and
            shift, see :meth:`monai_afire.networks.LungFinder.field`.
        """
        zoom, shift = self.finder.field(images)
        return moved(images, zoom, torch.zeros_like(zoom[:, 0]), shift), (zoom, shift)

    def to_picture(
        self, maps: torch.Tensor, grid: Sequence[int], field: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """
        Token maps of the square as token maps of the picture.

        Args:
            maps: ``(B, M, L)``.
            grid: tokens along rows and columns, L in all.
            field: of the images.

        Returns:
            ``(B, M, L)``, linearly interpolated; 0, the value of an average normal image, off the square.
        """
        zoom, shift = field
        still = torch.zeros_like(zoom[:, 0])
        picture = maps.unflatten(2, tuple(grid))
        return moved(picture, 1 / zoom, still, -shift / zoom, "bilinear", "zeros").flatten(2)


def field_of_view_module(name: str) -> LungView | None:
    """What a detector applies to its images first."""
    if name not in FIELDS_OF_VIEW:
        raise ValueError(f"field_of_view must be one of {FIELDS_OF_VIEW}, got {name!r}")
    return LungView() if name == "lungs" else None
