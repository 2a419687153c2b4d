# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Images of a study: rows are selected with all that is known of them, and what does not fit is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pytest
import torch

from monai_afire.apps.studies import StudyImages
from monai_afire.apps.studies.images.study_images import reference_indices

NUMBER = 20


def known_of(rows: Sequence[int]) -> dict[str, Any]:
    """A value for every field of images of which each is known by its number."""
    index = torch.as_tensor(rows)
    return {
        "image": index.reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2) / NUMBER,
        "group": [str(row) for row in rows],
        "landmarks": index.float().reshape(-1, 1, 1).expand(-1, 3, 2),
        "landmark_names": ["apex", "carina", "hilum"],
        "masks": (index % 2 == 1).reshape(-1, 1, 1, 1).expand(-1, 2, 2, 2),
        "mask_names": ["heart", "lung"],
        "boxes": [torch.full((row % 3, 4), float(row)) for row in rows],
        "box_kinds": [[f"kind {row}"] * (row % 3) for row in rows],
        "native": index.reshape(-1, 1, 1, 1).expand(-1, 1, 5, 5) / NUMBER,
    }


@pytest.mark.parametrize("name", [item.name for item in fields(StudyImages)])
@pytest.mark.parametrize("rows", [[3, 0, 19], [7], []], ids=str)
def test_every_field_is_selected(name: str, rows: list[int]) -> None:
    selected = getattr(StudyImages(**known_of(range(NUMBER))).select(rows), name)
    expected = known_of(rows)[name]  # a new field is to be added there
    if isinstance(expected, torch.Tensor):
        assert torch.equal(selected, expected)
    else:
        assert len(selected) == len(expected)
        for own, other in zip(selected, expected, strict=True):
            assert torch.equal(own, other) if isinstance(own, torch.Tensor) else own == other


def test_unknown_stays_unknown() -> None:
    selected = StudyImages(torch.rand(3, 1, 2, 2), group=["a", "b", "c"]).select([1])
    assert [
        item.name for item in fields(StudyImages) if getattr(selected, item.name) is not None
    ] == ["image", "group"]


def test_samples_are_in_order_and_repeat_themselves() -> None:
    images = StudyImages(**known_of(range(NUMBER)))
    sampled = images.sample(6, seed=3)
    assert sampled.group is not None
    rows = [int(group) for group in sampled.group]
    assert rows == sorted(set(rows))
    assert len(rows) == 6
    assert images.sample(6, seed=3).group == sampled.group
    assert images.sample(6, seed=4).group != sampled.group
    assert images.sample(NUMBER) is images
    with pytest.raises(ValueError, match="max_images"):
        images.sample(0)


def test_references_are_spread() -> None:
    assert reference_indices(5, 10) == [0, 2, 4, 6, 8]
    assert reference_indices(99, 3) == [0, 1, 2]
    with pytest.raises(ValueError, match="different indices from 0 to 2"):
        reference_indices([0, 0], 3)


def test_images_refuse_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="2 group for 3 images"):
        StudyImages(torch.rand(3, 1, 8, 8), group=["a", "b"])
    with pytest.raises(ValueError, match="1 mask_names for 2 channels"):
        StudyImages(torch.rand(3, 1, 8, 8), masks=torch.ones(3, 2, 8, 8), mask_names=["lung"])
    with pytest.raises(ValueError, match="no organs"):
        StudyImages(torch.rand(3, 1, 8, 8)).missing(["organs"])
