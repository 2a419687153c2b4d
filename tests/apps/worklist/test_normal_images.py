# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Normal images: p-values by view, thresholds, who is not judged, and their file."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from monai_afire.apps.worklist import load_normals, normals_from, save_normals
from monai_afire.apps.worklist.image_facts import ImageFacts
from monai_afire.apps.worklist.normal_images import FeatureSpace, NormalImages
from monai_afire.networks.weights.checkpoint_files import write_safetensors
from monai_afire.networks.weights.description import Description

ADULT = {"ap": -9.0, "child": -9.0}
PA = ImageFacts(age=50.0, view="PA", lungs=0.3, looks=ADULT)
AP = replace(PA, view="AP")


def two_views() -> NormalImages:
    """PA images of scores 0 to 98, AP images of scores 100 to 198."""
    scores = np.concatenate([np.arange(99.0), 100 + np.arange(99.0)])
    return normals_from(scores, [PA] * 99 + [AP] * 99, level=0.05)


# ---- views


def test_each_view_is_compared_with_itself() -> None:
    normals = two_views()
    assert normals.by_view
    assert normals.judge(99.5, PA).p_value == pytest.approx(0.01)
    assert normals.judge(99.5, AP).p_value == pytest.approx(1.0)
    assert normals.judge(98, PA).percentile == pytest.approx(100 * 98 / 99)
    assert normals.judge(197.5, AP).p_value == pytest.approx(0.02)
    assert (normals.judge(96, PA).above, normals.judge(96, AP).above) == (True, False)


def test_a_view_from_pixels_mixes_the_views_by_its_probability() -> None:
    unsure = replace(PA, view="", looks={"ap": math.log(0.25 / 0.75), "child": -9.0})
    judged = two_views().judge(99.5, unsure)
    # three quarters of the PA images' 0, a quarter of the AP images' 1, and the image itself
    own = (0.75**2 + 0.25**2) / 99
    assert judged.p_value == pytest.approx((own + 0.25) / (own + 0.75**1 + 0.25), rel=1e-6)
    assert judged.view == "PA (from pixels)"


@pytest.mark.parametrize("level", [0.05, 0.01, 0.2])
def test_threshold_and_p_value_decide_alike(level: float) -> None:
    random = np.random.default_rng(1)
    normals = normals_from(np.float32(random.normal(size=150)), [PA] * 150, level)
    for score in np.concatenate([normals.scores, np.float32(random.normal(size=200))]):
        found = normals.judge(score, PA)
        assert found.above == (found.p_value <= level + 1e-12) == (score >= found.threshold)


def test_a_rare_view_is_not_judged_by_the_other() -> None:
    normals = normals_from(np.arange(105.0), [PA] * 100 + [AP] * 5, level=0.05)
    assert (normals.by_view, normals.number) == (False, 100)
    assert normals.judge(1.0, PA).not_judged == ""
    assert normals.judge(1.0, AP).not_judged == "AP view (no normal images of it)"


# ---- who is not judged


def test_too_few_normal_images_are_refused_with_the_number_needed() -> None:
    two = [
        ImageFacts(view=view) for view in ["PA"] * 12 + ["AP"] * 10
    ]  # of which those of the rarer view are left out
    for facts, level, needed in [([PA] * 98, 0.01, 99), (two, 0.05, 19)]:
        with pytest.raises(ValueError, match=str(needed)):
            normals_from(np.arange(float(len(facts))), facts, level)
    assert normals_from(np.arange(99.0), [PA] * 99, level=0.01).judge(1e3, PA).p_value == 0.01


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"age": 7.0}, "child (7 years)"),
        ({"age": 16.0}, ""),
        ({"other_view": "ViewPosition LL"}, "other view (ViewPosition LL)"),
        ({"lungs": 0.01}, "lungs not found"),
        ({"age": 7.0, "looks": {}}, ""),  # a volume
    ],
)
def test_headers_and_lungs_say_who_is_not_judged(changes: dict[str, Any], reason: str) -> None:
    facts = replace(PA, **changes)
    judged = two_views().judge(50.0, facts)
    assert judged.not_judged == reason
    assert math.isnan(judged.p_value) == math.isnan(judged.threshold) == bool(reason)
    assert (judged.above is None) == bool(reason)


def test_a_childrens_hospital_judges_children_and_no_adults() -> None:
    child = replace(PA, age=5.0)
    normals = normals_from(np.arange(99.0), [child] * 99, level=0.05)
    assert normals.judge(1.0, child).not_judged == ""
    assert normals.judge(1.0, PA).not_judged == "adult (50 years)"


def test_what_looks_like_a_child_or_unlike_all_is_not_judged() -> None:
    random = np.random.default_rng(0)
    facts = [
        replace(PA, age=None, looks={"ap": -9.0, "child": look}, features=random.normal(size=3))
        for look in random.normal(-5, 1, 200)
    ]
    normals = normals_from(random.normal(size=200), facts, level=0.05)
    usual = replace(facts[0], looks={"ap": -9.0, "child": -5.0}, features=np.zeros(3))
    assert normals.judge(0.0, usual).not_judged == ""
    young = replace(usual, looks={"ap": -9.0, "child": 4.0})
    assert "child" in normals.judge(0.0, young).not_judged
    assert normals.judge(0.0, replace(young, age=40.0)).not_judged == ""  # the header knows better
    far = replace(usual, features=np.full(3, 9.0))
    assert "features" in normals.judge(0.0, far).not_judged


def test_few_own_images_need_the_shipped_ones_to_agree() -> None:
    def is_unlike(pose: float, own: NDArray, shipped: NDArray) -> bool:
        looks = {"looks": {"pose": own}, "shipped_looks": {"pose": shipped}}
        normals = NormalImages(np.arange(99.0), np.zeros(99), **looks)
        return bool(normals.judge(1.0, replace(PA, looks={**ADULT, "pose": pose})).not_judged)

    shipped, none = np.arange(200.0), np.empty(0)
    assert not is_unlike(25.0, np.arange(20.0), shipped)  # beyond the own ones alone
    assert is_unlike(300.0, np.arange(20.0), shipped)
    assert not is_unlike(150.0, np.arange(100.0), shipped)
    assert is_unlike(150.0, np.arange(100.0), none)
    assert not is_unlike(150.0, np.arange(20.0), none)  # too few to say
    assert not is_unlike(300.0, np.arange(500.0), shipped)  # usual here


def test_distances_are_those_of_mahalanobis_and_leave_the_image_out() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(4000, 2)) @ np.array([[2.0, 0.0], [1.0, 0.5]])
    space = FeatureSpace.fit(features, np.zeros(4000, int), 1)
    precision = np.linalg.inv(np.cov(features.T))
    away = features - features.mean(0)
    expected = np.sqrt(np.einsum("ij,jk,ik->i", away, precision, away))
    np.testing.assert_allclose(space.distances(features, np.zeros(4000, int)), expected, rtol=0.01)
    few = features[:5]
    moved = space.moved(few, np.zeros(5, int))
    without = space.moved(few[1:], np.zeros(4, int)).distances(few[:1], [0])
    assert moved.held_out_distances(few, np.zeros(5, int))[0] == pytest.approx(without[0])


# ---- file


def test_a_file_brings_back_what_was_written(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    views = [PA] * 60 + [AP] * 60
    facts = [replace(view, age=None, features=random.normal(size=4)) for view in views]
    named = {"origin": "here", "made": "2026-01-02", "detector": "sha256:1"}
    normals = normals_from(np.float32(random.normal(size=120)), facts, 0.05, **named)
    path = save_normals(normals, tmp_path / "normals.safetensors")
    read = load_normals(path, "sha256:1")
    assert str(read) == str(normals)
    for score, each in zip((-1.0, 0.3, 2.0), facts[:3], strict=True):
        one, other = read.judge(score, each), normals.judge(score, each)
        assert one == replace(other, threshold=pytest.approx(other.threshold, rel=1e-6))
    with pytest.raises(ValueError, match=r"120 normal images, .* needs 999"):
        load_normals(path, "sha256:1", level=0.001)


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = save_normals(replace(two_views(), detector="sha256:1"), tmp_path / "n.safetensors")
    with pytest.raises(ValueError, match="another detector"):
        load_normals(path, "sha256:2")
    write_safetensors({"a": torch.zeros(1)}, path, Description("classifier"))
    with pytest.raises(ValueError, match="another purpose"):
        load_normals(path, "sha256:1")
