# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Items of a bundle from a file, a folder, a datalist or the phantom."""

from __future__ import annotations

import json
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


def test_list_counts_before_the_file(tmp_path: Path) -> None:
    path = write_list(tmp_path, {"image": "b.png"})
    (item,) = bundle_items("test", str(tmp_path), str(path))
    assert item["image"] == str(tmp_path / "b.png")
    with pytest.raises(DatalistError, match="dataset_dir does not exist"):
        bundle_items("test", str(tmp_path / "a.png"), str(path))


# ---- files that do not exist


# ---- masks


@pytest.mark.parametrize("value", ["", 3, [], ["m.png", None]])
def test_a_mask_is_a_path_or_null(tmp_path: Path, value: Any) -> None:
    path = write_list(tmp_path, {"image": "a.png", "mask": value})
    with pytest.raises(DatalistError, match="mask"):
        load_radiograph_datalist(datalist=path, section="test")
