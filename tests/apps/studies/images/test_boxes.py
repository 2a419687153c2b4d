# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from monai_afire.apps.studies.images.boxes import (
    box_masks,
    crop_and_resize,
    random_boxes,
    split_boxes,
)


@pytest.mark.parametrize("img_size", [(32, 32), (33, 64), (5, 2), (16, 24, 20)])
def test_boxes_are_inside_and_even_and_of_the_sides_asked_for(img_size: tuple[int, ...]) -> None:
    boxes = random_boxes(500, img_size, (0.3, 0.6), torch.Generator().manual_seed(0))
    lower, size = boxes.split(len(img_size), dim=1)
    limit = torch.tensor(img_size)
    assert (lower >= 0).all()
    assert (lower + size <= limit).all()
    assert (size % 2 == 0).all()
    assert (size >= 2).all()
    if min(img_size) > 15:
        assert (size >= 0.3 * limit - 1).all()
        assert (size <= 0.6 * limit + 1).all()
        assert (lower == 0).any()
        assert (lower + size == limit // 2 * 2).any()  # the far border is reached


@pytest.mark.parametrize(
    ("img_size", "parts"), [((32, 40), 2), ((32, 40), 4), ((16, 16, 16), 2), ((16, 16, 16), 8)]
)
def test_parts_cover_the_box_once(img_size: tuple[int, ...], parts: int) -> None:
    boxes = random_boxes(20, img_size, generator=torch.Generator().manual_seed(0))
    axes = torch.arange(20) % len(img_size)
    divided = split_boxes(boxes, parts, axes)
    assert divided.shape == (20, parts, 2 * len(img_size))
    covered = box_masks(divided.flatten(0, 1), img_size).unflatten(0, (20, parts)).int().sum(1)
    assert torch.equal(covered, box_masks(boxes, img_size).int())
    assert len(divided[..., len(img_size) :].unique(dim=1)[0]) == 1  # equal parts
    if parts == 2:
        halved = boxes[:, len(img_size) :] // divided[:, 0, len(img_size) :]
        assert torch.equal(halved.argmax(1), axes)


def test_crops_are_those_of_interpolate() -> None:
    torch.manual_seed(0)
    images = torch.rand(6, 2, 24, 40)
    boxes = random_boxes(6, (24, 40))
    crops = crop_and_resize(images, boxes, (24, 40))
    for image, (row, column, height, width), crop in zip(
        images, boxes.tolist(), crops, strict=True
    ):
        part = image[None, :, row : row + height, column : column + width]
        expected = F.interpolate(part, size=(24, 40), mode="bilinear", align_corners=False)[0]
        torch.testing.assert_close(crop, expected, atol=2e-5, rtol=0)


def test_masks_of_boxes() -> None:
    boxes = torch.tensor(
        [[1.2, 0.0, 1.5, 2.0], [0.0, 0.0, 0.0, 0.0], [2.0, 3.0, 5.0, 5.0], [0.5, 1.0, 0.0, 2.0]]
    )
    masks = box_masks(boxes, (4, 4)).int()
    assert masks[0].tolist() == [[0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]
    assert masks[2].nonzero().tolist() == [[2, 3], [3, 3]]  # beyond the image there is no pixel
    assert masks[[1, 3]].sum() == 0
    assert box_masks(torch.empty(0, 4), (4, 4)).shape == (0, 4, 4)


@pytest.mark.parametrize("side", [(0, 0.5), (0.6, 0.3), (0.5, 1.1)])
def test_refuses_sides_that_are_no_shares(side: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="two shares"):
        random_boxes(1, (8, 8), side)


def test_refuses_other_parts() -> None:
    with pytest.raises(ValueError, match="2 or 4 parts"):
        split_boxes(torch.tensor([[0, 0, 4, 4]]), 3)
