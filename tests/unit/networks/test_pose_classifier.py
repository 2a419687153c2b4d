# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The pose classifier: turning a picture turns its answer; the released one on drawn radiographs."""

from __future__ import annotations

import pytest
import torch

from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.networks import PoseClassifier
from monai_afire.networks.nets.pose_classifier import POSES, QUALITIES, turned


@pytest.fixture(scope="module")
def chests() -> torch.Tensor:
    return torch.stack(
        [torch.as_tensor(draw_chest_phantom(seed, 128).image) for seed in range(10)]
    ).float()


def test_turns_and_the_mirror() -> None:
    image = torch.rand(1, 5, 5)
    assert torch.equal(turned(image, 1), image.rot90(1, (1, 2)))
    assert torch.equal(turned(image, 4), image.flip(2))


@pytest.mark.parametrize("pose", [1, 6])
def test_turning_the_picture_turns_the_answer(pose: int) -> None:
    classifier = PoseClassifier().eval()
    images = torch.rand(3, 1, 64, 64)
    grid = torch.arange(9).view(3, 3)
    composed = [
        next(
            k for k in range(POSES) if torch.equal(turned(grid, k), turned(turned(grid, own), pose))
        )
        for own in range(POSES)
    ]
    with torch.no_grad():
        poses, qualities = classifier(images)
        turned_poses, turned_qualities = classifier(turned(images, pose))
    torch.testing.assert_close(turned_poses[:, composed], poses, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(turned_qualities, qualities, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pose", [0, 1])
def test_released_knows_how_drawn_radiographs_are_turned(chests: torch.Tensor, pose: int) -> None:
    poses, _ = PoseClassifier.released()(turned(chests, pose))
    assert (poses.argmax(1) % 4 == pose).float().mean() > 0.8


def test_released_tells_negatives_two_views_and_what_is_no_chest(chests: torch.Tensor) -> None:
    classifier = PoseClassifier.released()
    both = torch.cat([chests[:5], torch.zeros(5, 1, 128, 6), chests[5:]], 3)
    noise = torch.rand(4, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    of_chests = classifier(chests)[1]
    for quality, images in (("inverted", 1 - chests), ("two_views", both), ("not_chest", noise)):
        place = QUALITIES.index(quality)
        assert (classifier(images)[1][:, place] > 0).float().mean() > 0.8, quality
        assert (of_chests[:, place] < 0).float().mean() > 0.8, quality
