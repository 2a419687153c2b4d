# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Every bundle by several processes: one log, one set of files, an end when a rank fails."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from bundles.bundle_runs import (
    at,
    command,
    copy_bundles,
    environment,
    last_run,
    saved_weights,
    train_in_process,
    write_images,
)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from distributed.two_ranks import needs_gloo
from monai_afire.utils import destroy_process_group

pytestmark = needs_gloo

PRETRAINING = ("afire", "peac", "ace", "mae", "dino")
TRANSFER = ("radiograph_classification", "radiograph_segmentation", "radiograph_landmarks")
TASK = {"encoder": "vit", "train::dataloader::min_batches": 2}
TIMEOUT = 240  # seconds until a run that hangs is ended

TINY = {
    "afire": {
        **at(
            "network_def",
            head_dim=8,
            num_clusters=4,
            decoder_dim=8,
            decoder_layers=1,
            decoder_heads=2,
        ),
    },
    "peac": {"grid": 6, **at("network_def", expander_dim=8, expander_hidden_dim=16)},
    "ace": {"grid": 10, "cell": 4},
    "mae": {**at("network_def", decoder_dim=8, decoder_layers=1, decoder_heads=2)},
    "dino": {
        "make_crops::local_size": 16,
        **at("network_def", head_dim=8, bottleneck_dim=4, num_prototypes=8),
    },
    "radiograph_classification": TASK,
    "radiograph_segmentation": {**TASK, "network_def::channels": 8},
    "radiograph_landmarks": {**TASK, "network_def::channels": 8},
}
ENCODER = {
    "image_size": 32,
    "patch_size": 8,
    **at("encoder_def", hidden_size=24, num_layers=2, num_heads=2),
}
RUN = {"epochs": 2, "batch_size": 4, "train::run::val_interval": 1}


def configs(bundle: str) -> list[str]:
    return [f"bundles/{bundle}/configs/train.json"]


def settings(bundle: str, **overrides: Any) -> dict[str, Any]:
    fraction = 0.0 if bundle == "afire" else 0.5
    patients = {"training": 21, "validation": 5, "test": 4}
    phantom = {"num_patients": patients, "image_size": 64, "abnormal_fraction": fraction, "seed": 0}
    return {**ENCODER, **TINY[bundle], **RUN, "phantom": phantom, **overrides}


def scalars_of(folder: Path) -> dict[str, list[float]]:
    events = EventAccumulator(str(folder)).Reload()
    return {
        tag.split("/")[-1]: [event.value for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def torchrun(folder: Path, bundle: str, **overrides: Any) -> subprocess.CompletedProcess[str]:
    """Two processes, as a user starts them; all of them are ended when they take too long."""
    _, *module = command(configs(bundle)[0], settings(bundle, **overrides))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    variables = {**environment(), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*launcher, *module], cwd=folder, env=variables, start_new_session=True, **pipes
    )
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"not ended after {TIMEOUT} s: {process.communicate()[1][-3000:]}")
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone's bundles in a folder of their own, with which the test starts."""
    monkeypatch.chdir(copy_bundles(tmp_path))
    return tmp_path


@pytest.fixture
def only_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What ``torchrun --nproc_per_node=1`` tells the process that it starts."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    told = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1}
    for name, value in (told | {"MASTER_ADDR": "localhost", "MASTER_PORT": port}).items():
        monkeypatch.setenv(name, str(value))
    yield
    destroy_process_group()


@pytest.mark.parametrize("bundle", PRETRAINING + TRANSFER)
@pytest.mark.usefixtures("only_rank")
def test_a_launched_process_joins_its_group(workspace: Path, bundle: str) -> None:
    train_in_process(configs(bundle), settings(bundle, epochs=1))
    assert not dist.is_initialized(), "finalize leaves the group"
    assert all(
        bool(value.isfinite().all())
        for value in saved_weights(bundle).values()
        if value.is_floating_point()
    )
    assert not any(name.startswith("module.") for name in saved_weights(bundle))


@pytest.mark.parametrize(
    "ablation",
    [
        "without_contrast",
        "without_restoration",
        "without_mask_tokens",
        "without_prototypes",
        "contrast_of_features",
        "restoration_only",
    ],
)
@pytest.mark.usefixtures("only_rank")
def test_ablations_leave_no_parameter_without_gradient(workspace: Path, ablation: str) -> None:
    overlay = f"bundles/afire/configs/ablations/{ablation}.json"
    train_in_process([*configs("afire"), overlay], settings("afire", epochs=1))


@pytest.mark.parametrize(
    ("bundle", "term"),
    [("afire", "restoration"), ("afire", "contrast"), ("peac", "order"), ("peac", "restoration")],
)
@pytest.mark.usefixtures("only_rank")
def test_a_term_of_weight_zero_leaves_parameters_without_gradient(
    workspace: Path, bundle: str, term: str
) -> None:
    overrides = settings(bundle, epochs=2, **at("loss", **{f"{term}_weight": 0.0}))
    train_in_process(configs(bundle), overrides)
    assert all(
        bool(value.isfinite().all())
        for value in saved_weights(bundle).values()
        if value.is_floating_point()
    )


@pytest.mark.slow
def test_pretraining_by_two_processes_and_resuming(workspace: Path) -> None:
    # of half of a run, which the one that is cut does not know
    never = {"train::last_layer_freeze::epochs": 0}
    whole = torchrun(workspace, "afire", **never)
    assert whole.returncode == 0, whole.stderr[-3000:]
    for words in ("models/model.pt\n", "Epoch[2] Metrics"):
        assert whole.stdout.count(words) == 1, words
    assert whole.stderr.count("Loading dataset:   0%") == 2, "of training and of validation"
    assert len(list(Path("runs/afire").glob("*/run.json"))) == 2, "one run, and the latest"
    output = last_run("afire")
    assert len(list(output.glob("events.*"))) == 1
    progress = saved_weights("afire", "models/checkpoint.pt")["training"]
    assert progress["epoch"] == 2
    curves = scalars_of(output)
    assert len(curves["restoration_gain"]) == 2
    weights = saved_weights("afire")

    # the schedules are those of two epochs
    names = ("lr_schedule", "weight_decay_schedule", "teacher_decay_schedule")
    schedules = {f"train::{name}::epochs": 2 for name in names}
    one_epoch = {"train::trainer::max_epochs": 1, **schedules, **never}
    cut = torchrun(workspace, "afire", name="cut", **one_epoch)
    assert cut.returncode == 0, cut.stderr[-3000:]
    resumed = torchrun(workspace, "afire", name="cut", resume=True, **never)
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert last_run("afire").name == "cut"
    for name, value in saved_weights("afire").items():
        assert torch.equal(value, weights[name]), name


@pytest.mark.slow
def test_fine_tuning_by_two_processes(workspace: Path) -> None:
    result = torchrun(workspace, "radiograph_classification")
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.count("Epoch[2] Metrics") == 1
    output = last_run("radiograph_classification")
    assert len(list(output.glob("events.*"))) == 1
    files = sorted(path.name for path in (output / "models").iterdir())
    assert files == ["checkpoint.pt", "model.pt"]
    assert len(scalars_of(output)["mean_auc"]) == 3, "of the warm start and of two epochs"
    assert (saved_weights("radiograph_classification")["thresholds"] != 0.5).any()


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_run(workspace: Path) -> None:
    names = write_images(workspace / "images", 10)
    (workspace / "images" / names[0]).write_bytes(b"\x89PNG\r\n\x1a\n half of it")
    sections = {
        "training": [{"image": name} for name in names[:8]],
        "validation": [{"image": names[8]}],
    }
    (workspace / "list.json").write_text(json.dumps(sections))
    data = {
        "dataset_dir": str(workspace / "images"),
        "datalist": str(workspace / "list.json"),
        "train::dataset::cache_rate": 0,
    }
    started = time.monotonic()
    result = torchrun(workspace, "ace", **data)
    assert result.returncode not in (0, None)
    assert time.monotonic() - started < TIMEOUT
    assert names[0] in result.stderr, "the file that one of the ranks could not read"
    assert "ChildFailedError" in result.stderr
