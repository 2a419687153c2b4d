# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The lung finder: its square on drawn lungs, and the lungs of phantoms that it has not seen."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.networks import LungFinder


class Drawn(LungFinder):
    """Finds what it is given."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images


def naive_field(lungs: torch.Tensor) -> tuple[float, list[float]]:
    """By counting: the rows and columns that hold the middle 94 % of the lungs, and the square around them."""
    extents = []
    for axis in (1, 0):
        profile = lungs.sum(axis).tolist()
        ends = []
        for tail in (0.03, 0.97):
            position, so_far = 0, 0.0
            for value in profile:
                so_far += value
                if so_far / sum(profile) >= tail:
                    break
                position += 1
            ends.append((position + 0.5) / len(profile))
        extents.append(ends)
    sides = [high - low for low, high in extents]
    return 1.2 * (sides[0] * sides[1]) ** 0.5, [(low + high) / 2 - 0.5 for low, high in extents]


def test_square_around_drawn_boxes_is_that_of_counting() -> None:
    generator = torch.Generator().manual_seed(0)
    lungs = torch.zeros(20, 1, 64, 64)
    for mask in lungs:
        top, left = torch.randint(0, 30, (2,), generator=generator).tolist()
        height, width = torch.randint(18, 34, (2,), generator=generator).tolist()
        mask[0, top : top + height, left : left + width] = (
            torch.rand(1, generator=generator) * 0.5 + 0.5
        )
    zoom, shift = Drawn().field(lungs)
    for mask, found, center in zip(lungs, zoom, shift, strict=True):
        side, expected = naive_field(mask[0])
        torch.testing.assert_close(found, torch.full((2,), side))
        torch.testing.assert_close(center, torch.tensor(expected))


def test_without_lungs_the_whole_picture() -> None:
    zoom, shift = Drawn().field(torch.full((2, 1, 64, 64), 0.01))
    assert torch.equal(zoom, torch.ones(2, 2))
    assert torch.equal(shift, torch.zeros(2, 2))


def test_lungs_of_new_phantoms_are_found() -> None:
    phantoms = [draw_chest_phantom(7000 + seed, 128) for seed in range(12)]
    images = torch.stack([torch.as_tensor(phantom.image) for phantom in phantoms])
    organs = torch.stack(
        [torch.as_tensor(phantom.organs[:2].max(0)) for phantom in phantoms]
    ).float()
    truth = F.interpolate(organs[:, None], 64, mode="area") > 0.5
    found = LungFinder.released()(images) > 0.5
    dice = 2 * (found & truth).sum((1, 2, 3)) / (found.sum((1, 2, 3)) + truth.sum((1, 2, 3)))
    assert dice.mean() > 0.8
    assert dice.min() > 0.6


def test_released_finder_is_frozen_and_takes_colors_and_any_shape() -> None:
    finder = LungFinder.released()
    assert not any(parameter.requires_grad for parameter in finder.parameters())
    assert not finder.training
    # multiples of 1/256: the mean of three equal ones is exact
    gray = torch.randint(256, (2, 1, 96, 70)) / 256
    torch.testing.assert_close(finder(gray.expand(-1, 3, -1, -1)), finder(gray))
