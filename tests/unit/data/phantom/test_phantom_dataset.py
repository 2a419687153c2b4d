# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The phantom data set: sections, cache on disk, items, loaders, and its export to files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from monai.data import load_decathlon_datalist
from monai.transforms import ScaleIntensityRanged
from PIL import Image

from monai_afire.data.phantom import (
    LESION_KINDS,
    ChestPhantomDataset,
    export_phantom,
)
from monai_afire.data.phantom.phantom_cohort import SECTIONS, Cohort

SMALL: dict[str, Any] = {"num_patients": 6, "image_size": 48}


def _items(dataset: ChestPhantomDataset) -> list[dict[str, Any]]:
    return [dataset[index] for index in range(len(dataset))]


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes every drawing from now on an error: what comes all the same is from the cache."""

    def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise AssertionError("a picture was drawn")

    return lambda: monkeypatch.setattr(Cohort, "draw", refuse)


# cohorts


@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
def test_the_abnormal_fraction_is_exact_and_spread_evenly(fraction: float) -> None:
    cohort = Cohort("training", 100, 48, fraction)
    abnormal = np.array([len(cohort.lesions(index)) > 0 for index in range(100)])
    assert abnormal.reshape(10, 10).sum(axis=1).tolist() == [round(10 * fraction)] * 10


@pytest.mark.parametrize(
    "wrong", [{"section": "train"}, {"abnormal_fraction": 1.5}, {"image_size": 8}]
)
def test_wrong_arguments_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ChestPhantomDataset(tmp_path, **{"section": "test", **SMALL, **wrong})


def test_sections_and_seeds_are_disjoint() -> None:
    cohorts = [Cohort(section, 8, 48, 0.0, seed=seed) for section in SECTIONS for seed in (0, 1)]
    patients = [cohort.draw(index).patient for cohort in cohorts for index in range(4)]
    assert len(
        {(patient.half_width, patient.lung_height, patient.fat) for patient in patients}
    ) == len(patients)
    names = {cohort.patient_id(index) for cohort in cohorts[::2] for index in range(8)}
    assert len(names) == 24


# items


# the cache on disk


def test_the_cache_is_of_these_arguments_whatever_the_transforms(
    tmp_path: Path, no_drawing: Callable[[], None]
) -> None:
    first = _items(ChestPhantomDataset(tmp_path, "test", **SMALL))
    no_drawing()
    double = ScaleIntensityRanged("image", 0.0, 1.0, 0.0, 2.0)
    second = _items(ChestPhantomDataset(tmp_path, "test", double, **SMALL))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(2 * one["image"], np.asarray(other["image"]), rtol=1e-5)
        for key in ("organs", "lesion_truth", "landmarks", "boxes", "label", "box_kinds"):
            assert one[key].dtype == other[key].dtype
            np.testing.assert_array_equal(one[key], other[key])
    for change in ({"image_size": 49}, {"abnormal_fraction": 0.4}, {"seed": 1}):
        with pytest.raises(RuntimeError, match="applying transform"):
            ChestPhantomDataset(tmp_path, "test", **{**SMALL, **change})[0]


# export


def test_export(tmp_path: Path) -> None:
    numbers, fractions = {"test": 4, "training": 2}, {"training": 0.0, "test": 0.5}
    path = export_phantom(tmp_path / "out", numbers, 48, fractions, progress=False)
    content = json.loads(path.read_text())
    assert content["finding_names"] == list(LESION_KINDS)
    assert "validation" not in content
    assert not any(item["abnormal"] for item in content["training"])
    dataset = ChestPhantomDataset(tmp_path / "cache", "test", num_patients=4, image_size=48)
    items = load_decathlon_datalist(path, is_segmentation=False, data_list_key="test")

    def pixels(name: str) -> np.ndarray:
        return np.asarray(Image.open(path.parent / name))

    for item, expected in zip(items, _items(dataset), strict=True):
        image = np.round(expected["image"][0] * 255)
        np.testing.assert_array_equal(pixels(item["image"]), image)
        organs = np.stack([pixels(name) for name in item["organs"]])
        np.testing.assert_array_equal(organs, expected["organs"] * 255)
        lesion = pixels(item["lesion_truth"])
        np.testing.assert_array_equal(lesion, expected["lesion_truth"][0] * 255)
        assert item["label"] == expected["label"].tolist()
        np.testing.assert_allclose(item["landmarks"], expected["landmarks"], atol=0.006)
        assert item["boxes"] == expected["boxes"][: len(item["boxes"])].tolist()
        kinds = [LESION_KINDS.index(kind) for kind in item["box_findings"]]
        assert kinds == [kind for kind in expected["box_kinds"] if kind >= 0]
        for key in ("patient_id", "sex", "abnormal"):
            assert item[key] == expected[key]
