# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lesions of known kind, contrast, size and place: in one image, in items that ask for them, and in lists."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from monai.data import MetaTensor
from scipy import ndimage

from monai_afire.transforms.controlled_lesions import (
    CONTROLLED_LESION_KINDS,
    AddControlledLesiond,
    controlled_lesion,
    controlled_lesion_items,
)
from monai_afire.transforms.lesion_synthesis.lung_mask import segment_lungs
from unit.transforms.images_and_lesions import chest, lesion_of, random_image


def nodule(
    image: torch.Tensor, contrast: float, diameter: float, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    return controlled_lesion(image, "SoftNodule", contrast, diameter, seed)


@settings(max_examples=40)
@given(
    st.floats(0.01, 1),
    st.floats(0.05, 0.6),
    st.integers(0, 999),
    st.sampled_from([(48, 48), (40, 64), (65, 33)]),
)
def test_nodule_is_a_gaussian_around_one_pixel(
    contrast: float, diameter: float, seed: int, shape: Any
) -> None:
    image = torch.zeros(1, *shape, dtype=torch.float64)
    lesion_image, mask = nodule(image, contrast, diameter, seed)
    added = lesion_image[0].numpy()
    row, column = np.unravel_index(added.argmax(), shape)
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    distance = np.hypot(rows - row, columns - column)
    radius = diameter * min(shape) / 2
    np.testing.assert_allclose(added, contrast * 0.1 ** ((distance / radius) ** 2), atol=1e-9)
    clear = np.abs(distance - radius) > 1e-6
    np.testing.assert_array_equal(mask[0].numpy()[clear], (distance <= radius)[clear])


def test_places_are_uniform_among_those_where_the_nodule_fits() -> None:
    image = chest(48)
    lungs = np.pad(segment_lungs(image[0]).numpy(), 1)
    radius = 0.15 * 48 / 2
    allowed = ndimage.distance_transform_edt(lungs)[1:-1, 1:-1] >= radius
    counts = np.zeros((48, 48))
    for seed in range(400):
        lesion_image, _ = nodule(image, 0.5, 0.15, seed)
        counts[np.unravel_index(int((lesion_image - image).argmax()), (48, 48))] += 1
    assert not counts[~allowed].any()
    expected = 400 / allowed.sum()
    assert ((counts[allowed] - expected) ** 2 / expected).sum() < 1.4 * allowed.sum()


def test_white_pixels_are_no_lesion() -> None:
    image = torch.full((2, 64, 64), 0.5)
    image[:, :, 32:] = 1.0
    _, mask = nodule(image, 0.4, 0.9)
    assert mask[..., :32].any()
    assert not mask[..., 32:].any()
    image[1] = 0.0  # what is added to any channel counts
    assert nodule(image, 0.4, 0.9)[1][..., 32:].any()
    assert not nodule(torch.ones(1, 32, 32), 0.2, 0.1)[1].any()


@pytest.mark.parametrize("kind", CONTROLLED_LESION_KINDS)
@pytest.mark.parametrize(
    ("shape", "dtype"), [((1, 96, 96), torch.bfloat16), ((3, 40, 56), torch.float64)]
)
def test_lesion_images(kind: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    image = (chest() if shape[1] == 96 else random_image(*shape)).to(dtype)
    before = image.clone()
    for seed in range(4):
        lesion_image, mask = controlled_lesion(image, kind, 0.4, 0.3, seed)
        assert torch.equal(image, before)
        assert (lesion_image.shape, lesion_image.dtype) == (shape, dtype)
        assert (mask.shape, mask.dtype) == ((1, *shape[1:]), torch.bool)
        assert mask.any()
        assert 0 <= float(lesion_image.min()) <= float(lesion_image.max()) <= 1
        change = (lesion_image - image).float().abs().amax(0)
        outside = float(change[~mask[0]].max())
        assert outside == 0 if kind == "CutPaste" else outside <= float(change.max()) / 2


@pytest.mark.parametrize("kind", CONTROLLED_LESION_KINDS)
def test_contrasts_are_compared_at_the_same_place(kind: str) -> None:
    image = chest()
    for seed in range(8):
        weak, strong = (
            controlled_lesion(image, kind, contrast, 0.2, seed) for contrast in (0.05, 0.1)
        )
        assert torch.equal(weak[1], strong[1])
        # as much as the weak one changes, the strong one changes twice
        torch.testing.assert_close(strong[0] - image, 2 * (weak[0] - image), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", CONTROLLED_LESION_KINDS[1:])
def test_pasted_lesions_have_the_contrast_or_all_there_is(kind: str) -> None:
    image = chest()
    reached = 0
    for seed in range(30):
        lesion_image, mask = controlled_lesion(image, kind, 0.1, 0.2, seed)
        change = (lesion_image - image).abs()[mask]
        share = float((change >= 0.1 - 1e-5).double().mean())
        strongest = controlled_lesion(image, kind, 1.0, 0.2, seed)[0]
        if 0.04 < share < 1 / 6:
            reached += 1
        else:  # flat lesions reach it in more pixels at once; pale ones nowhere
            assert share > 0.2 or torch.equal(strongest, lesion_image)
    assert reached >= (20 if kind == "AnatPaste" else 1)


@pytest.mark.parametrize(
    "changes", [{"kind": "Nodule"}, {"contrast": 1.5}, {"contrast": 0.0}, {"size": 1.0}]
)
def test_settings_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        controlled_lesion(chest(), **lesion_of(**changes))


# ---- items that ask for one


@pytest.mark.parametrize("item", [{}, {"lesion": None}, {"lesion": lesion_of("")}])
def test_without_a_lesion_there_is_an_empty_mask(item: dict[Any, Any]) -> None:
    image = MetaTensor(random_image(3, 8, 6))
    output = AddControlledLesiond("image")({"image": image, **item})
    assert output["image"] is image
    assert isinstance(output["lesion_mask"], MetaTensor)
    assert (output["lesion_mask"].shape, output["lesion_mask"].dtype) == ((1, 8, 6), torch.bool)
    assert not output["lesion_mask"].any()
    assert output["lesion"] == {"kind": "", "contrast": 0.0, "size": 0.0, "seed": 0}


def test_items_of_a_controlled_test() -> None:
    normal = [{"image": "a.png", "label": 0}, {"image": "b.png", "label": 0, "lesion": None}]

    def items_of(seed: int) -> list[dict[str, Any]]:
        kinds, contrasts, sizes = ["CutPaste", "SoftNodule"], [0.1, 0.2, 0.4], [0.1, 0.3]
        return controlled_lesion_items(normal, kinds, contrasts, sizes, seed)

    items = items_of(2)
    assert [items[i] for i in (0, 13)] == [{**item, "lesion": None} for item in normal]
    lesions = [(item["image"], item["lesion"]) for item in items if item["lesion"]]
    expected = itertools.product(
        ("a.png", "b.png"), ("CutPaste", "SoftNodule"), (0.1, 0.3), (0.1, 0.2, 0.4)
    )
    found = [(image, x["kind"], x["size"], x["contrast"]) for image, x in lesions]
    assert found == list(expected)
    seeds = [x["seed"] for _, x in lesions]
    assert all(len(set(seeds[i : i + 3])) == 1 for i in range(0, 24, 3))  # for all contrasts
    assert len(set(seeds)) == 8
    assert not {item["lesion"]["seed"] for item in items_of(3) if item["lesion"]} & set(seeds)


def test_seeds_do_not_depend_on_the_process_nor_on_number_types() -> None:
    def seeds(contrasts: Any, sizes: Any, seed: Any) -> list[int]:
        items = controlled_lesion_items([{}, {}], ["AnatPaste"], contrasts, sizes, seed)
        return [item["lesion"]["seed"] for item in items if item["lesion"]]

    assert seeds([0.5], [0.25], 1) == [182481055, 1250696801]
    assert seeds(np.array([0.5]), np.array([0.25]), np.int64(1)) == [182481055, 1250696801]
