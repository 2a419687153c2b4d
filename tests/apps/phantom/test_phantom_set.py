# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The phantom as a bundle's data: drawn once, found again, never over somebody's files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from monai_afire.apps.phantom import PhantomSet, phantom_set
from monai_afire.data import bundle_items

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
    for nothing in (None, ""):
        items = {
            section: bundle_items(section, nothing, nothing, PhantomSet(phantom_dir, PHANTOM))
            for section in ("training", "validation", "test")
        }
        assert {section: len(found) for section, found in items.items()} == PHANTOM["num_patients"]
        assert [item["abnormal"] for item in items["validation"]] == [1]
    for item in [item for found in items.values() for item in found]:
        assert os.path.isfile(item["image"])
        assert item["lesion_truth"] is None or os.path.isabs(item["lesion_truth"])
        if item["abnormal"]:
            assert os.path.isfile(item["lesion_truth"])


def test_phantom_is_drawn_once_for_the_same_arguments(phantom_dir: str) -> None:
    path = PhantomSet(phantom_dir, PHANTOM).datalist()
    drawn = os.stat(path).st_mtime_ns
    assert (
        PhantomSet(phantom_dir, {**PHANTOM, "progress": True, "num_processes": 1}).datalist()
        == path
    )
    assert os.stat(path).st_mtime_ns == drawn
    PhantomSet(phantom_dir, {**PHANTOM, "seed": 7}).datalist()
    assert os.stat(path).st_mtime_ns != drawn


def test_phantom_that_another_process_has_drawn_meanwhile_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, lock = {**PHANTOM, "num_patients": {"test": 1}}, phantom_set.folder_lock

    @contextmanager
    def waited(folder: Path, patience: float) -> Iterator[None]:
        monkeypatch.setattr(phantom_set, "folder_lock", lock)
        PhantomSet(tmp_path, small).datalist()
        monkeypatch.setattr(phantom_set, "export_phantom", None)
        with lock(folder, patience):
            yield

    monkeypatch.setattr(phantom_set, "folder_lock", waited)
    assert PhantomSet(tmp_path, small).datalist().is_file()


@pytest.mark.parametrize("content", ["", '{"num_pat', "[1, 2", "\x00\x00"])
def test_cut_recipe_is_drawn_anew(content: str, tmp_path: Path) -> None:
    """It stopped every later run with a line about JSON."""
    small = {**PHANTOM, "num_patients": {"test": 1}}
    path = PhantomSet(tmp_path, small).datalist()
    complete = (tmp_path / "recipe.json").read_text()
    (tmp_path / "recipe.json").write_text(content)
    assert PhantomSet(tmp_path, small).datalist() == path
    assert (tmp_path / "recipe.json").read_text() == complete


@pytest.mark.parametrize(
    "content", ['{"training": ["a.png"]}', '["a.png"]', "cut", '{"name": "my patients"}']
)
def test_list_of_somebody_else_is_not_replaced(content: str, tmp_path: Path) -> None:
    path = tmp_path / "datalist.json"
    path.write_text(content)
    with pytest.raises(
        FileExistsError,
        match=r"datalist\.json is not the list of a phantom.*items::phantom::folder",
    ):
        PhantomSet(tmp_path, PHANTOM).datalist()
    assert path.read_text() == content
    assert os.listdir(tmp_path) == ["datalist.json"]


def test_interrupted_drawing_is_repeated(phantom_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PhantomSet(phantom_dir, PHANTOM).datalist()
    drawings = []

    def interrupted(folder: str, **arguments: Any) -> Path:
        drawings.append(folder)
        raise KeyboardInterrupt

    monkeypatch.setattr("monai_afire.apps.phantom.phantom_set.export_phantom", interrupted)
    for _ in range(2):  # the second time the arguments are those of the first
        with pytest.raises(KeyboardInterrupt):
            PhantomSet(phantom_dir, {**PHANTOM, "seed": 8}).datalist()
    with pytest.raises(KeyboardInterrupt):  # what is there may be half of the other phantom
        PhantomSet(phantom_dir, PHANTOM).datalist()
    assert len(drawings) == 3
