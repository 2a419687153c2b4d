# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Names of classes in a list and beside a model's weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from monai_afire.data import DatalistError, class_names, labeled_items, saved_class_names
from monai_afire.networks import TransferClassifier, ViTEncoder, save_network


def weights_of(names: list[str], path: Path) -> str:
    """A file of weights that names its classes."""
    encoder = ViTEncoder(img_size=16, patch_size=8, hidden_size=12, num_layers=1, num_heads=2)
    network = TransferClassifier(encoder, len(names))
    return str(save_network(network, path, {"class_names": names}))


def test_weights_know_their_classes(tmp_path: Path) -> None:
    weights = weights_of(["b", "a", "Ödem"], tmp_path / "model.pt")
    assert saved_class_names(weights, default=["x"]) == ["b", "a", "Ödem"]
    assert saved_class_names(tmp_path / "none.pt", ["x"]) == ["x"]
    with pytest.raises(ValueError, match=r"none\.pt"):
        saved_class_names(tmp_path / "none.pt")


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
    weights = weights_of(["effusion", "nodule", "edema"], tmp_path / "model.pt")
    datalist = str(tmp_path / "list.json")
    assert class_names(datalist, key=key, weights=weights) == ["effusion", "nodule", "edema"]
    [item] = labeled_items("test", datalist=datalist, label_key=key, weights=weights)
    found = [Path(path).name for path in item["label"]] if key == "organs" else item["label"]
    assert found == expected
    weights = weights_of(["effusion", "nodule", "fracture"], tmp_path / "model.pt")
    with pytest.raises(DatalistError, match=r"edema.*fracture"):
        class_names(datalist, key=key, weights=weights)
    # a list without names is taken to be in the order of the weights
    (tmp_path / "list.json").write_text(json.dumps({"test": content["test"]}))
    assert class_names(datalist, None, 3, key, weights) == ["effusion", "nodule", "fracture"]


@pytest.mark.parametrize(
    ("header", "number", "expected"),
    [
        ({"finding_names": ["Mass", "Edema"], "labels": {"0": "x"}}, 2, ["Mass", "Edema"]),
        ({"labels": {"1": "nodule", "0": "no nodule"}}, 2, ["no nodule", "nodule"]),
        ({"labels": {"1": "nodule", "0": "no nodule"}}, 1, ["nodule"]),
        ({"labels": {str(n): f"c{n}" for n in range(12)}}, None, [f"c{n}" for n in range(12)]),
        ({"labels": {"0": "a", "1": "b"}, "finding_names": ["c", "d", "e"]}, 2, ["a", "b"]),
        ({"labels": {"yes": "1"}}, 2, ["class 0", "class 1"]),
    ],
)
def test_names_of_a_list(
    tmp_path: Path, header: dict[str, Any], number: int | None, expected: list[str]
) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps(header))
    assert class_names(str(path), num_classes=number) == expected
