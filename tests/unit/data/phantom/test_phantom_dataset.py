# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The phantom data set: sections, cache on disk, items, loaders, and its export to files."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from monai.data import load_decathlon_datalist
from monai.transforms import ScaleIntensityRanged
from PIL import Image

from monai_afire.data.phantom import (
    LANDMARK_NAMES,
    LESION_KINDS,
    ORGAN_NAMES,
    ChestPhantom,
    ChestPhantomDataset,
    export_phantom,
)
from monai_afire.data.phantom.lesions import tight_box
from monai_afire.data.phantom.phantom_cohort import SECTIONS, Cohort

SMALL: dict[str, Any] = {"num_patients": 6, "image_size": 48}


def _items(dataset: ChestPhantomDataset) -> list[dict[str, Any]]:
    return [dataset[index] for index in range(len(dataset))]


_draw_once = functools.lru_cache(maxsize=None)(Cohort.draw)


@pytest.fixture(autouse=True)
def cheap_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws each patient once for all tests: what is tested here is what happens to the pictures."""

    def draw(self: Cohort, index: int) -> ChestPhantom:
        return _draw_once(self, index)

    monkeypatch.setattr(Cohort, "draw", draw)


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every drawing an error: what passes under it came from the cache."""

    def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise AssertionError("a picture was drawn")

    monkeypatch.setattr(Cohort, "draw", refuse)


# cohorts


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.3, 0.5, 1.0])
def test_the_abnormal_fraction_is_exact_and_spread_evenly(fraction: float) -> None:
    cohort = Cohort("training", 100, 48, fraction)
    abnormal = np.array([len(cohort.lesions(index)) > 0 for index in range(100)])
    assert abnormal.sum() == round(100 * fraction)
    if fraction:
        assert abnormal.reshape(10, 10).sum(axis=1).tolist() == [round(10 * fraction)] * 10


def test_every_kind_takes_its_turn() -> None:
    cohort = Cohort("test", 100, 48, 1.0)
    mains = [cohort.lesions(index)[0] for index in range(100)]
    assert mains == list(LESION_KINDS) * 20
    pairs = [cohort.lesions(index) for index in range(100) if len(cohort.lesions(index)) == 2]
    assert 10 <= len(pairs) <= 40
    assert all(first != second for first, second in pairs)


def test_sections_and_seeds_are_disjoint() -> None:
    cohorts = [Cohort(section, 8, 48, 0.0, seed=seed) for section in SECTIONS for seed in (0, 1)]
    patients = [cohort.draw(index).patient for cohort in cohorts for index in range(4)]
    assert len(
        {(patient.half_width, patient.lung_height, patient.fat) for patient in patients}
    ) == len(patients)
    names = {cohort.patient_id(index) for cohort in cohorts[::2] for index in range(8)}
    assert len(names) == 24


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"section": "train"}, "section is 'train'"),
        ({"abnormal_fraction": 1.5}, "abnormal_fraction is 1.5"),
        ({"image_size": 8}, "image_size is 8"),
    ],
)
def test_hostile_arguments(tmp_path: Path, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ChestPhantomDataset(tmp_path, **{"section": "test", **SMALL, **arguments})
    assert not list(tmp_path.iterdir())


# items


def test_items(tmp_path: Path) -> None:
    dataset = ChestPhantomDataset(tmp_path / "made" / "here", "validation", **SMALL)
    assert len(dataset) == 6
    cohort = Cohort("validation", 6, 48)
    for index, item in enumerate(_items(dataset)):
        phantom = cohort.draw(index)
        assert item["image"].dtype == np.float32
        np.testing.assert_allclose(item["image"], phantom.image, atol=0.5 / 255 + 1e-6)
        np.testing.assert_array_equal(item["organs"], phantom.organs)
        np.testing.assert_array_equal(item["lesion_truth"], phantom.lesion_mask)
        np.testing.assert_array_equal(item["landmarks"], phantom.landmarks)
        np.testing.assert_array_equal(item["label"], phantom.label)
        number = len(phantom.lesions)
        np.testing.assert_array_equal(item["boxes"][:number], phantom.boxes)
        assert not item["boxes"][number:].any()
        assert item["box_kinds"].tolist() == [
            *(LESION_KINDS.index(lesion.kind) for lesion in phantom.lesions),
            *[-1] * (2 - number),
        ]
        assert item["abnormal"] == int(number > 0) == int(item["lesion_truth"].any())
        assert item["patient_id"] == f"validation_{index:05d}"
        assert item["sex"] == phantom.patient.sex
        assert item["pixel_size"] == pytest.approx(phantom.pixel_size)


# the cache on disk


def test_the_cache_is_used_whatever_the_transforms(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    first = _items(ChestPhantomDataset(tmp_path, "test", **SMALL))
    assert len(list(tmp_path.rglob("*.pt"))) == 6
    request.getfixturevalue("no_drawing")
    double = ScaleIntensityRanged("image", 0.0, 1.0, 0.0, 2.0)
    for one, other in zip(
        first, _items(ChestPhantomDataset(tmp_path, "test", double, **SMALL)), strict=True
    ):
        np.testing.assert_allclose(2 * one["image"], np.asarray(other["image"]), rtol=1e-5)
        for key in ("organs", "lesion_truth", "landmarks", "boxes", "label", "box_kinds"):
            assert one[key].dtype == other[key].dtype
            np.testing.assert_array_equal(one[key], other[key])


@pytest.mark.parametrize(
    "change",
    [{"image_size": 49}, {"abnormal_fraction": 0.4}, {"seed": 1}],
)
def test_other_arguments_draw_anew(
    tmp_path: Path, change: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    _items(ChestPhantomDataset(tmp_path, "test", **SMALL))
    request.getfixturevalue("no_drawing")
    with pytest.raises(RuntimeError, match="applying transform"):
        ChestPhantomDataset(tmp_path, "test", **{**SMALL, **change})[0]


# export


def test_export(tmp_path: Path) -> None:
    path = export_phantom(
        tmp_path / "out",
        {"test": 4, "training": 2},
        48,
        {"training": 0.0, "test": 0.5},
        progress=False,
    )
    content = json.loads(path.read_text())
    assert content["finding_names"] == list(LESION_KINDS)
    assert content["numTest"] == 4
    assert "validation" not in content
    assert not any(item["abnormal"] for item in content["training"])
    dataset = ChestPhantomDataset(tmp_path / "cache", "test", num_patients=4, image_size=48)
    items = load_decathlon_datalist(path, is_segmentation=False, data_list_key="test")
    for item, expected in zip(items, _items(dataset), strict=True):
        with Image.open(item["image"]) as picture:
            assert picture.mode == "L"
            np.testing.assert_array_equal(np.asarray(picture), np.round(expected["image"][0] * 255))
        assert len(item["organs"]) == len(ORGAN_NAMES)
        for name, organ in zip(item["organs"], expected["organs"], strict=True):
            np.testing.assert_array_equal(np.asarray(Image.open(path.parent / name)), organ * 255)
        lesion = np.asarray(Image.open(path.parent / item["lesion_truth"]))
        np.testing.assert_array_equal(lesion, expected["lesion_truth"][0] * 255)
        assert item["label"] == expected["label"].tolist()
        np.testing.assert_allclose(item["landmarks"], expected["landmarks"], atol=0.006)
        assert len(item["landmarks"]) == len(LANDMARK_NAMES)
        assert item["boxes"] == expected["boxes"][: len(item["boxes"])].tolist()
        assert [LESION_KINDS.index(kind) for kind in item["box_findings"]] == [
            kind for kind in expected["box_kinds"] if kind >= 0
        ]
        if len(item["boxes"]) == 1:
            assert tuple(item["boxes"][0]) == tight_box(lesion > 0)
        for key in ("patient_id", "sex", "abnormal"):
            assert item[key] == expected[key]
