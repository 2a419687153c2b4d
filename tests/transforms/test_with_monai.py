# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Transforms of the package between MONAI's own: each takes what they give, and gives what they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from monai.data import MetaTensor, list_data_collate
from monai.transforms import Compose, EnsureTyped, RandAffined, RandFlipd, Resized

from monai_afire import transforms

# the transform, and the images that it gives
PARTS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "SynthLesionMaskd": (
        lambda: transforms.SynthLesionMaskd("image"),
        ["image", "lesion_image", "lesion_mask"],
    ),
    "CutPasted": (lambda: transforms.CutPasted("image"), ["image", "lesion_image", "lesion_mask"]),
    "AnatPasted": (
        lambda: transforms.AnatPasted("image"),
        ["image", "lesion_image", "lesion_mask"],
    ),
    "AddControlledLesiond": (
        lambda: transforms.AddControlledLesiond("image"),
        ["image", "lesion_mask"],
    ),
    "GridCropPaird": (
        lambda: transforms.GridCropPaird("image", grid=5, cell=16, crops=(3, 3)),
        ["image", "image_1", "image_2"],
    ),
    "ResizeToCoverd": (lambda: transforms.ResizeToCoverd("image", 40), ["image"]),
    "StandardizeContrastd": (lambda: transforms.StandardizeContrastd("image"), ["image"]),
    "DistortAppearanced": (lambda: transforms.DistortAppearanced("image"), ["image"]),
    "ShufflePatchesd": (lambda: transforms.ShufflePatchesd("image", patch_size=16), ["image"]),
    "RandVisiblePatchesd": (lambda: transforms.RandVisiblePatchesd("image", 16), ["image"]),
    "MultiCropd": (lambda: transforms.MultiCropd("image", 32, 16, num_local=2), ["image"]),
    "LandmarkHeatmapd": (lambda: transforms.LandmarkHeatmapd(), ["image", "heatmap"]),
    "LabelVectord": (lambda: transforms.LabelVectord(), ["image"]),
}


def item(seed: int) -> dict[str, Any]:
    picture = torch.rand(1, 100, 90, generator=torch.Generator().manual_seed(seed))
    lesion = {"kind": "SoftNodule", "contrast": 0.2, "size": 0.25, "seed": 7}
    return {
        "image": MetaTensor(picture),
        "lesion": lesion,
        "landmarks": [[40.0, 30.0], [60.0, 50.0]],
        "label": [1, 0],
    }


@pytest.mark.parametrize("name", PARTS)
def test_transform_between_those_of_monai(name: str) -> None:
    part, images = PARTS[name][0](), PARTS[name][1]
    before = [
        Resized("image", (80, 64)),
        RandFlipd("image", prob=0.5, spatial_axis=1),
        RandAffined("image", prob=0.5, rotate_range=0.1, padding_mode="border"),
        EnsureTyped("image"),
    ]
    after = [
        Resized(images, (48, 48)),
        RandFlipd(images, prob=0.5, spatial_axis=1),
        RandAffined(images, prob=0.5, rotate_range=0.1, padding_mode="border"),
        EnsureTyped(images, track_meta=False),
    ]
    pipeline = Compose([*before, part, *after]).set_random_state(seed=0)
    batch = list_data_collate([pipeline(item(seed)) for seed in range(3)])
    again = Compose([*before, part, *after]).set_random_state(seed=0)
    repeated = list_data_collate([again(item(seed)) for seed in range(3)])
    for key in images:
        assert batch[key].shape == (3, 2 if key == "heatmap" else 1, 48, 48)
        assert torch.isfinite(batch[key]).all()
        assert torch.equal(batch[key], repeated[key])


def test_views_between_those_of_monai() -> None:
    keys = ["image_1", "image_2"]
    crops = transforms.GridCropPaird("image", grid=5, cell=16, crops=(3, 3))
    pipeline = Compose([crops, transforms.random_views(keys), Resized(keys, (32, 32))])
    views = pipeline.set_random_state(seed=0)(item(0))
    assert all(views[key].shape == (1, 32, 32) for key in keys)
