# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Items of a bundle from a file, a folder, a datalist or the phantom."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from monai_afire.data.datalist.loading import DatalistError, bundle_items, load_radiograph_datalist

PHANTOM: dict[str, Any] = {
    "num_patients": {"training": 2, "validation": 1, "test": 2},
    "image_size": 64,
    "abnormal_fraction": {"training": 0.0, "validation": 1.0, "test": 0.5},
    "progress": False,
}


def write_list(
    folder: Path, *items: dict[str, Any], present: tuple[str, ...] = ("a.png", "b.png", "m.png")
) -> Path:
    for name in present:
        (folder / name).touch()
    path = folder / "list.json"
    path.write_text(json.dumps({"test": items}))
    return path


# ---- one file


@pytest.mark.parametrize("name", ["a.png", "IM-0001", "Näme (PA).PNG", "text.txt"])
@pytest.mark.parametrize("section", ["training", "validation", "test"])
def test_one_file_is_one_item(tmp_path: Path, name: str, section: str) -> None:
    (tmp_path / name).touch()
    assert bundle_items(section, str(tmp_path / name)) == [{"image": str(tmp_path / name)}]


def test_one_file_is_found_from_the_working_folder_and_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("a.png", "./a.png", "~/a.png"):
        assert bundle_items("test", name) == [{"image": str(tmp_path / "a.png")}]


def test_list_counts_before_the_file(tmp_path: Path) -> None:
    path = write_list(tmp_path, {"image": "b.png"})
    (item,) = bundle_items("test", str(tmp_path), str(path))
    assert item["image"] == str(tmp_path / "b.png")
    with pytest.raises(DatalistError, match="dataset_dir does not exist"):
        bundle_items("test", str(tmp_path / "a.png"), str(path))


def test_missing_file_or_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatalistError, match=r"missing\.png: no such folder"):
        bundle_items("test", str(tmp_path / "missing.png"))


# ---- files that do not exist


def test_missing_files_of_a_list_are_refused_unless_loading_finds_them(tmp_path: Path) -> None:
    path = write_list(
        tmp_path,
        {"image": "a.png"},
        {"image": "missing.png"},
        {"image": "b.png", "mask": "missing.tif"},
    )
    with pytest.raises(DatalistError, match="names 2 of 4 files that cannot be used") as caught:
        bundle_items("test", datalist=str(path))
    assert "missing.png" in str(caught.value)
    assert "missing.tif" in str(caught.value)
    items = bundle_items("test", datalist=str(path), check_files=False)
    assert [os.path.basename(item["image"]) for item in items] == ["a.png", "missing.png", "b.png"]
    assert items[2]["mask"] == str(tmp_path / "missing.tif")


# ---- masks


@pytest.mark.parametrize("key", ["mask", "lesion_truth"])
def test_masks_are_paths_where_there_are_any(tmp_path: Path, key: str) -> None:
    path = write_list(
        tmp_path,
        {"image": "a.png", key: "m.png"},
        {"image": "b.png", key: None},
        {"image": "b.png"},
    )
    assert bundle_items("test", datalist=str(path)) == [
        {"image": str(tmp_path / "a.png"), key: str(tmp_path / "m.png")},
        {"image": str(tmp_path / "b.png"), key: None},
        {"image": str(tmp_path / "b.png")},
    ]


def test_an_error_comes_without_the_advice_to_audit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with pytest.raises(DatalistError, match="no such folder"):
        bundle_items("training", str(tmp_path / "none"))
    assert "audit" not in caplog.text
    for name in ("a.png", "b.png"):
        (tmp_path / name).touch()
    bundle_items("training", str(tmp_path))
    assert f"monai-afire audit {tmp_path}" in caplog.text


@pytest.mark.parametrize("value", [None, "", 3, [], ["a.png", None]])
def test_the_image_itself_must_be_a_path(tmp_path: Path, value: Any) -> None:
    path = write_list(tmp_path, {"image": value})
    with pytest.raises(
        DatalistError, match=r"item 0: 'image' is .*, where a file name is expected"
    ):
        load_radiograph_datalist(datalist=path, section="test", path_keys=("image", "mask"))


@pytest.mark.parametrize("value", ["", 3, [], ["m.png", None]])
def test_a_mask_is_a_path_or_null(tmp_path: Path, value: Any) -> None:
    path = write_list(tmp_path, {"image": "a.png", "mask": value})
    with pytest.raises(DatalistError, match=r"item 0: 'mask' is .*, where a file name is expected"):
        load_radiograph_datalist(datalist=path, section="test", path_keys=("image", "mask"))
