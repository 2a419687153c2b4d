# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which found organs are taught from, and the lists that are written of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from monai_afire.apps.phantom import draw_chest_phantom
from monai_afire.networks import ModelFile
from monai_afire.transforms import StandardizeContrast
from tests.evidence.organ_segmenter import ORGANS, plausible, write_list


def organs() -> np.ndarray:
    """Two lungs and a heart between and below them, as boxes."""
    masks = np.zeros((3, 64, 64), dtype=bool)
    masks[0, 10:45, 10:26] = True
    masks[1, 10:45, 38:54] = True
    masks[2, 30:48, 24:42] = True
    return masks


def test_organs_that_lie_as_organs_do_are_kept_without_stray_pixels_and_holes() -> None:
    found = organs()
    found[0, 20, 15] = False
    found[2, 2, 2] = True
    np.testing.assert_array_equal(plausible(found), organs())


@pytest.mark.parametrize("case", ["swapped lungs", "high heart", "no heart", "one lung"])
def test_other_organs_teach_nothing(case: str) -> None:
    found = organs()
    if case == "swapped lungs":
        found = found[[1, 0, 2]]
    elif case == "high heart":
        found[2] = np.roll(found[2], -26, axis=0)
    else:
        found[2 if case == "no heart" else 1] = False
    assert plausible(found) is None


def test_a_list_names_masks_with_the_pixels_of_the_radiographs(tmp_path: Path) -> None:
    paths = [Path(f"/images/normal_{number}.jpg") for number in range(12)]
    write_list(dict.fromkeys(paths, organs()), tmp_path)
    content = json.loads((tmp_path / "organs.json").read_text())
    assert content["organ_names"] == list(ORGANS)
    assert [len(content[name]) for name in ("training", "validation")] == [10, 2]
    with Image.open(content["validation"][0]["organs"][1]) as picture:
        left = np.asarray(picture)
    assert left.shape == (224, 224)
    assert set(np.unique(left)) == {0, 255}
    assert left[100, 150] == 255
    assert left[100, 60] == 0


@torch.no_grad()
def test_the_released_segmenter_finds_lungs_and_heart() -> None:
    file = ModelFile("bundles/radiograph_segmentation/released/lungs_and_heart.pt", "segmenter")
    network = file.build().eval()
    for seed in range(3):
        chest = draw_chest_phantom(seed, file.image_size)
        image = torch.as_tensor(np.asarray(StandardizeContrast()(chest.image)))
        found = network(image[None])[0].numpy() > 0
        for mask, truth in zip(found, chest.organs[:3] > 0, strict=True):
            assert 2 * (mask & truth).sum() > 0.75 * (mask.sum() + truth.sum())
