# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The lung finder: its square on drawn lungs, and the lungs of phantoms that it has not seen."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.networks import LungFinder


class Drawn(LungFinder):
    """Finds what it is given."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images


def test_square_around_a_box_by_hand() -> None:
    lungs = torch.zeros(1, 1, 64, 64)
    lungs[..., 16:48, 4:20] = 0.7
    zoom, shift = Drawn().field(lungs)
    # a tail of 3 % is less than one row or column: from the middle of the first to that of the last
    assert zoom[0].tolist() == pytest.approx([1.2 * (31 * 15) ** 0.5 / 64] * 2)
    assert shift[0].tolist() == pytest.approx([0.0, 12 / 64 - 0.5])


def test_without_lungs_the_whole_picture() -> None:
    zoom, shift = Drawn().field(torch.full((2, 1, 64, 64), 0.01))
    assert torch.equal(zoom, torch.ones(2, 2))
    assert torch.equal(shift, torch.zeros(2, 2))


def test_lungs_of_new_phantoms_are_found() -> None:
    phantoms = [draw_chest_phantom(7000 + seed, 128) for seed in range(6)]
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
