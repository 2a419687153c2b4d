# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""ACE on images whose pixels name their place: every claimed match is one."""

from __future__ import annotations

import math

import torch
from torch import nn

from monai_afire.metrics.ace import ace_metrics
from monai_afire.networks import ACE, RadiographEncoder, patchify
from monai_afire.transforms import GridCropPaird


class PlaceEncoder(RadiographEncoder):
    """Turns a patch of a coordinate image into points on two circles, one for each axis."""

    def __init__(self, side: int, patch: int, frequency: float) -> None:
        super().__init__(2, (side, side), (patch, patch), 4, 0.0, 1.0)
        self.frequency = frequency

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        place = patchify(images, self.patch_size).unflatten(-1, (2, -1)).mean(-1) * self.frequency
        return torch.cat([place.cos(), place.sin()], -1)


class MeanOfParts(nn.Module):
    def forward(self, parts: torch.Tensor) -> torch.Tensor:
        return parts.unflatten(-1, (4, -1)).mean(-2)


class PlacesOfParts(nn.Module):
    def __init__(self, frequency: float) -> None:
        super().__init__()
        self.frequency = frequency

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        place = torch.atan2(tokens[..., 2:], tokens[..., :2])
        steps = torch.tensor([[y, x] for y in (-0.5, 0.5) for x in (-0.5, 0.5)])
        parts = place.unsqueeze(-2) + steps * self.frequency
        return torch.cat([parts.cos(), parts.sin()], -1).flatten(-2)


def test_a_perfect_encoder_matches_perfectly() -> None:
    """
    Crops of an image whose pixels name their place; an encoder that reads it and heads that move it by half a patch.

    Fails when crop, token order, parts or target disagree anywhere on which axis or which crop is which.
    """
    cells, grid = 6, 16
    network = ACE(PlaceEncoder(4 * cells, 4, 2 * math.pi / 40))
    network.composer.add_module("mlp", MeanOfParts())
    network.decomposer.add_module("mlp", PlacesOfParts(2 * math.pi / 40))
    axes = torch.meshgrid(*[(torch.arange(4.0 * grid) + 0.5) / 4] * 2, indexing="ij")  # in cells
    crop = GridCropPaird("image", grid, 4, (cells, 2 * cells), 4 * cells, jitter=False, align=2)
    crop.set_random_state(0)
    pairs = [crop({"image": torch.stack(axes)}) for _ in range(64)]
    keys = ("image_1", "image_2", "offset_1", "offset_2")
    outputs = network(
        *(torch.stack([torch.as_tensor(pair[key]) for pair in pairs]) for key in keys)
    )
    metrics = ace_metrics(outputs)
    assert metrics["composition_accuracy"] == metrics["decomposition_accuracy"] == 1
    means = outputs["global_teacher"].log() - outputs["global_teacher"].log().mean(-1, keepdim=True)
    # both crops' means over the overlap are of the same place (up to the resizing at the border)
    torch.testing.assert_close(means[:, 0], means[:, 1], rtol=0, atol=0.5)
    assert means.std(0).min() > 4
