# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from monai_afire.apps.studies.images.affine import (
    DEFAULT_PERTURBATIONS,
    Perturbation,
    landmark_windows,
    perturbed_images,
)


def ramp(size: Sequence[int]) -> torch.Tensor:
    """Channels that say the row and the column (and slice) of each pixel."""
    return torch.stack(torch.meshgrid(*[torch.arange(float(s)) for s in size], indexing="ij"))[None]


def value_at(image: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """Linear interpolation at one place, pixel by pixel."""
    low = place.floor().long()
    part = place - low
    total = torch.zeros(len(image))
    for corner in range(2 ** len(place)):
        step = [(corner >> axis) & 1 for axis in range(len(place))]
        weight = torch.stack([part[a] if s else 1 - part[a] for a, s in enumerate(step)]).prod()
        index = [min(int(low[a]) + s, image.shape[1 + a] - 1) for a, s in enumerate(step)]
        total = total + weight * image[(slice(None), *index)]
    return total


@pytest.mark.parametrize(
    "perturbation",
    [*DEFAULT_PERTURBATIONS, Perturbation("all", -25, 0.8, (0.1, 0.05))],
    ids=lambda change: change.name,
)
def test_landmarks_show_the_same_anatomy(perturbation: Perturbation) -> None:
    image = ramp((32, 40))
    places = torch.tensor([[10.0, 12.0], [16.0, 25.0], [20.3, 18.7]])[None]
    perturbed, moved = perturbed_images(image, places, perturbation)
    assert perturbed.shape == image.shape
    for before, after in zip(places[0], moved[0], strict=True):
        assert not after.isnan().any()
        torch.testing.assert_close(value_at(perturbed[0], after), before, atol=1e-3, rtol=0)


def test_clockwise_enlarged_and_shifted_by_hand() -> None:
    image = ramp((11, 11))
    place = torch.tensor([[[2.0, 5.0]]])  # 3 above the center
    turned = perturbed_images(image, place, Perturbation("", rotation=90))[1]
    torch.testing.assert_close(turned, torch.tensor([[[5.0, 8.0]]]))  # 3 at its right
    larger = perturbed_images(image, place, Perturbation("", scale=1.5))[1]
    torch.testing.assert_close(larger, torch.tensor([[[0.5, 5.0]]]))
    gone = perturbed_images(image, place, Perturbation("", shift=(-0.3, 0)))[1]
    assert gone.isnan().all()


def test_window_covers_its_part() -> None:
    image = ramp((17, 33))
    window = landmark_windows(image, torch.tensor([[[8.0, 16.0], [torch.nan, 3.0]]]), 0.5)
    torch.testing.assert_close(window[0, 0, :, 0, 0], torch.tensor([4.0, 8.0]), atol=1e-4, rtol=0)
    torch.testing.assert_close(
        window[0, 0, :, -1, -1], torch.tensor([12.0, 24.0]), atol=1e-4, rtol=0
    )
    assert window[0, 1].isnan().all()


def test_errors() -> None:
    image, places = ramp((8, 8)), torch.zeros(1, 1, 2)
    with pytest.raises(ValueError, match="shift along each"):
        perturbed_images(image, places, Perturbation("", shift=(0, 0, 0)))
    with pytest.raises(ValueError, match="scale above 0"):
        perturbed_images(image, places, Perturbation("", scale=0))
    with pytest.raises(ValueError, match="expected landmarks"):
        perturbed_images(image, torch.zeros(2, 1, 2), Perturbation(""))
    with pytest.raises(ValueError, match="window"):
        landmark_windows(image, places, 0.0)


def test_no_landmark_has_no_window() -> None:
    assert landmark_windows(ramp((8, 8)), torch.empty(1, 0, 2), 0.5).shape == (1, 0, 2, 8, 8)
    assert landmark_windows(torch.empty(0, 1, 8, 8), torch.empty(0, 3, 2), 0.5).shape == (
        0,
        3,
        1,
        8,
        8,
    )


def test_a_window_of_native_pixels_is_a_plain_cut() -> None:
    """448 of 1,024 pixels for an encoder of 448: here 7 of 16."""
    native = torch.rand(1, 1, 16, 16)
    window = landmark_windows(native, torch.tensor([[[6.0, 9.0]]]), 7 / 16, size=(7, 7))[0, 0]
    torch.testing.assert_close(window, native[0, :, 3:10, 6:13], rtol=0, atol=1e-5)
