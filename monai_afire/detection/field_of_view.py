# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Fields of view: moved images, and the square around the lungs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from monai_afire.networks.nets.lung_finder import LungFinder


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


FIELDS_OF_VIEW = ("image", "lungs")


class LungView(nn.Module):
    """
    Crop and scale radiographs so that the lungs lie alike in all of them, and map token maps back to the image.

    A detector compares places. Where a patient is placed differently, or another part of the picture is chest, it
    would compare lung with arm.

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
        The lungs' square of images ``(B, C, H, W)``, of the same shape, and the field: zoom and shift.

        What lies beyond the picture is continued from its border. See :meth:`monai_afire.networks.LungFinder.field`.
        """
        zoom, shift = self.finder.field(images)
        return moved(images, zoom, torch.zeros_like(zoom[:, 0]), shift), (zoom, shift)

    def to_picture(
        self, maps: torch.Tensor, grid: Sequence[int], field: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """
        Token maps ``(B, M, L)`` of the square on a grid as those of the picture, linearly interpolated.

        Off the square they are 0, the value of an average normal image.
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
