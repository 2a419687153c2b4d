# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Anatomy in other patients: who chooses and who reports, how organs are handed on, and what is compared."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
import torch

from monai_afire.apps.evaluation.raw_pixels import RawPixels
from tests.evidence import real_anatomy
from tests.evidence.real_anatomy import (
    COPIED,
    REFERENCES,
    SIZE,
    Anatomy,
    copied,
    halves,
    interval,
    table_of,
    transfer,
)


def moving_organs(count: int = 24) -> Anatomy:
    """A bright square at another place in each image, and its corners."""
    generator = torch.Generator().manual_seed(0)
    images, organs = (
        0.1 * torch.rand(count, 1, SIZE, SIZE, generator=generator),
        torch.zeros(count, 1, SIZE, SIZE),
    )
    corners = torch.randint(0, 5, (count, 2), generator=generator) * 8
    for index, (row, column) in enumerate(corners.tolist()):
        organs[index, 0, row : row + 24, column : column + 24] = 1
    points = torch.stack([corners, corners + 23], 1).float()
    return Anatomy(images + 0.8 * organs, points, organs.bool())


def test_no_image_is_in_both_halves_but_those_that_are_annotated() -> None:
    anatomy = moving_organs()
    parts = halves(anatomy)
    assert torch.equal(
        parts["choosing"].images[:REFERENCES], parts["reporting"].images[:REFERENCES]
    )
    own = {
        name: {tuple(image.flatten()[:9].tolist()) for image in part.images}
        for name, part in parts.items()
    }
    assert len(own["choosing"] & own["reporting"]) == REFERENCES
    assert len(own["choosing"] | own["reporting"]) == len(anatomy.images)


def test_organs_follow_their_features_where_coordinates_do_not() -> None:
    anatomy = halves(moving_organs())["reporting"]
    found = transfer(
        RawPixels(1, (SIZE, SIZE), (8, 8)), anatomy, remove_position=False, neighbors=5
    )
    by_place = copied(anatomy)
    assert found.shape == by_place["transfer"].shape == (12,)
    assert found.mean() > 0.6
    assert found.mean() > by_place["transfer"].mean() + 0.2
    expected = [
        (anatomy.points[:REFERENCES] - points).norm(dim=-1).mean() * 100 / SIZE
        for points in anatomy.points[REFERENCES:]
    ]
    np.testing.assert_allclose(by_place["correspondence"], expected, rtol=1e-5)


def test_images_of_one_patient_are_drawn_together() -> None:
    values = np.repeat([0.0, 1.0], 50)
    narrow, wide = (interval(values, patients) for patients in (range(100), np.arange(100) // 50))
    assert narrow.startswith("0.500 (0.4")
    assert wide == "0.500 (0.000 to 1.000)"


def test_an_encoder_is_compared_with_the_untrained_ones_of_its_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_anatomy, "nih_validation", lambda *_: (None, ["a"] * 4))
    for name, seed, value in (
        ("untrained", 0, 0.1),
        ("untrained", 1, 0.9),
        ("ACE", 1, 0.95),
        (COPIED, 0, 0.3),
    ):
        np.savez(tmp_path / f"{name}_{seed}.npz", transfer=np.full(7, value))
    options = argparse.Namespace(data=tmp_path, output=tmp_path, seeds=[0, 1])
    table = table_of(options, [("untrained", 0), ("ACE", 0)]).set_index("encoder")
    assert table.loc["untrained", "mean"] == "0.500 (0.500 to 0.500)"
    assert table.loc["ACE", "minus untrained"] == "0.050 (0.050 to 0.050)"
    assert table.loc[COPIED, "minus untrained"] == "0.200 (0.200 to 0.200)"
