# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What holds for all transforms: MONAI's names, seeds, probabilities, metadata, and places in a pipeline."""

from __future__ import annotations

import copy
import pickle
import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from monai.data import DataLoader, Dataset, MetaTensor, list_data_collate
from monai.data.utils import set_rnd
from monai.transforms import Compose, EnsureTyped, RandAffined, RandFlipd, Resized
from monai.utils import set_determinism

import monai_afire
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
    "DistortAppearanced": (lambda: transforms.DistortAppearanced("image"), ["image"]),
    "ShufflePatchesd": (lambda: transforms.ShufflePatchesd("image", patch_size=16), ["image"]),
    "RandVisiblePatchesd": (lambda: transforms.RandVisiblePatchesd("image", 8), ["image"]),
    "MultiCropd": (
        lambda: transforms.MultiCropd("image", global_size=32, local_size=16, num_local=2),
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
    "ShufflePatches": lambda prob: transforms.ShufflePatches(patch_size=8, prob=prob),
    "DistortAppearance": lambda prob: transforms.DistortAppearance(prob=prob),
}


def outputs(transform: Any, times: int = 3) -> list[dict[Any, Any]]:
    return [dict(transform({"image": IMAGE})) for _ in range(times)]


def same(one: list[dict[Any, Any]], other: list[dict[Any, Any]]) -> bool:
    return all(np.array_equal(a[key], b[key]) for a, b in zip(one, other, strict=True) for key in a)


def first_image(result: Any) -> torch.Tensor:
    """The image of an array transform's outputs, the first one of several variants."""
    image = result[0] if isinstance(result, tuple) else result
    return image[0] if image.ndim == 4 else image


def test_all_modules_are_imported_and_packages_say_what_is_public() -> None:
    for info in pkgutil.walk_packages(monai_afire.__path__, "monai_afire."):
        if not info.name.endswith("__main__"):
            module = import_module(info.name)
            public = module.__all__ if info.name.count(".") == 1 else getattr(module, "__all__", [])
            assert [name for name in public if not hasattr(module, name)] == [], info.name


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
    item = {**item_of(0), "image": MetaTensor(IMAGE, meta={"filename_or_obj": "chest.png"})}
    item["landmarks"] = [[4.0, 30.0]]
    seeded = make()
    if name in RANDOM:
        seeded.set_random_state(seed=0)
    output = seeded(item)
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


@pytest.mark.parametrize("name", sorted(set(OCCASIONAL) - {"ShufflePatches"}))
def test_images_without_channel_or_of_other_ranges_are_refused(name: str) -> None:
    plane = torch.full((8, 8), 0.5)
    for image in (plane, plane[None].int(), plane[None] * torch.nan, 3 * plane[None]):
        with pytest.raises(ValueError, match="image"):
            OCCASIONAL[name](1.0)(image)


def load(num_workers: int) -> torch.Tensor:
    set_determinism(seed=7)
    try:
        data = [{"image": torch.full((1, 16, 16), 0.5)} for _ in range(6)]
        steps = [
            transforms.ShufflePatchesd("image", 4, prob=0.5),
            transforms.DistortAppearanced("image"),
            transforms.SynthLesionMaskd("image"),
        ]
        loader = DataLoader(Dataset(data, Compose(steps)), batch_size=2, num_workers=num_workers)
        return torch.cat([torch.as_tensor(batch["lesion_image"]) for batch in loader])
    finally:
        set_determinism(seed=None)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_workers_of_a_loader_draw_each_image_anew_and_repeat(num_workers: int) -> None:
    images = load(num_workers)
    assert all(not torch.equal(images[i], images[j]) for i in range(6) for j in range(i))
    assert torch.equal(images, load(num_workers))


def item_of(seed: int) -> dict[str, Any]:
    picture = torch.rand(1, 100, 90, generator=torch.Generator().manual_seed(seed))
    return {
        "image": MetaTensor(picture),
        "lesion": {"kind": "SoftNodule", "contrast": 0.2, "size": 0.25, "seed": 7},
        "landmarks": [[40.0, 30.0], [60.0, 50.0]],
        "label": [1, 0],
    }


@pytest.mark.parametrize("name", [*RANDOM, *FIXED])
def test_transform_between_those_of_monai(name: str) -> None:
    make, images = (RANDOM | FIXED)[name]
    moved: dict[str, Any] = {"prob": 0.5, "rotate_range": 0.1, "padding_mode": "border"}
    before = [Resized("image", (80, 64)), RandFlipd("image", prob=0.5, spatial_axis=1)]
    after = [Resized(images, (48, 48)), RandAffined(images, **moved)]
    steps = [*before, make(), *after, EnsureTyped(images, track_meta=False)]
    pipeline = Compose(steps).set_random_state(seed=0)
    batch = list_data_collate([pipeline(item_of(seed)) for seed in range(3)])
    for key in images:
        assert batch[key].shape == (3, 2 if key == "heatmap" else 1, 48, 48)
        assert torch.isfinite(batch[key]).all()
