# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundle of the masked autoencoder, end to end on the phantom."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bundles.bundle_runs import (
    LATEST,
    REPOSITORY_ROOT,
    TINY_ENCODER,
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

TRAIN = "bundles/mae/configs/train.json"
TINY = {
    **TINY_ENCODER,
    **at("network_def", decoder_dim=8, decoder_layers=1, decoder_heads=2),
}
PHANTOM = {
    "num_patients": {"training": 12, "validation": 4},
    "image_size": 64,
    "abnormal_fraction": 0.5,
    "seed": 0,
}
RUN = {"epochs": 2, "batch_size": 4, "train::run::val_interval": 1, "phantom": PHANTOM}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone's bundles in a folder of their own, with which the test starts."""
    monkeypatch.chdir(copy_bundles(tmp_path))
    return tmp_path


def train(**overrides: object) -> dict[str, torch.Tensor]:
    train_in_process(TRAIN, {**TINY, **RUN, **overrides})
    return saved_weights("mae")


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(value, second[name]) for name, value in first.items()
    )


def scalars_of(folder: Path) -> dict[str, list[float]]:
    events = EventAccumulator(str(folder)).Reload()
    return {
        tag.split("/")[-1]: [event.value for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


@pytest.mark.slow
def test_default_run_learns(workspace: Path) -> None:
    overrides = {
        "epochs": 6,
        "train::run::val_interval": 3,
        "phantom::num_patients": {"training": 384, "validation": 32},
    }
    result = run_bundle(workspace, TRAIN, overrides)
    assert result.returncode == 0, result.stderr[-3000:]
    for words in (
        "models/model.pt",
        "reconstruction.png",
        "tensorboard --logdir",
        "--encoder_weights",
    ):
        assert words in result.stdout
    output = last_run("mae")
    assert Image.open(output / "reconstruction.png").size[0] > 500
    scalars = scalars_of(output)
    assert np.mean(scalars["total"][-3:]) < 0.9 * np.mean(scalars["total"][:2])
    assert scalars["reconstruction_gain"][-1] > max(0.02, scalars["reconstruction_gain"][0])
    assert {"reconstruction", "learning_rate", "reconstruction_variety", "embedding_spread"} < set(
        scalars
    )


@pytest.mark.slow
def test_runs_repeat_resume_in_mid_run_and_feed_an_encoder(workspace: Path) -> None:
    whole = train(epochs=3)
    train(epochs=3, **{"train::trainer::max_epochs": 2, "train::lr_schedule::epochs": 3})
    resumed = train(epochs=3, resume=True)
    assert equal(resumed, whole), "the same masks, crops and schedules"
    other = train(epochs=3, seed=1)
    assert not equal(other, whole)
    assert equal(train(epochs=3), whole)
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    assert load_encoder_weights(encoder, last_run("mae")).missing == []
    torch.testing.assert_close(encoder.norm.weight, whole["encoder.norm.weight"])
    assert set(served_pictures(last_run("mae"))) == {"pictures/reconstruction"}


@pytest.mark.parametrize(
    "override",
    [
        {"network_def::normalize_target": False},
        {"hide_patches::mask_ratio": 0.9, "flip_prob": 0.5},
        {"crop_scale": [1.0, 1.0]},
    ],
)
def test_every_choice_is_one_override(workspace: Path, override: dict[str, object]) -> None:
    weights = train(epochs=1, **override)
    assert all(
        bool(value.isfinite().all()) for value in weights.values() if value.is_floating_point()
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ({"hide_patches::mask_ratio": 1}, "mask_ratio"),
        ({"hide_patches::mask_ratio": 0.99}, "0 of 16 patches are visible"),
        ({"network_def::decoder_heads": 3}, "decoder_heads"),
    ],
)
def test_wrong_options_are_named(workspace: Path, override: dict[str, Any], words: str) -> None:
    with pytest.raises((Exception, SystemExit)) as error:
        train(**override)
    assert words in all_messages(error.value)


def test_own_images_and_embeddings(workspace: Path) -> None:
    names = write_images(workspace / "images", 10, size=70)
    train(dataset_dir=str(workspace / "images"))
    run(
        config_file="bundles/mae/configs/inference.json",
        dataset_dir=str(workspace / "images"),
        batch_size=4,
        **LATEST,
    )
    with (last_run("mae") / "embeddings.csv").open() as file:
        rows = list(csv.reader(file))
    assert sorted(Path(row[0]).name for row in rows) == sorted(names)
    assert {len(row) for row in rows} == {1 + 24}


@pytest.mark.parametrize("overlays", [["paper"], ["radiograph"], ["paper", "radiograph"]])
def test_overlays_set_the_papers_values(overlays: list[str]) -> None:
    configs = REPOSITORY_ROOT / "bundles/mae/configs"
    base = ConfigParser.load_config_file(str(configs / "train.json"))
    for overlay in overlays:
        values = ConfigParser.load_config_file(str(configs / f"{overlay}.json"))
        assert [name for name in values if not has(base, name)] == [], (
            "the overlay may only set what train.json has"
        )
    parser = ConfigParser()
    parser.read_config([str(configs / f"{name}.json") for name in ("train", *overlays)])
    parser["imports"] = None
    assert parser.get_parsed_content("image_size") == (224 if "paper" in overlays else 128)
    assert parser.get_parsed_content("hide_patches::mask_ratio") == (
        0.9 if "radiograph" in overlays else 0.75
    )
    # a crop is never smaller than the network's input
    smallest, whole = (
        parser.get_parsed_content("crop_scale")[0] ** 0.5,
        parser.get_parsed_content("whole_size"),
    )
    assert np.ceil(smallest * whole) >= parser.get_parsed_content("image_size")


@pytest.mark.slow
def test_bundle_keeps_the_rules_of_the_model_zoo(workspace: Path) -> None:
    overrides = {
        "epochs": 1,
        "phantom::num_patients": {"training": 4, "validation": 2},
        "batch_size": 2,
    }
    result = run_bundle(workspace, TRAIN, overrides)
    assert result.returncode == 0, result.stderr[-3000:]
    check_bundle(workspace, "mae")
