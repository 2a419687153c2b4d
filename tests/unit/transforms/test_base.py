# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What holds for all transforms: seeds, probabilities, metadata, and what they refuse."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from monai.data import Dataset, MetaTensor
from monai.data.utils import set_rnd
from monai.transforms import Compose

from monai_afire import transforms

IMAGE = torch.rand(1, 32, 48, generator=torch.Generator().manual_seed(0))
PAIR = ["image", "image_1", "image_2"]
LESION = ["image", "lesion_image", "lesion_mask"]
# the transform, and the images that it gives
RANDOM: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "SynthLesionMaskd": (lambda: transforms.SynthLesionMaskd("image"), LESION),
    "CutPasted": (lambda: transforms.CutPasted("image"), LESION),
    "AnatPasted": (lambda: transforms.AnatPasted("image"), LESION),
    "GridCropPaird": (lambda: transforms.GridCropPaird("image", 5, 16, (3, 3)), PAIR),
    "RandAppearanceDistortiond": (lambda: transforms.RandAppearanceDistortiond("image"), ["image"]),
    "RandPatchShuffled": (lambda: transforms.RandPatchShuffled("image", patch_size=16), ["image"]),
    "RandVisiblePatchesd": (lambda: transforms.RandVisiblePatchesd("image", 8), ["image"]),
    "RandMultiCropd": (
        lambda: transforms.RandMultiCropd("image", global_size=32, local_size=16, num_local=2),
        ["image"],
    ),
}
FIXED: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "AddControlledLesiond": (
        lambda: transforms.AddControlledLesiond("image"),
        ["image", "lesion_mask"],
    ),
    "ResizeToCoverd": (lambda: transforms.ResizeToCoverd("image", 40), ["image"]),
    "StandardizeContrastd": (lambda: transforms.StandardizeContrastd("image"), ["image"]),
    "LandmarkHeatmapd": (lambda: transforms.LandmarkHeatmapd(), ["image", "heatmap"]),
    "LabelVectord": (lambda: transforms.LabelVectord(), ["image"]),
}
OCCASIONAL: dict[str, Callable[[float], Any]] = {
    "SynthLesionMask": lambda prob: transforms.SynthLesionMask(num_masks=2, prob=prob),
    "AnatPaste": lambda prob: transforms.AnatPaste(num_masks=2, prob=prob),
    "CutPaste": lambda prob: transforms.CutPaste(num_masks=2, prob=prob),
    "RandPatchShuffle": lambda prob: transforms.RandPatchShuffle(patch_size=8, prob=prob),
    "RandAppearanceDistortion": lambda prob: transforms.RandAppearanceDistortion(prob=prob),
}


def outputs(transform: Any, times: int = 3) -> list[dict[Any, Any]]:
    return [dict(transform({"image": IMAGE})) for _ in range(times)]


def same(one: list[dict[Any, Any]], other: list[dict[Any, Any]]) -> bool:
    return all(np.array_equal(a[key], b[key]) for a, b in zip(one, other, strict=True) for key in a)


def first_image(result: Any) -> torch.Tensor:
    """The image of an array transform's outputs, the first one of several variants."""
    image = result[0] if isinstance(result, tuple) else result
    return image[0] if image.ndim == 4 else image


@pytest.mark.parametrize("name", RANDOM)
def test_seeds_reach_the_draws(name: str) -> None:
    make = RANDOM[name][0]
    transform = make()
    assert transform.set_random_state(seed=4) is transform
    first = outputs(transform)
    assert same(first, outputs(pickle.loads(pickle.dumps(make())).set_random_state(seed=4)))
    assert same(first, outputs(make().set_random_state(state=np.random.RandomState(4))))
    assert not same(first, outputs(make().set_random_state(seed=5)))
    assert not same(first[:1], first[1:2])
    # what a worker of MONAI's data loader does with its copy of the data set
    data_sets = [Dataset([], Compose([make()])) for _ in range(2)]
    for copied in data_sets:
        set_rnd(copied, seed=8)
    assert same(*(outputs(copied.transform) for copied in data_sets))
    set_rnd(data_sets[0], seed=9)
    assert not same(*(outputs(copied.transform) for copied in data_sets))


@pytest.mark.parametrize("name", RANDOM)
def test_the_dictionary_transform_is_the_array_transform_and_leaves_its_item(name: str) -> None:
    transform = RANDOM[name][0]().set_random_state(seed=1)
    item: dict[Any, Any] = {"image": IMAGE.clone(), "label": 1}
    output = transform(item)
    assert set(item) == {"image", "label"}
    assert torch.equal(item["image"], IMAGE)
    array = copy.deepcopy(transform.transform).set_random_state(seed=1)
    found = array(IMAGE)
    for value in found if isinstance(found, tuple) else [found]:
        assert any(np.array_equal(value, entry) for entry in output.values())
    repeated, new = array(IMAGE, randomize=False), array(IMAGE)
    assert np.array_equal(first_image(repeated), first_image(found))
    assert not np.array_equal(first_image(new), first_image(found))
    with pytest.raises(KeyError):
        transform({"label": 1})


@pytest.mark.parametrize("name", [*RANDOM, *FIXED])
def test_metadata_is_kept(name: str) -> None:
    make, images = (RANDOM | FIXED)[name]
    lesion = {"kind": "SoftNodule", "contrast": 0.2, "size": 0.25, "seed": 7}
    item = {"lesion": lesion, "landmarks": [[4.0, 30.0]], "label": [1, 0]}
    item["image"] = MetaTensor(IMAGE, meta={"filename_or_obj": "chest.png"})
    output = make()(item)
    for key in images:
        assert isinstance(output[key], MetaTensor), key
        assert output[key].meta["filename_or_obj"] == "chest.png"


@pytest.mark.parametrize("name", OCCASIONAL)
def test_probability_of_a_transform(name: str) -> None:
    make = OCCASIONAL[name]
    for prob, expected in ((0.0, 40), (1.0, 0)):
        transform = make(prob).set_random_state(seed=0)
        results = [first_image(transform(IMAGE)) for _ in range(40)]
        assert sum(torch.equal(result, IMAGE) for result in results) == expected
        assert all(result.data_ptr() != IMAGE.data_ptr() for result in results), "a copy"
    transform = make(0.5).set_random_state(seed=0)
    unchanged = [torch.equal(first_image(transform(IMAGE)), IMAGE) for _ in range(40)]
    assert 8 <= sum(unchanged) <= 32
    again = torch.equal(first_image(transform(IMAGE, randomize=False)), IMAGE)
    assert again == unchanged[-1], "a repetition acts, or not, as the last call"


@pytest.mark.parametrize("name", sorted(set(OCCASIONAL) - {"RandPatchShuffle"}))
def test_images_without_channel_or_of_other_ranges_are_refused(name: str) -> None:
    plane = torch.full((8, 8), 0.5)
    for image in (plane, plane[None].int(), plane[None] * torch.nan, 3 * plane[None]):
        with pytest.raises(ValueError, match="image"):
            OCCASIONAL[name](1.0)(image)
