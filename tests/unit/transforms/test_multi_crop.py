# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Multi-crop: shares and places of the crops, appearance of each, repeats, what does not fit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from monai.transforms import Compose, RandAdjustContrast

from monai_afire.transforms import RandMultiCrop, RandMultiCropd
from unit.transforms.images_and_lesions import coordinate_image


def boxes_of(transform: RandMultiCrop, kind: int) -> np.ndarray:
    """Starts and stops, (crops, dims, 2)."""
    return np.array([[(axis.start, axis.stop) for axis in box] for box in transform.boxes[kind]])


def test_crops_show_what_their_boxes_say() -> None:
    """The mean of the coordinates of a crop is the middle of its box, its span the box's length."""
    transform = RandMultiCrop(16, 8, num_local=5).set_random_state(0)
    image = coordinate_image(60, 40)
    for kind, crops in enumerate(transform(image)):
        for crop, box in zip(crops, boxes_of(transform, kind), strict=True):
            torch.testing.assert_close(
                crop.mean((1, 2)).numpy(), (box.sum(1) - 1) / 2, rtol=0, atol=0.3
            )
            for axis in range(2):
                span = float(crop[axis].max() - crop[axis].min())
                assert span == pytest.approx(
                    np.diff(box[axis])[0] * (1 - 1 / crop.shape[1 + axis]), abs=1.5
                )
                assert bool((crop[axis].diff(dim=axis) >= 0).all()), "upright and not mirrored"


def test_shares_aspects_and_places_are_spread_over_their_ranges() -> None:
    shape = (200, 160)
    transform = RandMultiCrop(
        8, 8, num_global=1, num_local=400, local_scale=(0.1, 0.3)
    ).set_random_state(0)
    transform.randomize(shape)
    boxes = boxes_of(transform, 1)
    sides = np.diff(boxes, axis=-1)[..., 0]
    shares = sides.prod(1) / math.prod(shape)
    assert 0.09 < shares.min() < 0.12 < 0.28 < shares.max() < 0.33
    assert 0.18 < shares.mean() < 0.22
    ratios = np.log(sides[:, 0] / sides[:, 1])
    assert np.abs(ratios).max() < math.log(4 / 3) + 0.1
    assert abs(ratios.mean()) < 0.03
    assert ratios.std() > 0.1
    assert (boxes[..., 0] >= 0).all()
    assert (boxes[..., 1] <= np.array(shape)).all()
    free = (boxes[..., 0] / (np.array(shape) - sides)).mean(0)
    assert np.abs(free - 0.5).max() < 0.06


def test_the_whole_image_is_a_crop_too_and_stays_as_it_is() -> None:
    image = torch.rand(1, 12, 12)
    before = image.clone()
    whole: dict[str, Any] = {"num_local": 0, "global_scale": (1, 1), "aspect_ratio": (1, 1)}
    crops, none = RandMultiCrop(12, 6, 3, **whole, augment=lambda crop: crop.mul_(0))(image)
    assert crops.shape == (3, 1, 12, 12)
    assert none.shape == (0, 1, 6, 6)
    assert not crops.any()
    assert torch.equal(image, before), "an augmentation in place reaches the crop alone"


def test_every_crop_has_an_appearance_of_its_own_that_repeats() -> None:
    augment = Compose([RandAdjustContrast(prob=1, gamma=(0.5, 2))])
    whole: dict[str, Any] = {"num_local": 3, "global_scale": (1, 1), "local_scale": (1, 1)}
    transform = RandMultiCrop(8, 8, **whole, augment=augment).set_random_state(0)
    image = torch.rand(1, 8, 8)
    first, again, new = transform(image), transform(image, randomize=False), transform(image)
    for crops, repeated, others in zip(first, again, new, strict=True):
        assert torch.equal(crops, repeated)
        assert not torch.equal(crops, others)
        assert len({float(crop.mean()) for crop in crops}) == len(crops)
        assert type(crops) is torch.Tensor
    seeded = RandMultiCrop(8, 8, **whole, augment=augment)
    assert torch.equal(seeded.set_random_state(0)(image)[0], first[0])


@pytest.mark.parametrize("name", ["global_scale", "local_scale", "aspect_ratio"])
def test_reversed_ranges_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        RandMultiCropd("image", **{name: (0.9, 0.1)})  # type: ignore[arg-type]
