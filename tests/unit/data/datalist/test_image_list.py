# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A list of images is known again in another folder, and told from every other one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from monai_afire.data import load_radiograph_datalist
from monai_afire.data.datalist.image_list import image_digest


def write(folder: Path, count: int = 5, size: int = 10) -> list[dict[str, Any]]:
    """Files in two subfolders, and their items as a search of the folder finds them."""
    for number in range(count):
        path = folder / str(number % 2) / f"{number:06}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size + number))
    return load_radiograph_datalist(folder, section="test")


def test_a_copy_elsewhere_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = write(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "scratch" / "of job 3")
    copy = load_radiograph_datalist(tmp_path / "scratch" / "of job 3", section="test")
    assert image_digest(items) == image_digest(copy)
    monkeypatch.chdir(tmp_path)
    relative = [{"image": os.path.relpath(item["image"])} for item in items]
    assert image_digest(items) == image_digest(relative)


def test_each_difference_counts(tmp_path: Path) -> None:
    items = write(tmp_path / "a")
    pairs = [{"image": [item["image"], item["image"]]} for item in items]
    digests = [
        image_digest(items),
        image_digest(items, ["mass", "nodule"]),
        image_digest(items, ["nodule", "mass"]),
        image_digest(items[::-1]),
        image_digest(pairs),
        image_digest(write(tmp_path / "b", count=4)),
        image_digest(write(tmp_path / "c", size=11)),
    ]
    (tmp_path / "a/0/000004.png").rename(tmp_path / "a/0/000005.png")
    digests.append(image_digest(load_radiograph_datalist(tmp_path / "a", section="test")))
    assert None not in digests
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize("items", [None, [], [{"image": torch.ones(2)}], [3], iter([1]), "abc"])
def test_what_names_no_files_has_no_digest(items: Any) -> None:
    assert image_digest(items) is None
