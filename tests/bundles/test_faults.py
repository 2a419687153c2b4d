# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Faults of clusters, disks and data in real runs of the bundles."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from bundles.bundle_runs import (
    REPOSITORY_ROOT,
    TINY,
    TINY_ENCODER,
    all_messages,
    command,
    copy_bundles,
    environment,
    last_run,
    saved_weights,
    train_in_process,
)
from monai.bundle import ConfigParser

CONFIG = "bundles/afire/configs/train.json"
BUNDLES = sorted(
    path.parent.parent.name for path in (REPOSITORY_ROOT / "bundles").glob("*/configs/train.json")
)
# long enough to be interrupted in the midst of an epoch of six batches
LONG = {
    **TINY,
    "epochs": 200,
    "train::run::val_interval": 200,
    "batch_size": 2,
    "num_workers": 2,
    "learning_rate": 0.003,
}

OUTPUT = Path("output.txt")

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and process groups")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone's bundles in a folder of their own, with which the test starts."""
    monkeypatch.chdir(copy_bundles(tmp_path))
    return tmp_path


def start(
    folder: Path, overrides: dict, before: Callable[[], None] | None = None
) -> subprocess.Popen:
    """A run in a process group of its own.

    It prints into a file: a pipe that nobody reads is full after 64 KiB, and the run would wait.
    """
    with OUTPUT.open("w") as output:
        return subprocess.Popen(
            command(CONFIG, overrides),
            cwd=folder,
            env=environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=before,
        )


def wait_for_checkpoint(process: subprocess.Popen) -> None:
    checkpoint, deadline = Path("runs/afire/latest/models/checkpoint.pt"), time.monotonic() + 300
    while not checkpoint.is_file() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert checkpoint.is_file(), OUTPUT.read_text()[-3000:]


def loader_processes(process: subprocess.Popen) -> list[int]:
    """Children that load batches; Python has others, for itself."""
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        names = {int(pid): Path(f"/proc/{pid}/comm").read_text().strip() for pid in children}
    except OSError:  # one has ended meanwhile
        return []
    return [pid for pid, name in names.items() if name == "pt_data_worker"]


@linux_only
@pytest.mark.slow
def test_a_job_that_sigterm_ends_resumes_to_the_same_weights(workspace: Path) -> None:
    process = start(workspace, LONG)
    wait_for_checkpoint(process)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(timeout=120) in (143, -signal.SIGTERM), OUTPUT.read_text()[-3000:]
    epoch = saved_weights("afire", "models/checkpoint.pt")["training"]["epoch"]
    # a few epochs more are enough, of a run that would go on as long
    schedules = ("lr_schedule", "weight_decay_schedule", "teacher_decay_schedule")
    short = {
        **LONG,
        "epochs": epoch + 3,
        **{f"train::{name}::epochs": LONG["epochs"] for name in schedules},
    }
    train_in_process(CONFIG, {**short, "resume": True})
    resumed = saved_weights("afire")
    train_in_process(CONFIG, short)
    whole = saved_weights("afire")
    for name, value in whole.items():
        torch.testing.assert_close(resumed[name], value, rtol=0, atol=0, msg=name)


@linux_only
@pytest.mark.slow
def test_a_loader_process_killed_by_the_system_is_explained(workspace: Path) -> None:
    process = start(workspace, LONG)
    wait_for_checkpoint(process)
    deadline = time.monotonic() + 120
    struck: set[int] = set()
    while process.poll() is None and time.monotonic() < deadline:
        loaders = loader_processes(process)
        # one of each epoch: a process whose last batch was delivered already is not missed,
        # and a second one of the same epoch would strike the error's report
        if len(loaders) == LONG["num_workers"] and struck.isdisjoint(loaders):
            os.kill(loaders[0], signal.SIGKILL)
            struck.update(loaders)
        time.sleep(0.05)
    if process.poll() is None:
        process.kill()
    process.wait()
    output = OUTPUT.read_text()
    assert process.returncode == 1, output[-3000:]
    (advice,) = (line for line in output.splitlines() if line.startswith("What happened:"))
    for word in ("ended a loader process", "memory", "--num_workers", "--resume True"):
        assert word in advice
    assert saved_weights("afire", "models/checkpoint.pt")


@linux_only
@pytest.mark.slow
def test_a_full_disk_leaves_the_last_checkpoint(workspace: Path) -> None:
    import resource

    train_in_process(CONFIG, {**TINY, "epochs": 1})
    models = last_run("afire") / "models"
    before = {path.name: path.read_bytes() for path in models.iterdir()}
    limit = len(before["checkpoint.pt"]) // 2

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = start(workspace, {**TINY, "epochs": 2, "resume": True}, limit_files)
    process.wait(timeout=300)
    output = OUTPUT.read_text()
    assert process.returncode == 1
    assert f"cannot write {models / 'checkpoint.pt'}" in output
    assert (
        "the last complete one stays as it was" in output[output.index("The cause: cannot write") :]
    )
    assert {path.name: path.read_bytes() for path in models.iterdir()} == before


def test_phantom_folder_that_cannot_be_written_to_is_told(workspace: Path) -> None:
    (workspace / "file").write_text("not a folder")
    with pytest.raises(Exception) as error:  # noqa: PT011
        train_in_process(
            CONFIG, {**TINY, "items::phantom::folder": str(workspace / "file/phantom")}
        )
    assert f"cannot write to {workspace / 'file/phantom'}" in all_messages(error.value)


@pytest.mark.parametrize("bundle", ["afire", "peac", "radiograph_classification"])
def test_a_loss_that_is_no_number_names_the_images(workspace: Path, bundle: str) -> None:
    overrides = {
        **TINY_ENCODER,
        "encoder": "vit",
        "learning_rate": 1e30,
        "train::lr_schedule::warmup_epochs": 0,
        "epochs": 2,
        "batch_size": 4,
    }
    counts = {"training": 8, "validation": 4}
    with pytest.raises(RuntimeError) as error:
        train_in_process(
            f"bundles/{bundle}/configs/train.json", {**overrides, "phantom::num_patients": counts}
        )
    message = all_messages(error.value)
    assert re.search(r"the loss is (nan|inf) in iteration \d \(epoch \d\).*\.png", message)
    named = re.findall(r"[^ ,:]+\.png", message)
    assert len(set(named)) in (3, 4)  # of a batch of 4, the first ones
    assert all(Path(name).is_file() for name in named)


@pytest.mark.parametrize("bundle", BUNDLES)
def test_every_bundle_is_guarded(bundle: str) -> None:
    config = ConfigParser.load_config_file(
        str(REPOSITORY_ROOT / f"bundles/{bundle}/configs/train.json")
    )
    assert config["train"]["run"]["_target_"] == "monai_afire.handlers.Training"
    assert config["train"]["trainer"]["train_handlers"] == "$[*@train::handlers, @train::run]"
    first = config["load_image"].get("transforms", [config["load_image"]])[0]
    assert first["file_key"] == "file"
    assert "file" in config["to_tensors"]["others"]


@pytest.mark.parametrize("bundle", BUNDLES)
def test_a_network_that_cannot_be_built_is_named_before_images_are_read(bundle: str) -> None:
    parser = ConfigParser()
    parser.read_config(str(REPOSITORY_ROOT / f"bundles/{bundle}/configs/train.json"))
    parser["network_def"] = "$1 / 0"
    parser["train::dataset"] = "$[][0]"  # what would be read for minutes
    with pytest.raises(RuntimeError) as refusal:
        parser.get_parsed_content("train::trainer")
    assert isinstance(refusal.value.__cause__, ZeroDivisionError)
