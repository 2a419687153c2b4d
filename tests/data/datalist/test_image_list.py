# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A list of images is known again in another folder, and told from every other one."""

from __future__ import annotations

import os
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from monai_afire.data import load_radiograph_datalist
from monai_afire.data.datalist.image_list import image_difference, image_fingerprint


def write(folder: Path, count: int = 5, size: int = 10) -> list[dict[str, Any]]:
    """Files in two subfolders, and their items as a search of the folder finds them."""
    for number in range(count):
        path = folder / str(number % 2) / f"{number:06}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size + number))
    return load_radiograph_datalist(folder, section="test")


def difference(then: Any, now: Any) -> str:
    return image_difference(image_fingerprint(then), image_fingerprint(now)) or ""


def test_a_copy_elsewhere_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = write(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "scratch" / "of job 3")
    copy = load_radiograph_datalist(tmp_path / "scratch" / "of job 3", section="test")
    assert difference(items, copy) == ""
    monkeypatch.chdir(tmp_path)
    relative = [{"image": os.path.relpath(item["image"])} for item in items]
    assert difference(items, relative) == ""


def test_each_difference_is_named(tmp_path: Path) -> None:
    items = write(tmp_path / "a")
    assert difference(items, write(tmp_path / "b", 4)).startswith("4 training images now, 5 in")
    assert "other sizes" in difference(items, write(tmp_path / "c", size=11))
    (tmp_path / "a/0/000004.png").rename(tmp_path / "a/0/000005.png")
    assert "of other names" in difference(
        items, load_radiograph_datalist(tmp_path / "a", section="test")
    )
    assert "order" in difference(items, items[::-1])


def test_few_files_are_asked_of_a_long_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    stat = os.stat

    def counting(path: Any, **options: Any) -> os.stat_result:
        asked.append(os.fspath(path))
        return stat(path, **options)

    items = [{"image": f"/no/such/folder/{number}.png"} for number in range(1000)]
    monkeypatch.setattr(os, "stat", counting)
    image_fingerprint(items)
    places = [int(Path(path).stem) for path in asked]
    assert 32 <= len(places) <= 64
    gaps = {later - former for former, later in pairwise(places)}
    assert len(gaps) == 1
    assert places[-1] > 900


@pytest.mark.parametrize("items", [None, [], [{"image": torch.ones(2)}], [3], iter([1]), "abc"])
def test_what_names_no_files_has_no_fingerprint(items: Any) -> None:
    assert image_fingerprint(items) is None
    assert image_difference(None, {"count": 1}) is None


def test_several_files_of_an_item_count(tmp_path: Path) -> None:
    one = write(tmp_path / "a")
    pairs = [{"image": [item["image"], item["image"]]} for item in one]
    assert "names" in difference(one, pairs)


def test_a_checkpoint_may_hold_it(tmp_path: Path) -> None:
    found = image_fingerprint(write(tmp_path / "a"))
    torch.save({"images": found}, tmp_path / "checkpoint.pt")
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True) == {"images": found}
