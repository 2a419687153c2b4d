# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pre-training for the minutes that are left, from a packed file of images to weights in pieces."""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from fire.parser import DefaultParseValue

from tests.benchmarks.gpu_suite.packed_images import unpack
from tests.benchmarks.gpu_suite.results import Deadline, Results
from tests.benchmarks.gpu_suite.weight_pieces import write_pieces
from tests.benchmarks.pretraining_step import BundleCase, TrainingStep
from tests.benchmarks.timing import take_turns

__all__ = ["train"]

START = 60  # seconds of start-up and of filling the cache
END = 30  # seconds to write the results
USED = 0.85  # of the measured rate: validation, checkpoints and pictures take time, too


def train(options: argparse.Namespace, results: Results, deadline: Deadline) -> None:
    """
    Run the bundle's pre-training as a user would, with as many epochs as there is time for.

    Args:
        options: `images`, `bundle`, `overlays`, `train_options`, `prefixes`, `device` and `out` of the suite.
        results: get the section "train".
        deadline: the run is ended before it, with the weights of the last epoch.
    """
    if options.images is None:
        results.add("train", options.bundle, "no --images")
        return
    temporary = Path(tempfile.gettempdir()) / "monai_afire_gpu_suite"
    images = unpack(options.images, temporary / options.images.stem)
    given = dict(word.split("=", 1) for word in options.train_options)
    configs = [
        f"bundles/{options.bundle}/configs/{name}" for name in ("train.json", *options.overlays)
    ]
    epochs = int(given.get("epochs", 0))
    if not epochs:
        rate = step_rate(options, configs, given)
        count = len(list(images.glob("*.jpg")))
        epochs = max(1, math.floor(USED * rate * (deadline.left - START - END) / count))
        results.add("train", "images/s of a step", round(rate, 1))
    folder = temporary / f"{options.bundle}_{options.images.stem}"
    settings: dict[str, Any] = {
        "dataset_dir": images,
        "output_dir": folder,
        "epochs": epochs,
        "train::lr_schedule::warmup_epochs": max(1, epochs // 10) if epochs > 1 else 0,
        "resume": (folder / "models/checkpoint.pt").is_file(),
        "device": options.device,
        **given,
    }
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "monai.bundle", "run", "--config_file", str(configs), *words]
    results.add("train", "command", " ".join(command[1:]))
    folder.mkdir(parents=True, exist_ok=True)
    ended = run_until(command, folder / "log.txt", deadline.left - END)
    results.add("train", "ended", ended)
    keep(Path(settings["output_dir"]), options, results)


def step_rate(options: argparse.Namespace, configs: list[str], given: dict[str, str]) -> float:
    """Images per second of a training step with the options of the run."""
    case = BundleCase(options.bundle, "default", torch.device(options.device), 1)
    case.parser.read_config(configs)
    values = {name: DefaultParseValue(value) for name, value in given.items()}
    case.parser.update({**values, "device": f"$torch.device({options.device!r})"})
    images = int(case["batch_size"])
    step, batch = TrainingStep.of_package(case, True, 0, False), case.make_batch(images)
    seconds = take_turns({"": lambda: step(dict(batch))}, 3, case.device)[""]
    return images / sorted(seconds)[1]


def run_until(command: list[str], log: Path, seconds: float) -> str:
    """Run a command, and end it when its time is over; how it ended."""
    with log.open("a", encoding="utf-8") as file:
        try:
            code = subprocess.run(
                command, stdout=file, stderr=file, timeout=max(1, seconds), check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return "out of time: weights of the last complete epoch"
    return f"exit code {code}" + (
        "" if code == 0 else ": " + log.read_text(encoding="utf-8")[-500:]
    )


def keep(output: Path, options: argparse.Namespace, results: Results) -> None:
    """Copy what the run has left to the suite's results."""
    for picture in output.glob("*.png"):
        shutil.copy(picture, options.out)
    weights = output / "models/model.pt"
    if not weights.is_file():
        results.add("train", "weights", "none: no epoch was complete")
        return
    pieces = write_pieces(weights, options.out, options.prefixes)
    results.add(
        "train", "weights", {path.name: round(path.stat().st_size / 1e6, 2) for path in pieces}
    )
