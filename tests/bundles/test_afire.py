# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The AFiRe bundle, end to end on the phantom."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bundles.bundle_runs import (
    LATEST,
    REPOSITORY_ROOT,
    TINY,
    all_messages,
    at,
    check_bundle,
    command,
    copy_bundles,
    environment,
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

CONFIG = "bundles/afire/configs/train.json"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone's bundles in a folder of their own, with which the test starts."""
    monkeypatch.chdir(copy_bundles(tmp_path))
    return tmp_path


def train(*overlays: str, **overrides: Any) -> dict[str, torch.Tensor]:
    """Train in this process; returns the weights that were saved."""
    train_in_process(
        [f"bundles/afire/configs/{name}.json" for name in ("train", *overlays)],
        {**TINY, **overrides},
    )
    return saved_weights("afire")


@pytest.mark.slow
def test_default_run_learns_and_says_where_things_are(workspace: Path) -> None:
    # the README's command with fewer epochs
    result = run_bundle(workspace, CONFIG, {"epochs": 5, "train::run::val_interval": 5})
    assert result.returncode == 0, result.stderr[-3000:]
    last_lines = "\n".join(result.stdout.strip().splitlines()[-4:])
    for words in (
        "models/model.pt",
        "checkpoint.pt",
        "restoration.png",
        "tensorboard --logdir",
        "finetune_anomaly.json",
    ):
        assert words in last_lines
    for words in ("5/5", "structure="):  # the progress bar
        assert words in result.stderr
    folder = last_run("afire")
    assert (folder / "models/model.pt").is_file()
    assert (folder / "models/checkpoint.pt").is_file()
    assert Image.open(folder / "restoration.png").size[0] > 500

    events = EventAccumulator(str(folder)).Reload()
    scalars = {
        tag.split("/")[-1]: [event.value for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }
    for tag in (
        *(
            "total",
            "structure",
            "category",
            "restoration",
            "learning_rate",
            "weight_decay",
            "teacher_decay",
        ),
        *("teacher_temperature", "abnormal_fraction", "prototype_entropy", "prototype_information"),
    ):
        assert tag in scalars, f"{tag} is not in TensorBoard"
    assert np.mean(scalars["total"][-5:]) < 0.2 * np.mean(scalars["total"][:3])
    assert scalars["restoration_gain"][-1] > 0.2  # 0: as bad as copying the lesions
    assert scalars["position_accuracy"][-1] > 0.5  # chance: 1/64
    assert scalars["prototype_information"][-1] > 0.3  # 0: all positions alike, collapsed
    assert 0.02 < np.mean(scalars["abnormal_fraction"]) < 0.5


def checkpoints_beside(started: set[Path]) -> list[Path]:
    """Checkpoints of the runs that have begun since some others."""
    found = Path("runs/afire").glob("2*/models/checkpoint.pt")
    return [path for path in found if path.parents[1] not in started]


@pytest.mark.slow
def test_killed_run_resumes_to_the_same_weights(workspace: Path) -> None:
    overrides = {**TINY, "epochs": 8, "learning_rate": 0.003}
    whole = run_bundle(workspace, CONFIG, overrides)
    assert whole.returncode == 0, whole.stderr[-3000:]
    expected = saved_weights("afire")
    started = set(Path("runs/afire").iterdir())

    process = subprocess.Popen(
        command(CONFIG, overrides),
        cwd=workspace,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 300
    while (
        not checkpoints_beside(started) and process.poll() is None and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    time.sleep(0.15)  # into some later epoch
    process.send_signal(signal.SIGKILL)
    process.wait()
    (checkpoint,) = checkpoints_beside(started)
    epoch = torch.load(checkpoint, weights_only=True)["training"]["epoch"]
    assert 1 <= epoch < 8, "the run was not interrupted half-way"

    resumed = run_bundle(workspace, CONFIG, {**overrides, "resume": True})
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    weights = torch.load(checkpoint.with_name("model.pt"), weights_only=True)
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=0, msg=name)


@pytest.mark.slow
def test_two_runs_with_one_seed_are_equal_and_another_seed_differs(workspace: Path) -> None:
    first, again, other = train(), train(), train(seed=1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.mlp.0.weight"], other["head.mlp.0.weight"])
    assert set(served_pictures(last_run("afire"))) == {"pictures/restoration"}


ABLATIONS = sorted(
    path.stem for path in (REPOSITORY_ROOT / "bundles/afire/configs/ablations").glob("*.json")
)


@pytest.mark.parametrize(
    "overlay", [*(f"ablations/{name}" for name in ABLATIONS), "lesions_on_device"]
)
def test_every_ablation_is_one_overlay(workspace: Path, overlay: str) -> None:
    weights = train(overlay, epochs=1)
    assert all(
        bool(value.isfinite().all()) for value in weights.values() if value.is_floating_point()
    )


@pytest.mark.parametrize(
    "override",
    [
        {"network_def::use_prototypes": False},
        {"loss::contrast_weight": 0},
        {"loss::include_abnormal_pairs": True},
        {"network_def::num_clusters": 12},
        {"add_lesions::num_masks": 3},
        {"train::inferer::dtype": "$torch.float16"},
    ],
    ids=lambda override: "-".join(f"{name}={value}" for name, value in override.items()),
)
def test_a_setting_is_overridden_by_its_path(workspace: Path, override: dict[str, Any]) -> None:
    weights = train(epochs=1, **override)
    assert all(
        bool(value.isfinite().all()) for value in weights.values() if value.is_floating_point()
    )
    if "network_def::num_clusters" in override:
        assert weights["bank.prototypes"].shape[-1] == 12


@pytest.mark.parametrize(
    ("overlays", "override", "words"),
    [
        ((), {"network_def::contrast_space": "pixels"}, "contrast_space"),
        ((), {"image_size": 36}, "patches"),
        (
            (),
            {
                "loss::structure_weight": 0,
                "loss::category_weight": 0,
                "loss::restoration_weight": 0,
            },
            "all zero",
        ),
    ],
)
def test_wrong_options_are_named(
    workspace: Path, overlays: tuple[str, ...], override: dict[str, Any], words: str
) -> None:
    with pytest.raises(Exception) as error:  # noqa: PT011  MONAI's parser wraps what it meets
        train(*overlays, **override)
    assert words in all_messages(error.value)


def test_paper_overlay_sets_the_papers_values() -> None:
    root = Path(__file__).resolve().parents[2] / "bundles/afire/configs"
    parser = ConfigParser()
    parser.read_config([str(root / "train.json"), str(root / "paper.json")])
    base = ConfigParser.load_config_file(str(root / "train.json"))
    overlay = ConfigParser.load_config_file(str(root / "paper.json"))
    assert {name.split("::")[0] for name in overlay} <= set(base), (
        "the overlay may only set what train.json has"
    )
    expected = {
        "epochs": 800,
        "batch_size": 64,
        "add_lesions::num_masks": 9,
        "network_def::num_clusters": 256,
        "train::lr_schedule::warmup_epochs": 20,
    }
    expected |= {
        **at("encoder_def", hidden_size=768, num_layers=12),
        **at("network_def", decoder_dim=512, decoder_layers=8),
    }
    expected |= {"image_size": 224}
    assert {name: parser.get_parsed_content(name) for name in expected} == expected
    assert parser.get_parsed_content("learning_rate") == pytest.approx(5e-4 * 64 / 256)


@pytest.mark.slow
def test_trains_on_a_folder_and_on_a_datalist(workspace: Path) -> None:
    images = workspace / "images"
    names = write_images(images, 24)
    train(epochs=1, dataset_dir=str(images))
    items = [{"image": name} for name in names]
    (workspace / "list.json").write_text(
        json.dumps({"training": items[:8], "validation": items[8:12]})
    )
    train(epochs=1, dataset_dir=str(images), datalist=str(workspace / "list.json"))
    # no validation section: some of the training images are held out
    (workspace / "list.json").write_text(json.dumps({"training": items}))
    train(epochs=1, dataset_dir=str(images), datalist=str(workspace / "list.json"))
    # fewer images than a batch: one smaller batch, not an empty run
    (workspace / "list.json").write_text(
        json.dumps({"training": items[:3], "validation": items[8:12]})
    )
    train(epochs=1, dataset_dir=str(images), datalist=str(workspace / "list.json"))


@pytest.mark.filterwarnings("ignore:.*in two sections")
def test_bad_data_stop_the_run_with_their_names(workspace: Path) -> None:
    images = workspace / "images"
    images.mkdir()
    with pytest.raises(Exception) as error:  # noqa: PT011
        train(dataset_dir=str(images))
    assert str(images) in all_messages(error.value)

    names = write_images(images, 24)
    (images / names[3]).write_bytes((images / names[3]).read_bytes()[:100])
    with pytest.raises(Exception) as error:  # noqa: PT011
        train(dataset_dir=str(images))
    assert names[3] in all_messages(error.value)

    items = [{"image": names[0]}, {"picture": names[1]}]
    (workspace / "list.json").write_text(json.dumps({"training": items, "validation": items[:1]}))
    with pytest.raises(Exception) as error:  # noqa: PT011
        train(dataset_dir=str(images), datalist=str(workspace / "list.json"))
    assert "image" in all_messages(error.value)
    assert "1" in all_messages(error.value)


@pytest.mark.slow
def test_the_last_line_of_an_error_names_the_cause(workspace: Path) -> None:
    (workspace / "empty").mkdir()
    result = run_bundle(workspace, CONFIG, {"dataset_dir": workspace / "empty"})
    assert result.returncode != 0
    assert (
        f"no radiographs found under {workspace / 'empty'}"
        in result.stderr.strip().splitlines()[-1]
    )

    names = write_images(workspace / "images", 8)
    (workspace / "images" / names[0]).write_bytes(b"\x89PNG\r\n\x1a\n half of it")
    result = run_bundle(workspace, CONFIG, {"dataset_dir": workspace / "images"})
    assert result.returncode != 0
    assert names[0] in result.stderr.strip().splitlines()[-1]


def test_checkpoint_of_another_architecture_is_refused(workspace: Path) -> None:
    train(epochs=1)
    with pytest.raises(RuntimeError) as error:
        train(**{"encoder_def::hidden_size": 36}, resume=True)
    assert "size mismatch" in all_messages(error.value)


def test_a_run_goes_on_with_its_own_images_alone(workspace: Path) -> None:
    for name, count in (("a", 8), ("b", 5)):
        write_images(workspace / name, count)
        train(epochs=1, dataset_dir=name, num_workers=0)
    run_of_a, run_of_b = sorted(Path("runs/afire").glob("2*"))
    before = {path.name: path.read_bytes() for path in (run_of_b / "models").iterdir()}
    train(epochs=2, dataset_dir=str(workspace / "a"), num_workers=0, resume=True)
    checkpoint = torch.load(run_of_a / "models/checkpoint.pt", weights_only=True)
    assert checkpoint["training"]["epoch"] == 2
    (workspace / "a").rename(workspace / "c")
    with pytest.raises(RuntimeError) as unknown:
        train(epochs=3, dataset_dir="c", num_workers=0, resume=True)
    assert f"--name {run_of_a.name}" in all_messages(unknown.value)
    with pytest.raises(RuntimeError) as other:
        train(epochs=3, dataset_dir="c", num_workers=0, resume=True, name=run_of_b.name)
    assert (
        f"{run_of_b / 'models/checkpoint.pt'} is of other training images or classes"
        in all_messages(other.value)
    )
    assert {path.name: path.read_bytes() for path in (run_of_b / "models").iterdir()} == before
    train(epochs=3, dataset_dir="c", num_workers=0, resume=True, name=run_of_a.name)


def test_restores_images(workspace: Path) -> None:
    train()
    config = ["bundles/afire/configs/inference.json", "bundles/afire/configs/restore.json"]
    run(
        config_file=config,
        phantom=TINY["phantom"],
        batch_size=4,
        **LATEST,
    )
    restored = sorted(last_run("afire").glob("*.png"))
    assert len(restored) == 4
    assert Image.open(restored[0]).size == (32, 32)
    assert (restored[0].parent / "restored.csv").read_text().count("\n") == 1 + 4


@pytest.mark.slow
def test_bundle_keeps_the_rules_of_the_model_zoo(workspace: Path) -> None:
    settings = {**TINY, "image_size": 128, "patch_size": 16}
    chosen = {k: v for k, v in settings.items() if not k.startswith("encoder_def::")}
    result = run_bundle(workspace, CONFIG, {**chosen, "epochs": 1})
    assert result.returncode == 0, result.stderr[-3000:]
    check_bundle(workspace, "afire")
