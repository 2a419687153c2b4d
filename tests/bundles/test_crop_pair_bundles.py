# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundles of the methods that learn from pairs of crops, PEAC and ACE, end to end on the phantom."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
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
    "image_size": 64,
    "abnormal_fraction": 0.5,
    "seed": 0,
}
ENCODER = {
    "image_size": 32,
    "patch_size": 8,
    **at("encoder_def", hidden_size=24, num_layers=1, num_heads=2),
}
TINY = {
    "peac": {**ENCODER, "grid": 6, **at("network_def", expander_dim=8, expander_hidden_dim=16)},
    "ace": {**ENCODER, "grid": 10, "cell": 4},
}
RUN = {"epochs": 2, "batch_size": 4, "train::run::val_interval": 1, "phantom": PHANTOM}
METHODS = sorted(TINY)
LABELED = (
    "$lambda section: [{'image': item['image'], 'label': [float(item['abnormal'])]}"
    " for item in monai_afire.data.bundle_items(section, @dataset_dir, @datalist, @items::phantom)]"
)
LOADER = (
    "$lambda section: monai.data.DataLoader(monai.data.CacheDataset(@labeled(section),"
    " monai.transforms.Compose(@probe_transforms)), batch_size=64)"
)
PROBE = {
    "labeled": LABELED,
    "probe_transforms": [
        {"_target_": "LoadRadiographd", "keys": "image"},
        {
            "_target_": "Resized",
            "keys": "image",
            "spatial_size": "$[@image_size, @image_size]",
            "mode": "area",
            "anti_aliasing": False,
        },
        {"_target_": "LabelVectord", "keys": "label"},
    ],
    "probe_loader": LOADER,
    "probe": {
        "_target_": "monai_afire.handlers.KNNProbe",
        "network": "@network_def",
        "train_batches": "$@probe_loader('training')",
        "test_batches": "$@probe_loader('validation')",
        "interval": 1,
    },
    "+train::handlers": ["@probe"],
}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone's bundles in a folder of their own, with which the test starts."""
    monkeypatch.chdir(copy_bundles(tmp_path))
    return tmp_path


def train(method: str, **overrides: object) -> dict[str, torch.Tensor]:
    train_in_process(f"bundles/{method}/configs/train.json", {**TINY[method], **RUN, **overrides})
    return saved_weights(method)


def scalars_of(folder: Path) -> dict[str, list[float]]:
    events = EventAccumulator(str(folder)).Reload()
    return {
        tag.split("/")[-1]: [event.value for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "picture", "figure", "chance"),
    [
        ("peac", "restoration", "order_accuracy", 1 / 64),
        ("ace", "correspondence", "composition_accuracy", 1 / 64),
    ],
)
def test_default_run_learns(
    workspace: Path, method: str, picture: str, figure: str, chance: float
) -> None:
    overrides = {
        "epochs": 6,
        "train::run::val_interval": 3,
        "phantom::num_patients": {"training": 384, "validation": 32},
    }
    result = run_bundle(workspace, f"bundles/{method}/configs/train.json", overrides)
    assert result.returncode == 0, result.stderr[-3000:]
    for words in ("models/model.pt", f"{picture}.png", "tensorboard --logdir", "--encoder_weights"):
        assert words in result.stdout
    folder = last_run(method)
    assert Image.open(folder / f"{picture}.png").size[0] > 500
    scalars = scalars_of(folder)
    assert np.mean(scalars["total"][-3:]) < 0.9 * np.mean(scalars["total"][:2])
    assert scalars[figure][-1] > scalars[figure][0]
    assert scalars[figure][-1] > 5 * chance
    assert {"learning_rate", "weight_decay", "teacher_decay"} < set(scalars)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_runs_repeat_resume_and_feed_an_encoder(workspace: Path, method: str) -> None:
    whole = train(method, epochs=3)
    train(method, epochs=2)
    resumed = train(method, epochs=3, resume=True)
    other = train(method, epochs=3, seed=1)
    # the schedules of a run of two epochs are others, hence only the length of the resumed run is compared
    assert resumed.keys() == whole.keys() == other.keys()
    again = train(method, epochs=3)
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    assert any(not torch.equal(whole[name], other[name]) for name in whole)
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    report = load_encoder_weights(encoder, last_run(method))
    assert report.missing == []
    torch.testing.assert_close(encoder.norm.weight, again["teacher_encoder.norm.weight"])
    pictures = served_pictures(last_run(method))
    assert set(pictures) == {
        {"peac": "pictures/restoration", "ace": "pictures/correspondence"}[method]
    }


@pytest.mark.parametrize(
    ("method", "override"),
    [
        ("peac", {"loss::order_weight": 0}),
        ("peac", {"loss::restoration_weight": 0}),
        ("peac", {"loss::global_weight": 0}),
        ("peac", {"loss::local_weight": 0}),
        ("peac", {"loss::global_weight": 0, "loss::local_weight": 0}),
        ("peac", {"shuffle_patches::prob": 1.0}),
        ("ace", {"loss::global_weight": 0}),
        ("ace", {"loss::composition_weight": 0}),
        ("ace", {"loss::decomposition_weight": 0}),
        ("ace", {"standardize": True}),
        ("ace", {"augment_crops::prob": 1.0}),
    ],
)
def test_every_ablation_is_one_override(
    workspace: Path, method: str, override: dict[str, object]
) -> None:
    weights = train(method, epochs=1, **override)
    assert all(
        bool(value.isfinite().all()) for value in weights.values() if value.is_floating_point()
    )


@pytest.mark.parametrize(
    ("method", "override", "words"),
    [
        ("peac", {"grid": 3}, "grid"),
        ("ace", {"grid": 7}, "grid"),
        ("ace", {"image_size": 24}, "even"),
        (
            "peac",
            at("loss", order_weight=0, restoration_weight=0, global_weight=0, local_weight=0),
            "all zero",
        ),
    ],
)
def test_wrong_options_are_named(
    workspace: Path, method: str, override: dict[str, Any], words: str
) -> None:
    with pytest.raises(Exception) as error:  # noqa: PT011  MONAI's parser wraps what it meets
        train(method, **override)
    assert words in all_messages(error.value)


@pytest.mark.parametrize("method", METHODS)
def test_own_images_and_inference(workspace: Path, method: str) -> None:
    names = write_images(workspace / "images", 10, size=70)
    train(method, dataset_dir=str(workspace / "images"))
    settings = {"dataset_dir": str(workspace / "images"), "batch_size": 4, **LATEST}
    run(config_file=f"bundles/{method}/configs/inference.json", **settings)
    output = last_run(method)
    if method == "peac":
        restored = sorted(output.glob("*.png"))
        assert len(restored) == len(names)
        assert Image.open(restored[0]).size == (32, 32)
    else:
        with (output / "embeddings.csv").open() as file:
            rows = list(csv.reader(file))
        assert sorted(Path(row[0]).name for row in rows) == sorted(names)
        assert {len(row) for row in rows} == {1 + 24}


@pytest.mark.parametrize("method", METHODS)
def test_a_probe_runs_while_pretraining(
    workspace: Path, capfd: pytest.CaptureFixture[str], method: str
) -> None:
    (workspace / "probe.json").write_text(json.dumps(PROBE))
    config = [f"bundles/{method}/configs/train.json", "probe.json"]
    train_in_process(config, {**TINY[method], **RUN})
    assert len(re.findall(r"epoch \d: knn_auc [01]\.\d+", "".join(capfd.readouterr()))) == 2
    probed = saved_weights(method)
    plain = train(method)
    assert all(torch.equal(probed[name], plain[name]) for name in plain), (
        "the probe changed the run"
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("overlay", ["paper", "paper_vit"])
def test_paper_overlays_set_the_papers_values(method: str, overlay: str) -> None:
    configs = REPOSITORY_ROOT / "bundles" / method / "configs"
    base = ConfigParser.load_config_file(str(configs / "train.json"))
    values = ConfigParser.load_config_file(str(configs / f"{overlay}.json"))
    assert [name for name in values if not has(base, name)] == [], (
        "the overlay may only set what train.json has"
    )
    parser = ConfigParser()
    parser.read_config([str(configs / "train.json"), str(configs / f"{overlay}.json")])
    parser["imports"] = None
    size = 224 if (method, overlay) == ("peac", "paper_vit") else 448
    assert parser.get_parsed_content("image_size") == size
    if overlay == "paper":
        encoder = parser.get_parsed_content("encoder", instantiate=False)
        assert encoder.get_config()["_target_"] == "monai_afire.networks.SwinEncoder"
        assert size // parser.get_parsed_content("patch_size") == 14


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_bundle_keeps_the_rules_of_the_model_zoo(workspace: Path, method: str) -> None:
    overrides = {
        "epochs": 1,
        "phantom::num_patients": {"training": 4, "validation": 2},
        "batch_size": 2,
    }
    result = run_bundle(workspace, f"bundles/{method}/configs/train.json", overrides)
    assert result.returncode == 0, result.stderr[-3000:]
    check_bundle(workspace, method)
