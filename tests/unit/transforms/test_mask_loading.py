# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Masks: of the image's size, of two values, and aligned with it through MONAI's transforms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from monai.transforms import Compose
from PIL import Image

from monai_afire.data.datalist.labeled_items import labeled_items
from monai_afire.data.phantom import PhantomSet, draw_chest_phantom
from monai_afire.transforms import (
    LoadMasks,
    LoadMasksd,
    LoadRadiographd,
    RadiographError,
    fit_images,
)

PHANTOM: dict[str, Any] = {"num_patients": {"test": 4}, "image_size": 96, "progress": False}
LUNG = draw_chest_phantom(np.random.SeedSequence(0), 96, ()).organs[0].astype(bool)


def save(path: Path, values: np.ndarray, **settings: Any) -> str:
    Image.fromarray(values).save(path, **settings)
    return str(path)


def masks_of(
    values: np.ndarray, folder: Path, name: str = "m.png", **settings: Any
) -> torch.Tensor:
    return LoadMasks()(save(folder / name, values, **settings))


def refused(*arguments: Any, **settings: Any) -> str:
    with pytest.raises(RadiographError) as caught:
        LoadMasks(**settings)(*arguments)
    return str(caught.value)


@pytest.fixture(scope="module")
def phantom_items(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = str(tmp_path_factory.mktemp("phantom"))
    return labeled_items(
        "test", phantom=PhantomSet(folder, PHANTOM), required=("organs", "lesion_truth")
    )


# ---- values


@pytest.mark.parametrize(("low", "high"), [(0, 255), (3, 200), (254, 255)])
def test_any_two_values_are_a_mask(tmp_path: Path, low: int, high: int) -> None:
    mask = masks_of(np.where(LUNG, high, low).astype(np.uint8), tmp_path)
    assert mask.dtype == torch.float32
    assert np.array_equal(np.asarray(mask), LUNG[None].astype(np.float32))


@pytest.mark.parametrize("quality", [5, 95])
def test_outlines_that_jpeg_blurred_are_found_again(tmp_path: Path, quality: int) -> None:
    mask = masks_of((LUNG * 255).astype(np.uint8), tmp_path, "m.jpg", quality=quality)
    assert mask.unique().tolist() == [0.0, 1.0]
    assert (np.asarray(mask)[0] != LUNG).mean() < 0.005


def test_radiograph_is_no_mask(tmp_path: Path, phantom_items: list[dict[str, Any]]) -> None:
    for item in phantom_items:
        assert refused(item["image"]).startswith(f"{item['image']}: ")


@pytest.mark.parametrize("label", [2, 255])
def test_thin_label_of_a_map_is_not_lost(tmp_path: Path, label: int) -> None:
    labels = np.zeros((96, 96), np.uint8)
    labels[20:60, 30:60] = label
    for place in ((slice(70, 74), slice(10, 90)), (5, 5), (2, slice(0, 90))):
        other = labels.copy()
        other[place] = max(1, label // 3)
        assert "labels.png" in refused(save(tmp_path / "labels.png", other))


@pytest.mark.parametrize(("ink", "bands"), [(0, 2), (200, 4), (255, 4)])
def test_structure_in_the_alpha_channel_is_the_mask(tmp_path: Path, ink: int, bands: int) -> None:
    color = np.full((*LUNG.shape, bands - 1), ink, np.uint8)
    pixels = np.dstack([color, np.uint8(255) * LUNG.astype(np.uint8)])
    assert np.array_equal(np.asarray(masks_of(pixels, tmp_path))[0], LUNG)


def test_alpha_channel_and_colors_must_agree(tmp_path: Path) -> None:
    lung = np.uint8(255) * LUNG.astype(np.uint8)
    assert np.array_equal(np.asarray(masks_of(np.dstack([lung] * 4), tmp_path))[0], LUNG)
    opaque = np.full_like(lung, 255)
    assert np.array_equal(np.asarray(masks_of(np.dstack([lung] * 3 + [opaque]), tmp_path))[0], LUNG)
    path = save(tmp_path / "both.png", np.dstack([lung] * 3 + [lung[:, ::-1]]))
    assert "both.png" in refused(path)


# ---- channels


def test_files_are_channels_in_their_order(phantom_items: list[dict[str, Any]]) -> None:
    for item in phantom_items:
        expected = np.stack([np.asarray(Image.open(path)) > 0 for path in item["organs"]])
        assert np.array_equal(np.asarray(LoadMasks(num_channels=5)(item["organs"])), expected)
        for wrong in (item["organs"][:4], [*item["organs"][:4], None]):
            refused(wrong, num_channels=5)


# ---- size


def test_size_must_be_the_images(tmp_path: Path) -> None:
    image, mask = save(tmp_path / "i.png", LUNG[:40, :60]), save(tmp_path / "m.png", LUNG)
    loaded = LoadRadiographd("image")({"image": image, "mask": mask})
    for fit_size in (False, True):
        with pytest.raises(RadiographError, match=r"m\.png.*i\.png"):
            LoadMasksd("mask", fit_size=fit_size)(loaded)


def test_other_resolution_is_fitted_on_request(tmp_path: Path) -> None:
    large = LUNG[:, :80].repeat(3, 0).repeat(3, 1)
    for image, mask in ((large, LUNG[:, :80]), (LUNG[:, :80], large)):
        item = {"image": save(tmp_path / "i.png", image), "mask": save(tmp_path / "m.png", mask)}
        loaded = Compose([LoadRadiographd("image"), LoadMasksd("mask", fit_size=True)])(item)
        assert np.array_equal(np.asarray(loaded["mask"])[0], image)


# ---- normal images


@pytest.mark.parametrize(
    "item", [{"abnormal": 0}, {"abnormal": 0.0, "mask": None}, {"abnormal": 0, "mask": ""}]
)
def test_normal_image_has_empty_masks(item: dict[str, Any]) -> None:
    data: dict[Any, Any] = {"image": torch.rand(1, 40, 50), **item}
    for num_channels, channels in ((None, 1), (3, 3)):
        mask = LoadMasksd("mask", num_channels=num_channels)(data)["mask"]
        assert mask.shape == (channels, 40, 50)
        assert not mask.any()


@pytest.mark.parametrize("item", [{}, {"abnormal": 1, "mask": None}, {"abnormal": -1}])
def test_other_image_without_mask_is_named(item: dict[str, Any]) -> None:
    image = MetaTensor(torch.rand(1, 40, 50), meta={"filename_or_obj": "x/a.png"})
    with pytest.raises(RadiographError, match=r"x/a\.png"):
        LoadMasksd("mask")({"image": image, **item})


# ---- metadata and alignment


def test_masks_have_the_images_metadata_and_their_own_name(
    phantom_items: list[dict[str, Any]],
) -> None:
    """So MONAI's spatial transforms keep both aligned."""
    item = phantom_items[0]
    loaded = Compose([LoadRadiographd("image"), LoadMasksd("organs")])(item)
    assert loaded["organs"].meta["filename_or_obj"] == item["organs"][0]
    assert loaded["image"].meta["filename_or_obj"] == item["image"]
    assert torch.equal(loaded["organs"].affine, loaded["image"].affine)
    loaded["organs"].meta["affine"][0, 0] = 99
    assert loaded["image"].meta["affine"][0, 0] != 99


def test_masks_of_bundles_are_resized_about_the_same_middle_as_images() -> None:
    square = torch.zeros(1, 256, 256)
    square[:, 64:160, 96:192] = 1
    item = fit_images(["image", "mask"], 64, mode=["area", "nearest-exact"])(
        {"image": square, "mask": square}
    )
    rows, columns = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    for key in ("image", "mask"):
        weights = torch.as_tensor(item[key])[0]
        centers = [float((weights * place).sum() / weights.sum()) for place in (rows, columns)]
        assert centers == pytest.approx([27.5, 35.5])


def test_structures_that_resizing_loses_are_named(recwarn: pytest.WarningsRecorder) -> None:
    mask = torch.zeros(2, 96, 96)
    mask[0, 40], mask[1, 20:60] = 1, 1
    transform = fit_images(["image", "mask"], 24, mode=["area", "nearest-exact"])
    for part in (mask[1:], mask):
        assert not recwarn.list
        transform({"image": torch.rand(1, 96, 96), "mask": part})
    assert "mask" in str(recwarn.pop(UserWarning).message)
