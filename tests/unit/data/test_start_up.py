# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Datalists of very many images: few questions to the disk, little memory."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from monai_afire.data.datalist.labeled_items import labeled_items
from monai_afire.data.datalist.labels import check_label_table
from monai_afire.data.datalist.loading import bundle_items

FOLDERS, FILES = 20, 1000


@pytest.fixture(scope="module")
def large_list(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("large")
    items: list[dict[str, Any]] = []
    for number in range(FOLDERS):
        folder = root / f"images_{number:03d}"
        folder.mkdir()
        for member in range(FILES):
            place = number * FILES + member
            name = f"{place // 4:08d}_{place % 4:03d}.png"
            (folder / name).touch()
            label = [int(place % 14 == finding) for finding in range(14)]
            items.append(
                {
                    "image": f"{folder.name}/{name}",
                    "label": label,
                    "patient_id": f"{place // 4:08d}",
                }
            )
    limit = len(items) - 400
    (root / "list.json").write_text(
        json.dumps({"training": items[:limit], "validation": items[limit:]})
    )
    return root / "list.json"


def load(path: Path, way: str) -> list[dict[str, Any]]:
    if way == "folder":
        return bundle_items("training", str(path.parent))
    if way == "list":
        return bundle_items("training", None, str(path))
    return check_label_table(labeled_items("training", None, str(path)), 14)


@pytest.mark.parametrize("way", ["folder", "list", "labels"])
def test_no_question_for_each_file(
    way: str, large_list: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()

    def count(name: str) -> None:
        function = getattr(os, name)

        def counting(*arguments: Any, **options: Any) -> Any:
            asked[name] += 1
            return function(*arguments, **options)

        monkeypatch.setattr(os, name, counting)

    for name in ("stat", "lstat", "open", "scandir"):
        count(name)
    items = load(large_list, way)
    assert len(items) > 15_000
    assert 0 < sum(asked.values()) < 6 * FOLDERS, asked
