# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Overlays that would undo one another are refused, those that settle it are named, ablations work on the paper's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from apps.runs.bundle_configs import BUNDLES, call_of, config_files
from monai_afire.apps.runs import OptionError, check_call
from monai_afire.apps.runs.overlays import completed, undone_settings, wrong_order

TRAIN: dict[str, Any] = {"imports": [], "epochs": 9, "network": {"width": 1}}
ABLATIONS = [key for key in config_files() if "/ablations/" in key]


def _written(folder: Path, **contents: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Configs of a bundle in a folder, in this order."""
    paths = {str(folder / f"{name}.json"): content for name, content in contents.items()}
    for path, content in paths.items():
        Path(path).write_text(json.dumps(content))
    return paths


@pytest.mark.parametrize(
    ("first", "second", "undone"),
    [
        ({"epochs": 1}, {"epochs": 2}, True),
        ({"epochs": 1}, {"epochs": 1}, False),
        ({"network#width": 1}, {"network::width": 2}, True),
        ({"network::width": 1}, {"network::depth": 2}, False),
        ({"network::width": 1}, {"network": {"depth": 2}}, True),
        ({"network": {"depth": 2}}, {"network::width": 1}, True),
        ({"network": {"depth": 2}}, {"network_2": {"depth": 3}}, False),
        ({"+handlers": [1]}, {"+handlers": [2]}, False),
        ({"epochs": 1}, {"_follows": ["first.json"], "epochs": 2}, False),
        ({"epochs": 1}, {"_follows": ["f*.json"], "epochs": 2}, False),
        ({"_follows": ["none.json"]}, {"_follows": ["another.json"]}, False),
    ],
)
def test_what_counts_as_undone(tmp_path: Path, first: dict, second: dict, undone: bool) -> None:
    layers = _written(tmp_path, train=TRAIN, first=first, second=second)
    assert (undone_settings(layers) is not None) == undone
    assert wrong_order(layers) is None


def test_whatever_comes_after_both_settles_it(tmp_path: Path) -> None:
    layers = _written(
        tmp_path, train=TRAIN, first={"epochs": 1}, second={"epochs": 2, "network::width": 1}
    )
    assert "first.json and second.json set epochs differently; leave one out" in (
        undone_settings(layers) or ""
    )
    assert undone_settings(layers, given=["epochs"]) is None
    assert undone_settings({**layers, "own.json": {"epochs": 3}}) is None
    _written(tmp_path, both={"_follows": ["first.json", "second.json"], "epochs": 2})
    assert (undone_settings(layers) or "").endswith("add both.json after both")
    assert completed(list(layers)) == [*layers, str(tmp_path / "both.json")]
    assert completed(completed(list(layers))) == completed(list(layers))


def test_the_users_own_configs_may_change_anything(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    layers = _written(tmp_path / "bundle", train=TRAIN, long={"epochs": 99})
    assert undone_settings({**layers, **_written(tmp_path, mine={"epochs": 1})}) is None


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_ablations_work_on_the_papers_settings_in_both_orders_or_are_refused(ablation: str) -> None:
    bundle, name = ablation.split("/")[0], Path(ablation).name
    for paper in (
        key for key in (f"{bundle}/paper", f"{bundle}/paper_vit") if key in config_files()
    ):
        after, before = (
            call_of([f"{bundle}/train", *order]) for order in ([paper, ablation], [ablation, paper])
        )
        check_call(after)
        if wrong_order(before.layers):
            with pytest.raises(
                OptionError, match=rf"{Path(paper).name}\.json must come before {name}\.json"
            ):
                check_call(before)
        else:
            check_call(before)
            assert before.config == after.config


@pytest.mark.parametrize("name", ["anat_paste", "cut_paste"])
def test_pasted_lesions_are_as_many_as_those_they_are_compared_with(name: str) -> None:
    for papers, number in (([], 2), (["afire/paper"], 9)):
        call = call_of(["afire/train", *papers, f"afire/ablations/{name}"])
        check_call(call)
        call.parser["train::preprocessing::transforms"] = ["@paste"]
        assert call.parser.get_parsed_content("paste").transform.num_masks == number


def test_the_papers_anomaly_recipe_is_asked_for_and_keeps_the_papers_settings() -> None:
    with pytest.raises(
        OptionError, match=r"set .* differently; add paper_anomaly\.json after both"
    ):
        check_call(call_of(["afire/train", "afire/paper", "afire/finetune_anomaly"], pretrained=""))
    run = ["afire/train", "afire/paper", "afire/finetune_anomaly", "afire/paper_anomaly"]
    call = call_of(run, pretrained="")
    check_call(call)
    paper = call_of(run[:2]).config
    assert call.config["add_lesions"] == paper["add_lesions"]
    assert (
        call.config["train"]["teacher_temperature_schedule"]
        == paper["train"]["teacher_temperature_schedule"]
    )
    assert call.config["optimizer"]["_target_"] == "torch.optim.Adam"
    call.parser["imports"] = ["$import monai_afire"]
    settings = [
        call.parser.get_parsed_content(name)
        for name in ("learning_rate", "batch_size", "encoder_def::hidden_size")
    ]
    assert settings == [1e-4, 64, 768]


def test_the_papers_anomaly_recipe_needs_no_sizes_beside_it() -> None:
    recipe = call_of(
        ["afire/train", "afire/finetune_anomaly", "afire/paper_anomaly"], pretrained=""
    )
    check_call(recipe)
    complete = call_of(
        ["afire/train", "afire/paper", "afire/finetune_anomaly", "afire/paper_anomaly"],
        pretrained="",
    )
    for entry in ("add_lesions", "train", "optimizer", "learning_rate", "batch_size", "epochs"):
        assert recipe.config[entry] == complete.config[entry]
    sizes = {
        name
        for name, value in complete.config["network_def"].items()
        if recipe.config["network_def"].get(name) != value
    }
    assert sizes == {"num_clusters", "head_dim", "decoder_dim", "decoder_layers", "decoder_heads"}


def test_every_overlay_names_files_that_exist() -> None:
    for key, content in config_files().items():
        folder = BUNDLES / key.split("/")[0] / "configs"
        missing = [name for name in content.get("_follows", ()) if not list(folder.rglob(name))]
        assert missing == [], key
