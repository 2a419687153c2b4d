# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a run says before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from apps.runs.bundle_configs import call_of
from monai_afire.apps.runs.start import first_lines, origin, print_first_lines
from torch import nn

from monai_afire.networks import save_network
from monai_afire_cli.bundles.bundle import bundles_folder

IMAGES = {"dataset_dir": "/radiographs", "device": "cpu"}


@pytest.mark.parametrize(
    ("run", "overrides", "hint"),
    [
        (["afire/train"], {"dataset_dir": "/radiographs"}, True),
        (["ace/train"], {"datalist": "list.json"}, True),
        (["afire/train"], {}, False),
        (["afire/train"], {"dataset_dir": "/radiographs", "epochs": 800}, False),
        (["afire/train", "afire/paper"], {"dataset_dir": "/radiographs"}, False),
        (["peac/train", "peac/paper_vit"], {"dataset_dir": "/radiographs"}, False),
        (["afire/train", "afire/finetune_anomaly"], {"dataset_dir": "/radiographs"}, False),
        (
            ["afire/train", "afire/finetune_anomaly", "afire/fit_encoder"],
            {"dataset_dir": "/radiographs", "encoder_weights": "released"},
            False,
        ),
        (["afire/inference"], {"dataset_dir": "/radiographs"}, False),
        (["radiograph_classification/train"], {"dataset_dir": "/radiographs"}, False),
    ],
)
def test_small_settings_are_named_where_own_images_meet_them(
    run: list[str], overrides: dict[str, Any], hint: bool
) -> None:
    is_inference = run[0].endswith("/inference")
    switch = "inferer::enabled" if is_inference else "train::inferer::enabled"
    origin, first, *others = first_lines(call_of(run, device="cpu", **{switch: False}, **overrides))
    assert origin == "configs: as they come with monai_afire"
    assert first == "computing on cpu in float32"
    others = [line for line in others if not line.startswith(("weights: ", "images: "))]
    assert ["overlay paper" in line for line in others] == [True] * hint


def test_fewer_threads_are_named() -> None:
    run = call_of(["afire/inference"], device="cpu", **{"inferer::enabled": False})
    assert "computing on cpu in float32 (1 thread of 2)" in first_lines(run, "1 thread of 2")


@pytest.mark.parametrize(
    ("run", "overrides", "path", "is_own"),
    [
        ("afire/inference", {}, "released/detector.safetensors", False),
        ("afire/inference", {"ckpt_path": "mine.pt"}, "mine.pt", True),
        ("radiograph_classification/inference", {}, "released/nih_findings.pt", False),
    ],
)
def test_the_weights_in_use_are_named(
    run: str, overrides: dict[str, Any], path: str, is_own: bool
) -> None:
    lines = list(first_lines(call_of([run], **IMAGES, **overrides)))
    [line] = [line for line in lines if line.startswith("weights: ")]
    assert path in line
    assert ("come with the bundle" in line) is not is_own
    assert not any("weights: " in line for line in first_lines(call_of(["afire/train"], **IMAGES)))


def test_weights_of_phantoms_are_called_so() -> None:
    landmarks, segmentation = "radiograph_landmarks/inference", "radiograph_segmentation/inference"
    for run, given, is_of_phantoms in (
        (landmarks, IMAGES, True),
        (segmentation, {"device": "cpu"}, True),
        (segmentation, IMAGES, False),
    ):
        [line] = [line for line in first_lines(call_of([run], **given)) if "weights: " in line]
        assert ("trained on drawn phantoms" in line) is is_of_phantoms


@pytest.mark.parametrize(
    "run",
    [
        ["radiograph_classification/train"],
        ["afire/train", "afire/finetune_anomaly", "afire/fit_encoder"],
    ],
)
def test_an_encoder_of_phantoms_gets_one_warning_where_radiographs_meet_it(
    run: list[str], tmp_path: Path
) -> None:
    def warned(trained_on: str | None, **given: Any) -> list[str]:
        path = save_network(
            nn.Linear(1, 1), tmp_path / f"{trained_on}.pt", {"trained_on": trained_on}
        )
        lines = first_lines(call_of(run, encoder_weights=str(path), **given))
        return [line for line in lines if line.startswith("warning: ")]

    [line] = warned("phantoms", **IMAGES)
    assert "phantoms.pt was trained on drawn phantoms alone" in line
    assert "--encoder_weights released" in line
    assert warned("radiographs", **IMAGES) == warned(None, **IMAGES) == []
    assert warned("phantoms", device="cpu") == []


def test_drawn_images_are_named_where_none_are_given() -> None:
    def drawn(run: str, **overrides: Any) -> list[str]:
        return [line for line in first_lines(call_of([run], **overrides)) if "phantoms" in line]

    for run in ("afire/inference", "afire/train", "radiograph_segmentation/train"):
        [line] = drawn(run)
        assert "--dataset_dir" in line
        assert drawn(run, dataset_dir="/radiographs") == drawn(run, datalist="list.json") == []


def test_one_process_speaks_for_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = call_of(["afire/train"], **IMAGES)
    monkeypatch.setenv("RANK", "1")
    print_first_lines(call)
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("RANK", "0")
    print_first_lines(call)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_other_configs_than_the_package_s_are_named(tmp_path: Path) -> None:
    packaged = bundles_folder() / "mae/configs/train.json"
    copy, changed, own = (tmp_path / name for name in ("train.json", "a/train.json", "own.json"))
    changed.parent.mkdir()
    copy.write_bytes(packaged.read_bytes())
    changed.write_bytes(packaged.read_bytes() + b" ")
    own.write_text("{}")
    assert origin([copy, packaged]) == "configs: as they come with monai_afire"
    line = origin([copy, changed, own])
    assert f"{changed}, {own}" in line
    assert str(copy) not in line
