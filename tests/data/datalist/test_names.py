# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Names beside a model's weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from monai_afire.data import DatalistError, class_names, labeled_items, saved_class_names
from monai_afire.data.datalist.labels import save_class_names
from monai_afire.networks import TransferClassifier, ViTEncoder, save_network


def test_names_come_back_in_their_order(tmp_path: Path) -> None:
    save_class_names(("b", "a", "Ödem"), tmp_path / "new")
    assert saved_class_names(tmp_path / "new" / "model.pt", default=["x"]) == ["b", "a", "Ödem"]
    save_class_names(["c"], tmp_path / "new")
    assert saved_class_names(tmp_path / "new" / "another.pt") == ["c"]


def test_default_stands_in_for_a_missing_file(tmp_path: Path) -> None:
    assert saved_class_names(tmp_path / "model.pt", ["x"]) == ["x"]
    with pytest.raises(ValueError, match=r"class_names\.json"):
        saved_class_names(tmp_path / "model.pt")


def test_names_of_a_later_run_in_the_same_folder_are_not_the_models(tmp_path: Path) -> None:
    network = TransferClassifier(
        ViTEncoder(img_size=16, patch_size=8, hidden_size=12, num_layers=1, num_heads=2), 2
    )
    save_network(network, tmp_path / "model.pt", {"class_names": ["effusion", "nodule"]})
    save_class_names(["nodule", "effusion"], tmp_path)
    assert saved_class_names(tmp_path / "model.pt") == ["effusion", "nodule"]


@pytest.mark.parametrize("content", ["{", "{}", "[]", '["a", 1]', '"a"'])
def test_damaged_files_are_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "class_names.json").write_text(content)
    with pytest.raises(ValueError, match=r"class_names\.json"):
        saved_class_names(tmp_path / "model.pt", ["x"])


@pytest.mark.parametrize(
    ("key", "header", "label", "expected"),
    [
        ("label", "finding_names", [1, 0, -1], [-1, 1, 0]),
        ("label", "labels", 2, 0),
        ("landmarks", "landmark_names", [[1, 1], None, [3, 3]], [[3, 3], [1, 1], None]),
        ("organs", "organ_names", ["a.png", "b.png", "c.png"], ["c.png", "a.png", "b.png"]),
    ],
)
def test_labels_follow_the_order_of_the_weights(
    tmp_path: Path, key: str, header: str, label: Any, expected: Any
) -> None:
    for name in "abc":
        (tmp_path / f"{name}.png").touch()
    names = ["nodule", "edema", "effusion"]
    content = {"test": [{"image": "a.png", key: label}], header: names}
    (tmp_path / "list.json").write_text(json.dumps(content))
    save_class_names(["effusion", "nodule", "edema"], tmp_path / "models")
    weights, datalist = str(tmp_path / "models/model.pt"), str(tmp_path / "list.json")
    assert class_names(datalist, key=key, weights=weights) == ["effusion", "nodule", "edema"]
    [item] = labeled_items("test", datalist=datalist, label_key=key, weights=weights)
    found = [Path(path).name for path in item["label"]] if key == "organs" else item["label"]
    assert found == expected
    save_class_names(["effusion", "nodule", "fracture"], tmp_path / "models")
    with pytest.raises(
        DatalistError, match="nodule, edema, effusion; the weights know effusion, nodule, fracture"
    ):
        class_names(datalist, key=key, weights=weights)
    # a list without names is taken to be in the order of the weights
    (tmp_path / "list.json").write_text(json.dumps({"test": content["test"]}))
    assert class_names(datalist, None, 3, key, weights) == ["effusion", "nodule", "fracture"]
