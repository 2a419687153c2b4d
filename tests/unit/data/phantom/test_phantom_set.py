# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The phantom as a bundle's data: drawn once, found again, never over somebody's files."""

from __future__ import annotations

import os
from typing import Any

import pytest

from monai_afire.data import bundle_items
from monai_afire.data.phantom import PhantomSet

PHANTOM: dict[str, Any] = {
    "num_patients": {"training": 2, "validation": 1, "test": 2},
    "image_size": 64,
    "abnormal_fraction": {"training": 0.0, "validation": 1.0, "test": 0.5},
    "progress": False,
}


@pytest.fixture(scope="module")
def phantom_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("phantom"))


def test_without_images_of_ones_own_there_is_the_phantom(phantom_dir: str) -> None:
    items = {
        section: bundle_items(section, None, "", PhantomSet(phantom_dir, PHANTOM))
        for section in ("training", "validation", "test")
    }
    assert {section: len(found) for section, found in items.items()} == PHANTOM["num_patients"]
    assert [item["abnormal"] for item in items["validation"]] == [1]
    for item in [item for found in items.values() for item in found]:
        assert os.path.isfile(item["image"])
        assert not item["abnormal"] or os.path.isfile(item["lesion_truth"])


def test_phantom_is_drawn_once_for_the_same_arguments(phantom_dir: str) -> None:
    path = PhantomSet(phantom_dir, PHANTOM).datalist()
    drawn = os.stat(path).st_mtime_ns
    again = PhantomSet(phantom_dir, {**PHANTOM, "progress": True}).datalist()
    assert (again, os.stat(path).st_mtime_ns) == (path, drawn)
    other = PhantomSet(phantom_dir, {**PHANTOM, "seed": 7}).datalist()
    assert other != path
    assert os.stat(path).st_mtime_ns == drawn
