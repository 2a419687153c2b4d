# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Trainings of every bundle so small that an epoch takes seconds, by MONAI's workflow and by the two commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import REPOSITORY_ROOT
from imported_processes import run_python
from monai.bundle import ConfigWorkflow
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

CONFIGS = {
    path.parent.parent.name: path.parent
    for path in REPOSITORY_ROOT.glob("bundles/*/configs/train.json")
}
BUNDLES = sorted(CONFIGS)
FINE_TUNING = [bundle for bundle in BUNDLES if bundle.startswith("radiograph_")]
PRE_TRAINING = [bundle for bundle in BUNDLES if bundle not in FINE_TUNING]

IMAGES = {"image_size": 32, "patch_size": 8}
ENCODER = {
    **IMAGES,
    "encoder_def::hidden_size": 24,
    "encoder_def::num_layers": 1,
    "encoder_def::num_heads": 2,
}
DECODER = {
    "network_def::decoder_dim": 16,
    "network_def::decoder_layers": 1,
    "network_def::decoder_heads": 2,
}
TINY_NETWORKS: dict[str, dict[str, Any]] = {
    "ace": {"grid": 10, "cell": 4},
    "afire": {**DECODER, "network_def::head_dim": 16, "network_def::num_clusters": 8},
    "dino": {
        "make_crops::local_size": 16,
        "network_def::head_dim": 8,
        "network_def::bottleneck_dim": 4,
        "network_def::num_prototypes": 8,
    },
    "mae": DECODER,
    "peac": {
        "grid": 6,
        "network_def::expander_dim": 8,
        "network_def::expander_hidden_dim": 16,
    },
    "radiograph_classification": {"encoder": "vit"},
    "radiograph_landmarks": {"encoder": "vit", "network_def::channels": 8},
    # quick to learn: until it finds a structure its masks are empty, and the metric is 0
    "radiograph_segmentation": {
        "encoder": "vit",
        "network_def::channels": 8,
        "learning_rate": 0.02,
    },
}
# equal on every machine: no half precision where a processor has it, and no GPU
ONE_MACHINE = {
    "device": "cpu",
    "num_workers": 0,
    "train::inferer": {"_target_": "SimpleInferer"},
}
# a handful of drawn radiographs, beside the folders of the tests: drawn once for all of them
PHANTOM = {
    "phantom": {
        "num_patients": {"training": 16, "validation": 8, "test": 8},
        "image_size": 64,
        "abnormal_fraction": {"training": 0.25, "validation": 0.5, "test": 0.5},
        "seed": 0,
    },
    "items::phantom::folder": "../phantom",
}
TIMEOUT = 600  # seconds until a process that hangs is ended


def in_fast_suite(*bundles: str) -> list[Any]:
    """All bundles, of which these few are tested each time."""
    return [
        bundle if bundle in bundles else pytest.param(bundle, marks=pytest.mark.slow)
        for bundle in BUNDLES
    ]


def tiny(bundle: str, **options: Any) -> dict[str, Any]:
    """Options of a tiny training of a bundle."""
    return {
        **ENCODER,
        **TINY_NETWORKS[bundle],
        **ONE_MACHINE,
        **PHANTOM,
        "batch_size": 4,
        "seed": 1,
        **options,
    }


def copied(value: Any) -> Any:
    """The same values in dictionaries of their own."""
    return {k: copied(v) for k, v in value.items()} if isinstance(value, dict) else value


def config_files(bundle: str, *names: str) -> list[str]:
    """Configs of a bundle."""
    return [str(CONFIGS[bundle] / f"{name}.json") for name in names]


def workflow(bundle: str, *names: str, **options: Any) -> ConfigWorkflow:
    """MONAI's workflow of some configs of a bundle, as its command starts it, but in this process."""
    root = CONFIGS[bundle].parent.as_posix()
    # a config changes the dictionaries that it is given
    options = {name: copied(value) for name, value in options.items()}
    started = ConfigWorkflow(config_files(bundle, *names), bundle_root=root, **options)
    started.initialize()
    return started


def run_workflow(bundle: str, *names: str, **options: Any) -> ConfigWorkflow:
    """A workflow that has come to its end."""
    started = workflow(bundle, *names, **options)
    started.run()
    started.finalize()
    return started


def train(bundle: str, **options: Any) -> ConfigWorkflow:
    """A tiny training in this process."""
    return run_workflow(bundle, "train", **tiny(bundle, **options))


def train_until_killed(bundle: str, epoch: int, **options: Any) -> int:
    """A tiny training in a process that SIGKILL ends in the midst of an epoch; its exit code."""
    words = ["-m", "integration.tiny_runs", bundle, str(epoch), repr(options)]
    return run_python(words, Path.cwd(), os.environ, TIMEOUT).returncode


def key_metric(run: ConfigWorkflow) -> float:
    """Value of the last validation's key metric."""
    state = run.evaluator.state
    return float(state.metrics[state.key_metric_name])


def validations(folder: Path, metric: str) -> dict[int, float]:
    """Value of a metric after each validated epoch, from TensorBoard's files of all parts of a run."""
    values: dict[int, float] = {}
    for file in sorted(folder.rglob("events.out.tfevents.*")):
        events = EventAccumulator(str(file)).Reload()
        for tag in events.Tags()["scalars"]:
            if tag.split("/")[-1] == metric:
                values |= {event.step: event.value for event in events.Scalars(tag)}
    return values


def run_folder(bundle: str, name: str) -> Path:
    """Folder of a run, below the current one."""
    return Path("runs", bundle, name)


def written(bundle: str, name: str, file: str) -> Path:
    """The one file of this name that a run has written."""
    (path,) = run_folder(bundle, name).rglob(file)
    return path


def saved_tensors(bundle: str, name: str) -> dict[str, torch.Tensor]:
    """All tensors of floating-point numbers in what a run has saved: weights, optimizer, and what else has a state."""
    found: dict[str, torch.Tensor] = {}
    for file in ("model.pt", "checkpoint.pt"):
        state = torch.load(written(bundle, name, file), map_location="cpu", weights_only=True)
        found |= {f"{file}: {path}": value for path, value in _tensors(state)}
    return found


def _tensors(state: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(state, torch.Tensor) and state.is_floating_point():
        yield path, state
    items: Any = enumerate(state) if isinstance(state, (list, tuple)) else ()
    for name, value in state.items() if isinstance(state, Mapping) else items:
        yield from _tensors(value, f"{path}/{name}")


def assert_equal_runs(bundle: str, first: str, second: str) -> None:
    """Two runs have saved the same tensors, bit for bit."""
    one, other = (saved_tensors(bundle, name) for name in (first, second))
    assert one, "nothing was saved"
    assert one.keys() == other.keys(), (
        f"saved by one run alone: {sorted(one.keys() ^ other.keys())}"
    )
    different = [name for name, value in one.items() if not torch.equal(value, other[name])]
    assert not different, f"{len(different)} of {len(one)} tensors differ: {different[:5]}"


def words_of(options: Mapping[str, Any]) -> list[str]:
    """Options as words of a command line."""
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def monai_command(bundle: str, options: Mapping[str, Any]) -> list[str]:
    """A training by MONAI's command, without the interpreter."""
    config = ["--config_file", *config_files(bundle, "train")]
    return ["-m", "monai.bundle", "run", *config, *words_of(options)]


def own_command(bundle: str, options: Mapping[str, Any]) -> list[str]:
    """A training by this package's command, without the interpreter."""
    return ["-m", "monai_afire_cli", "run", bundle, "train", *words_of(options)]


COMMANDS = {"monai.bundle": monai_command, "monai_afire_cli": own_command}


def start(words: list[str]) -> subprocess.Popen[str]:
    """Start Python in the current folder, in a process group of its own; it prints into ``output.txt``."""
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY_ROOT), "OMP_NUM_THREADS": "1"}
    with Path("output.txt").open("w") as output:  # a pipe that nobody reads would fill
        return subprocess.Popen(
            [sys.executable, *words],
            env=variables,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a process; its exit code as a shell has it, 128 and the number of a signal, and what it printed."""
    try:
        code = process.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"not ended after {TIMEOUT} s: {Path('output.txt').read_text()[-3000:]}")
    return (code if code >= 0 else 128 - code), Path("output.txt").read_text()


def run(words: list[str]) -> tuple[int, str]:
    """Run Python to its end."""
    return end(start(words))


def _kill_in(bundle: str, epoch: int, options: Mapping[str, Any]) -> None:
    """Train, and be killed after the second step of an epoch."""
    from ignite.engine import Engine, Events

    def kill(engine: Engine) -> None:
        step = engine.state.iteration - (epoch - 1) * engine.state.epoch_length
        if step == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    killed = workflow(bundle, "train", **tiny(bundle, **options))
    killed.trainer.add_event_handler(Events.ITERATION_COMPLETED, kill)
    killed.run()


if __name__ == "__main__":
    from ast import literal_eval

    _kill_in(sys.argv[1], int(sys.argv[2]), literal_eval(sys.argv[3]))
