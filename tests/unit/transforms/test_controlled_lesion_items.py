# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Items that ask for a controlled lesion, and the dictionary transform that paints it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from monai.data import CacheDataset, DataLoader, Dataset, MetaTensor
from monai.transforms import Compose, RandGaussianNoised
from monai.utils import set_determinism

from monai_afire.transforms.controlled_lesions import (
    CONTROLLED_LESION_KINDS,
    AddControlledLesiond,
    controlled_lesion_items,
)
from unit.transforms.images_and_lesions import chest, lesion_of, random_image


@pytest.mark.parametrize("item", [{}, {"lesion": None}, {"lesion": lesion_of("")}])
def test_without_a_lesion_there_is_an_empty_mask(item: dict[Any, Any]) -> None:
    image = MetaTensor(random_image(3, 8, 6))
    output = AddControlledLesiond("image")({"image": image, **item})
    assert output["image"] is image
    assert isinstance(output["lesion_mask"], MetaTensor)
    assert (output["lesion_mask"].shape, output["lesion_mask"].dtype) == ((1, 8, 6), torch.bool)
    assert not output["lesion_mask"].any()
    assert output["lesion"] == {"kind": "", "contrast": 0.0, "size": 0.0, "seed": 0}


def _batches(num_workers: int, seed: int, cache: bool = False) -> list[dict[str, Any]]:
    """Loaded after a random transform, which must not matter to the lesions."""
    set_determinism(seed=seed)
    try:
        normal = [
            {"image": chest(48) * (0.7 + 0.1 * i), "x": torch.zeros(1, 2, 2)} for i in range(2)
        ]
        items = controlled_lesion_items(normal, CONTROLLED_LESION_KINDS, [0.1, 0.3], [0.2])
        steps = Compose([AddControlledLesiond("image"), RandGaussianNoised("x", prob=1.0)])
        dataset = CacheDataset(items, steps, progress=False) if cache else Dataset(items, steps)
        return list(DataLoader(dataset, batch_size=5, num_workers=num_workers))
    finally:
        set_determinism(seed=None)


def test_workers_seeds_and_caches_do_not_matter() -> None:
    first, other = _batches(2, seed=1), _batches(0, seed=2, cache=True)
    assert not torch.equal(first[0]["x"], other[0]["x"])
    for a, b in zip(first, other, strict=True):
        assert torch.equal(a["image"], b["image"])
        assert torch.equal(a["lesion_mask"], b["lesion_mask"])
        assert a["lesion"]["kind"] == b["lesion"]["kind"]
    assert first[0]["lesion"]["kind"] == ["", *["SoftNodule"] * 2, *["AnatPaste"] * 2]
    assert first[0]["lesion"]["contrast"].tolist() == pytest.approx([0, 0.1, 0.3, 0.1, 0.3])
    assert first[0]["lesion_mask"].flatten(1).any(1).tolist() == [False, True, True, True, True]


# ---- the items


def test_items_of_a_controlled_test() -> None:
    normal = [{"image": "a.png", "label": 0}, {"image": "b.png", "label": 0, "lesion": None}]
    items = controlled_lesion_items(
        normal, ["CutPaste", "SoftNodule"], [0.1, 0.2, 0.4], [0.1, 0.3], seed=2
    )
    assert normal == [
        {"image": "a.png", "label": 0},
        {"image": "b.png", "label": 0, "lesion": None},
    ]
    assert len(items) == 2 * (1 + 2 * 3 * 2)
    assert [items[i] for i in (0, 13)] == [{**item, "lesion": None} for item in normal]
    lesions = [(item["image"], item["lesion"]) for item in items if item["lesion"]]
    expected = [
        (image, kind, size, contrast)
        for image in ("a.png", "b.png")
        for kind in ("CutPaste", "SoftNodule")
        for size in (0.1, 0.3)
        for contrast in (0.1, 0.2, 0.4)
    ]
    assert [(image, x["kind"], x["size"], x["contrast"]) for image, x in lesions] == expected
    seeds = [x["seed"] for _, x in lesions]
    # the same for all contrasts
    assert all(len(set(seeds[i : i + 3])) == 1 for i in range(0, 24, 3))
    assert len(set(seeds)) == 8
    others = controlled_lesion_items(normal, ["CutPaste", "SoftNodule"], [0.1], [0.1, 0.3], seed=3)
    assert not {item["lesion"]["seed"] for item in others if item["lesion"]} & set(seeds)


def test_seeds_do_not_depend_on_the_process_nor_on_number_types() -> None:
    def seeds(contrasts: Any, sizes: Any, seed: Any) -> list[int]:
        items = controlled_lesion_items([{}, {}], ["AnatPaste"], contrasts, sizes, seed)
        return [item["lesion"]["seed"] for item in items if item["lesion"]]

    assert seeds([0.5], [0.25], 1) == [182481055, 1250696801]
    assert seeds(np.array([0.5]), np.array([0.25]), np.int64(1)) == [182481055, 1250696801]
