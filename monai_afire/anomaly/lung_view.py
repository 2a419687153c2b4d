# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The part of a radiograph that a detector looks at: the square around the lungs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from monai_afire.anomaly.field_of_view import moved
from monai_afire.networks.nets.lung_finder import LungFinder

__all__ = ["FIELDS_OF_VIEW", "LungView", "field_of_view_module"]

FIELDS_OF_VIEW = ("image", "lungs")


class LungView(nn.Module):
    """
    Radiographs cut and scaled so that the lungs lie alike in all of them, and token maps put back.

    A detector compares places. Where a patient is placed differently, or another part of the picture is chest, it
    would compare lung with arm.

    Raises:
        FileNotFoundError: where the package was installed without its bundles.

    Example:
        >>> view = LungView()
        >>> images, field = view(torch.rand(2, 1, 64, 64))
        >>> images.shape, view.put_back(torch.rand(2, 3, 16), (4, 4), field).shape
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
    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
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

    def put_back(
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
        picture = maps.unflatten(2, tuple(grid))
        back = moved(picture, 1 / zoom, torch.zeros_like(zoom[:, 0]), -shift / zoom, mode="bilinear", outside="zeros")
        return back.flatten(2)


def field_of_view_module(name: str, spatial_dims: int) -> LungView | None:
    """
    What a detector applies to its images first.

    Args:
        name: "lungs", or "image" for nothing.
        spatial_dims: of the images.

    Raises:
        ValueError: for another name, and for the lungs of volumes.

    Example:
        >>> field_of_view_module("image", 3) is None
        True
    """
    if name not in FIELDS_OF_VIEW:
        raise ValueError(f"field_of_view must be one of {FIELDS_OF_VIEW}, got {name!r}")
    if name == "image":
        return None
    if spatial_dims != 2:
        raise ValueError("lungs are found in frontal radiographs alone: leave field_of_view at 'image' for volumes")
    return LungView()
