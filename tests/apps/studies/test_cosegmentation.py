# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

from itertools import product

import pytest
import torch
from apps.studies.stub_encoders import PatchMeanEncoder

from monai_afire.apps.studies.cosegmentation import (
    best_dice,
    cosegment,
    organ_clusters,
    score_segments,
    segments_to_masks,
)


def organs(
    num_images: int = 8, on_grid: bool = False, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two organs that lie elsewhere in each image; images whose channels say the organ of each pixel."""
    generator = torch.Generator().manual_seed(seed)
    masks = torch.zeros(num_images, 2, 64, 64, dtype=torch.bool)
    for image in masks:
        for organ, side in enumerate((24, 16)):
            row, column = torch.randint(0, 64 - side + 1, (2,), generator=generator).tolist()
            if on_grid:
                row, column = row // 8 * 8, column // 8 * 8
            image[organ, row : row + side, column : column + side] = True
        image[1] &= ~image[0]
    background = ~masks.any(1, keepdim=True)
    return torch.cat([masks, background], dim=1).float(), masks


def dice(predicted: torch.Tensor, truth: torch.Tensor) -> float:
    return float(2 * (predicted & truth).sum() / (predicted.sum() + truth.sum()))


def test_features_that_are_organs_reach_the_limit_of_the_resolution() -> None:
    images, masks = organs(on_grid=True)
    encoder = PatchMeanEncoder(3, (64, 64), (8, 8))
    labels = cosegment(encoder, images, num_clusters=3, batch_size=3)
    table, _ = score_segments(labels, masks, [0, 4])
    assert table["dice"].dropna().tolist() == [1.0] * table["dice"].notna().sum()
    assert best_dice(labels, masks, [0, 4])["dice"].dropna().eq(1).all()
    # off the grid a cell is of several organs, and no cells do better than the limit
    images, masks = organs(on_grid=False)
    labels = cosegment(encoder, images, num_clusters=3)
    found = score_segments(labels, masks, [0, 4])[0]["dice"]
    limit = best_dice(labels, masks, [0, 4])["dice"]
    assert (found <= limit + 1e-9).all()
    assert found.mean() > limit.mean() - 0.05


def test_the_best_union_of_all_and_its_dice() -> None:
    generator = torch.Generator().manual_seed(4)
    _, masks = organs(seed=4)
    labels = torch.randint(5, (8, 8, 8), generator=generator)
    table, clusters = score_segments(labels, masks, [0, 3])
    predicted = segments_to_masks(labels, clusters, (64, 64))
    assert sorted(table["image"].unique()) == [1, 2, 4, 5, 6, 7]
    for row in table.itertuples():
        place = (row.image, row.organ)
        assert row.dice == pytest.approx(dice(predicted[place], masks[place]), abs=1e-6)
    for organ in range(2):
        truth = masks[[0, 3], organ]
        scores = {}
        for chosen in product([False, True], repeat=5):
            union = torch.tensor(chosen)[labels[[0, 3]]]
            union = union.repeat_interleave(8, 1).repeat_interleave(8, 2)
            scores[chosen] = dice(union, truth)
        assert scores[tuple(clusters[:, organ].tolist())] == pytest.approx(max(scores.values()))


def test_scored_images_are_not_looked_at() -> None:
    _, masks = organs(seed=5)
    labels = torch.randint(5, (8, 8, 8), generator=torch.Generator().manual_seed(5))
    changed = masks.clone()
    changed[[1, 2, 3, 5, 6, 7]] = ~changed[[1, 2, 3, 5, 6, 7]]
    assert torch.equal(
        organ_clusters(labels, masks, [0, 4]), organ_clusters(labels, changed, [0, 4])
    )


def test_no_organ_and_no_image_left() -> None:
    labels, nothing = torch.zeros(3, 2, 2, dtype=torch.long), torch.zeros(3, 1, 8, 8) > 0
    assert score_segments(labels, nothing, [0])[0]["dice"].isna().all()
    assert best_dice(labels, nothing, [0])["dice"].isna().all()
    with pytest.raises(ValueError, match="references"):
        score_segments(labels, nothing, [0, 1, 2])
