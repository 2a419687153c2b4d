# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from monai_afire.apps.studies.regions import (
    PERTURBATIONS,
    Perturbation,
    box_masks,
    landmark_windows,
    perturbed_images,
    random_boxes,
    split_boxes,
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
    [*PERTURBATIONS, Perturbation("all", -25, 0.8, (0.1, 0.05))],
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


def test_a_window_of_native_pixels_is_a_plain_cut() -> None:
    """448 of 1,024 pixels for an encoder of 448: here 7 of 16."""
    native = torch.rand(1, 1, 16, 16)
    window = landmark_windows(native, torch.tensor([[6.0, 9.0]]), 7 / 16, size=(7, 7))
    torch.testing.assert_close(window, native[:, :, 3:10, 6:13], rtol=0, atol=1e-5)


@pytest.mark.parametrize("img_size", [(32, 32), (33, 64)])
def test_boxes_are_inside_and_even_and_of_the_sides_asked_for(img_size: tuple[int, int]) -> None:
    boxes = random_boxes(500, img_size, (0.3, 0.6), torch.Generator().manual_seed(0))
    lower, size = boxes.chunk(2, dim=1)
    limit = torch.tensor(img_size)
    assert (lower >= 0).all()
    assert (lower + size <= limit).all()
    assert (size % 2 == 0).all()
    assert (size >= 0.3 * limit - 1).all()
    assert (size <= 0.6 * limit + 1).all()
    assert (lower == 0).any()
    assert (lower + size == limit // 2 * 2).any()  # the far border is reached


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_cover_the_box_once(parts: int) -> None:
    boxes = random_boxes(20, (32, 40), (0.3, 0.6), torch.Generator().manual_seed(0))
    divided = split_boxes(boxes, parts, torch.arange(20) % 2)
    covered = box_masks(divided.flatten(0, 1), (32, 40)).unflatten(0, (20, parts)).int().sum(1)
    assert torch.equal(covered, box_masks(boxes, (32, 40)).int())
    assert len(divided[..., 2:].unique(dim=1)[0]) == 1  # equal parts


def test_masks_of_boxes() -> None:
    boxes = torch.tensor(
        [[1.2, 0.0, 1.5, 2.0], [0.0, 0.0, 0.0, 0.0], [2.0, 3.0, 5.0, 5.0], [0.5, 1.0, 0.0, 2.0]]
    )
    masks = box_masks(boxes, (4, 4)).int()
    assert masks[0].tolist() == [[0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]
    assert masks[2].nonzero().tolist() == [[2, 3], [3, 3]]  # beyond the image there is no pixel
    assert masks[[1, 3]].sum() == 0
