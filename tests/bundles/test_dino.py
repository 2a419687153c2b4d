# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundle of DINO end to end on the phantom."""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from bundles.bundle_runs import (
    LATEST,
    REPOSITORY_ROOT,
    all_messages,
    at,
    check_bundle,
    copy_bundles,
    has,
    last_run,
    run_bundle,
    saved_weights,
    train_in_process,
    write_images,
)
from handlers.tensorboard_server import served_pictures
from monai.bundle import ConfigParser, run
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from monai_afire.networks import ViTEncoder, load_encoder_weights

PHANTOM = {
    "num_patients": {"training": 12, "validation": 4},
    "image_size": 48,
    "abnormal_fraction": 0.5,
    "seed": 0,
}
NETWORK = {
    "image_size": 32,
    "patch_size": 8,
    **at("encoder_def", hidden_size=24, num_layers=1, num_heads=2),
}
HEAD = {**at("network_def", head_dim=16, bottleneck_dim=8, num_prototypes=16)}
TINY = {**NETWORK, **HEAD, "make_crops::local_size": 16, "make_crops::num_local": 2}
RUN = {"epochs": 2, "batch_size": 4, "train::run::val_interval": 1, "phantom": PHANTOM}
CONFIGS = REPOSITORY_ROOT / "bundles/dino/configs"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone's bundles in a folder of their own, with which the test starts."""
    monkeypatch.chdir(copy_bundles(tmp_path))
    return tmp_path


def train(**overrides: object) -> dict[str, torch.Tensor]:
    train_in_process("bundles/dino/configs/train.json", {**TINY, **RUN, **overrides})
    return saved_weights("dino")


def read(name: str) -> dict[str, Any]:
    return ConfigParser.load_config_file(str(CONFIGS / f"{name}.json"))


@pytest.mark.slow
def test_default_run_learns(workspace: Path) -> None:
    """A small network that a core of CI can train; other settings are those of train.json."""
    small = {
        "image_size": 32,
        "make_crops::local_size": 16,
        "patch_size": 8,
        **at("encoder_def", hidden_size=48, num_layers=2, num_heads=2),
    }
    head = {**at("network_def", head_dim=128, bottleneck_dim=64, num_prototypes=256)}
    overrides: dict[str, Any] = {
        **small,
        **head,
        "make_crops::num_local": 2,
        "epochs": 20,
        "train::run::val_interval": 10,
    }
    overrides["phantom::num_patients"] = {"training": 128, "validation": 32}
    result = run_bundle(workspace, "bundles/dino/configs/train.json", overrides)
    assert result.returncode == 0, result.stderr[-3000:]
    for words in ("models/model.pt", "tokens.png", "tensorboard --logdir", "--encoder_weights"):
        assert words in result.stdout
    output = last_run("dino")
    assert Image.open(output / "tokens.png").size[0] > 500
    events = EventAccumulator(str(output)).Reload()
    scalars = {
        tag.split("/")[-1]: [event.value for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }
    assert {
        "total",
        "divergence",
        "entropy",
        "learning_rate",
        "teacher_decay",
        "teacher_temperature",
    } < set(scalars)
    assert {"teacher_information", "teacher_entropy", "feature_spread"} < set(scalars)
    assert scalars["teacher_information"][-1] > 0.02
    assert scalars["crop_accuracy"][-1] > 1.2 * scalars["chance"][-1]


@pytest.mark.slow
def test_runs_repeat_resume_and_feed_an_encoder(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(epochs=3)
    again = train(epochs=3)
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    other = train(epochs=3, seed=1)
    assert any(not torch.equal(whole[name], other[name]) for name in whole)
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    report = load_encoder_weights(encoder, last_run("dino"))
    assert report.missing == []
    torch.testing.assert_close(encoder.norm.weight, other["teacher_encoder.norm.weight"])
    assert set(served_pictures(last_run("dino"))) == {"pictures/tokens"}
    assert whole["teacher_head.mlp.layers.1.running_mean"].any()
    centered = train(**{"epochs": 1, "network_def::teacher_balance": "center"})
    assert centered["center"].any()


@pytest.mark.slow
def test_interrupted_run_ends_with_the_same_bits(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train()
    # the schedules are those of two epochs
    schedules = {
        f"train::{name}_schedule::epochs": 2 for name in ("lr", "weight_decay", "teacher_decay")
    }
    train(**{"train::trainer::max_epochs": 1, **schedules})
    assert any(not torch.equal(value, whole[name]) for name, value in saved_weights("dino").items())
    resumed = train(resume=True)
    assert resumed.keys() == whole.keys()
    assert all(torch.equal(whole[name], value) for name, value in resumed.items())


@pytest.mark.parametrize(
    "override",
    [
        {"make_crops::num_local": 0},
        {"network_def::teacher_balance": "center", "network_def::batch_norm": False},
        {"network_def::norm_last_layer": False, "train::last_layer_freeze::epochs": 0},
        {"flip_prob": 0.5, "standardize": True},
    ],
)
def test_every_variant_is_one_override(workspace: Path, override: dict[str, object]) -> None:
    weights = train(epochs=1, **override)
    assert all(
        bool(value.isfinite().all()) for value in weights.values() if value.is_floating_point()
    )


def test_the_last_layer_waits_for_its_first_epoch(workspace: Path) -> None:
    name = "head.last_layer.parametrizations.weight.original1"
    frozen, learned = (
        train(**{"epochs": 1, "train::last_layer_freeze::epochs": epochs}) for epochs in (1, 0)
    )
    torch.testing.assert_close(frozen[name], frozen[f"teacher_{name}"], rtol=0, atol=1e-6)
    assert not torch.equal(frozen[name], learned[name])


def test_wrong_options_are_named(workspace: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    with pytest.raises(Exception) as error:  # noqa: PT011  MONAI's parser wraps what it meets
        train(**{"make_crops::local_size": 20})
    assert "an image of (20, 20) pixels cannot be cut into patches of (8, 8)" in all_messages(
        error.value
    )


def test_own_images_and_inference(workspace: Path) -> None:
    names = write_images(workspace / "images", 10, size=70)
    train(dataset_dir=str(workspace / "images"))
    run(
        config_file="bundles/dino/configs/inference.json",
        dataset_dir=str(workspace / "images"),
        batch_size=4,
        **LATEST,
    )
    with (last_run("dino") / "embeddings.csv").open() as file:
        rows = list(csv.reader(file))
    assert sorted(Path(row[0]).name for row in rows) == sorted(names)
    assert {len(row) for row in rows} == {1 + 24}


def test_paper_overlays_set_the_papers_values() -> None:
    base, paper, vit_b = read("train"), read("paper"), read("vit_b")
    unknown = [name for name in {**paper, **vit_b} if not has(base, name)]
    assert unknown == [], "the overlays may only set what train.json has"
    names = ("encoder_def::hidden_size", "network_def::num_prototypes", "make_crops::local_size")
    found = [paper[name] for name in names]
    assert found == [384, 65536, 96]
    encoder = read("../../radiograph_classification/configs/vit_b")
    shape = [name for name in vit_b if name in ("image_size", "patch_size")]
    shape += [name for name in vit_b if name.startswith("encoder_def::")]
    assert len(shape) == 5
    assert [vit_b[name] for name in shape] == [encoder[name] for name in shape], (
        "the encoder of the other methods"
    )


@pytest.mark.slow
def test_bundle_keeps_the_rules_of_the_model_zoo(workspace: Path) -> None:
    overrides = {
        "epochs": 1,
        "phantom::num_patients": {"training": 4, "validation": 2},
        "batch_size": 2,
    }
    result = run_bundle(workspace, "bundles/dino/configs/train.json", overrides)
    assert result.returncode == 0, result.stderr[-3000:]
    check_bundle(workspace, "dino")
