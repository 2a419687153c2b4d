# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A small network that finds the lungs in frontal radiographs, and the square around them."""

from __future__ import annotations

import torch
from monai.networks.nets import BasicUNet
from torch.nn import functional as F

from monai_afire.networks.nets.released_network import ReleasedNetwork, standardized
from monai_afire.utils.precision import at_least_float32, without_autocast

_SIDE = 64
_FEATURES = (16, 16, 32, 64, 96, 16)
_TAIL = 0.03  # of the lungs, beyond each side of their box: a few wrong pixels do not move it
_MARGIN = 1.2
SMALLEST_LUNGS = 0.05  # share of the picture; below it no lungs were found


class LungFinder(ReleasedNetwork):
    """
    Lungs of frontal radiographs, raw or with their contrast standardized, and the square that holds them.

    MONAI's ``BasicUNet`` on 64 x 64 pixels. The weights that come with the package have seen no lung drawn by hand:
    they learned the lungs of the phantom, then, from what those found in normal adults, those of radiographs.

    Example:
        >>> finder = LungFinder().eval()
        >>> finder(torch.rand(2, 1, 128, 96)).shape
        torch.Size([2, 1, 64, 64])
    """

    weights_file = "lungs.safetensors"

    def __init__(self) -> None:
        super().__init__()
        norm = ("group", {"num_groups": 8})
        self.net = BasicUNet(
            spatial_dims=2, in_channels=1, out_channels=1, features=_FEATURES, norm=norm
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """
        Where the lungs are.

        Args:
            images: ``(B, C, H, W)``, upright, dense parts bright; of colors the mean is taken.

        Returns:
            Probabilities ``(B, 1, 64, 64)``.
        """
        with without_autocast(images):
            small = F.interpolate(
                at_least_float32(images).mean(1, keepdim=True), (_SIDE, _SIDE), mode="area"
            )
            return self.net(standardized(small, 1e-6)).sigmoid()

    def field(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """
        The square field of view around the lungs, wider than they are by a fifth.

        Its side is the geometric mean of the sides of the lungs' box, so that proportions stay. Where no lungs are
        found it is the whole picture.

        Args:
            images: as for :meth:`forward`.

        Returns:
            As ``moved`` takes them: zoom ``(B, 2)``, the side as a fraction of the picture's,
            and shift ``(B, 2)``, of the center, as a fraction of the side, along rows and columns.
        """
        lungs = self(images)[:, 0]
        found = lungs.mean((1, 2)) >= SMALLEST_LUNGS
        rows, columns = _extent(lungs.sum(2)), _extent(lungs.sum(1))
        side = _MARGIN * ((rows[1] - rows[0]) * (columns[1] - columns[0])).clamp_min(1e-6).sqrt()
        center = torch.stack([(low + high) / 2 - 0.5 for low, high in (rows, columns)], 1)
        zoom = torch.where(found, side, torch.ones_like(side)).unsqueeze(1).expand(-1, 2)
        return zoom, torch.where(found.unsqueeze(1), center, torch.zeros_like(center))


def _extent(profile: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where a profile ``(B, 64)`` begins and ends, as fractions of its length, without its tails."""
    share = profile.cumsum(1) / profile.sum(1, keepdim=True).clamp_min(1e-6)
    low, high = (
        (share < tail).sum(1).add(0.5).clamp_max(_SIDE - 0.5) / _SIDE for tail in (_TAIL, 1 - _TAIL)
    )
    return low, high
