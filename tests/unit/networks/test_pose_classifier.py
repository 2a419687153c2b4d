# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The pose classifier: turning a picture turns its answer; the released one on drawn radiographs."""

from __future__ import annotations

import pytest
import torch

from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.networks import PoseClassifier
from monai_afire.networks.nets.pose_classifier import POSES, QUALITIES, turned
from monai_afire.networks.weights.finding import released_file


@pytest.fixture(scope="module")
def chests() -> torch.Tensor:
    return torch.stack(
        [torch.as_tensor(draw_chest_phantom(seed, 128).image) for seed in range(24)]
    ).float()


def test_poses_are_eight_and_differ() -> None:
    image = torch.rand(1, 5, 5)
    poses = torch.stack([turned(image, pose) for pose in range(POSES)]).flatten(1)
    assert len(poses.unique(dim=0)) == POSES
    assert torch.equal(turned(image, 1), image.rot90(1, (1, 2)))
    assert torch.equal(turned(image, 4), image.flip(2))


@pytest.mark.parametrize("pose", range(POSES))
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


@pytest.mark.parametrize("pose", range(4))
def test_released_knows_how_drawn_radiographs_are_turned(chests: torch.Tensor, pose: int) -> None:
    poses, _ = PoseClassifier.released()(turned(chests, pose))
    assert (poses.argmax(1) % 4 == pose).float().mean() > 0.8


def test_released_tells_negatives(chests: torch.Tensor) -> None:
    classifier, place = PoseClassifier.released(), QUALITIES.index("inverted")
    assert (classifier(chests)[1][:, place] < 0).float().mean() > 0.8
    assert (classifier(1 - chests)[1][:, place] > 0).float().mean() > 0.8


def test_released_tells_what_is_no_chest() -> None:
    noise = torch.rand(16, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    assert (PoseClassifier.released()(noise)[1][:, QUALITIES.index("not_chest")] > 0).all()


def test_released_tells_two_views(chests: torch.Tensor) -> None:
    both = torch.cat([chests[:8], torch.zeros(8, 1, 128, 6), chests[8:16]], 3)
    found = PoseClassifier.released()(both)[1][:, QUALITIES.index("two_views")]
    assert (found > 0).float().mean() > 0.8


def test_released_weights_are_small() -> None:
    assert released_file("pose.safetensors").stat().st_size <= 1e6
