# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A name such as "No Finding" among the findings of a list makes normal images abnormal, and is named."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from monai_afire.data.datalist.loading import load_radiograph_datalist


def load(folder: Path, names: Any, labels: list[Any], **facts: Any) -> list[str]:
    """Warnings when a list is read."""
    items = [
        {"image": f"{number}.png", "label": label, **facts} for number, label in enumerate(labels)
    ]
    path = folder / "list.json"
    path.write_text(json.dumps({"finding_names": names, "training": items, "validation": items}))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_radiograph_datalist(datalist=path, check_files=False, leaks="ignore")
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("name", ["No Finding", "no finding", "NORMAL", "None", "nan", " Normal "])
def test_a_name_that_means_none_is_a_warning(tmp_path: Path, name: str) -> None:
    found = load(tmp_path, ["Effusion", name], [[0, 1], [1, 0]])
    assert len(found) == 1
    assert repr(name) in found[0]
    assert load(tmp_path, {"0": name, "1": "Effusion"}, [[0, 1], [1, 0]]) != []


def test_classes_may_be_called_normal(tmp_path: Path) -> None:
    assert load(tmp_path, ["normal", "pneumonia"], [0, 1]) == []
    assert load(tmp_path, ["Effusion", "Nodule"], [[0, 1], [1, 0]]) == []
    assert load(tmp_path, None, [[0, 1], [1, 0]]) == []
