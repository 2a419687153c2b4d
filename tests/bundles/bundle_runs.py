# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Runs of bundles, as a user starts them, small enough for tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from pydoc import locate
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SHARED_IS_MISSING
from imported_processes import run_python
from monai.bundle import ConfigParser, run
from PIL import Image

from monai_afire.apps.zoo import pack_bundle
from monai_afire.detection import AnomalyDetector
from monai_afire.utils.run_folder import newest_run

REPOSITORY_ROOT = Path(__file__).resolve().parents[2]

LATEST = {"weights_of": "latest"}
"""Settings of a step that goes on from the last training."""

ON_IMAGES = {**LATEST, "phantom_weights": True}
"""The same for a training on phantoms whose network is then used on pictures of noise."""


def at(holder: str, **settings: Any) -> dict[str, Any]:
    """Overrides of the settings of a part of a config, by their paths."""
    return {f"{holder}::{name}": value for name, value in settings.items()}


def has(config: dict[str, Any], path: str) -> bool:
    """Whether a config has a setting, or its holder builds something that takes it."""
    *holders, name = path.split("::")
    if name.startswith("_") and not holders:
        return True  # a remark, such as which overlays one follows
    for holder in holders:
        config = config.get(holder, {})
    target = locate(config.get("_target_", ""))
    return name in config or (
        target is not None and name in {*signature(target).parameters, "_disabled_"}
    )


TINY_ENCODER = {
    "image_size": 32,
    "patch_size": 8,
    **at("encoder_def", hidden_size=24, num_layers=1, num_heads=2),
}

TINY = {
    **TINY_ENCODER,
    **at(
        "network_def",
        head_dim=16,
        num_clusters=8,
        decoder_dim=16,
        decoder_layers=1,
        decoder_heads=2,
    ),
    "epochs": 2,
    "batch_size": 4,
    "train::run::val_interval": 1,
    "phantom": {
        "num_patients": {"training": 12, "validation": 4},
        "image_size": 32,
        "abnormal_fraction": 0.0,
        "seed": 0,
    },
}


def copy_bundles(folder: Path) -> Path:
    """The bundles as in a fresh clone, without what runs have written; returns the folder to run in."""
    ignore = shutil.ignore_patterns("models", "output", "data", "__pycache__")
    shutil.copytree(REPOSITORY_ROOT / "bundles", folder / "bundles", ignore=ignore)
    return folder


def command(config: str, overrides: Mapping[str, Any]) -> list[str]:
    """The command line of a bundle run."""
    options = [text for name, value in overrides.items() for text in (f"--{name}", str(value))]
    return [sys.executable, "-m", "monai.bundle", "run", "--config_file", config, *options]


def environment() -> dict[str, str]:
    """Environment in which the package is found without being installed."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY_ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def run_bundle(
    folder: Path, config: str, overrides: Mapping[str, Any], timeout: int = 1800
) -> subprocess.CompletedProcess:
    """Run to the end and return what was printed."""
    return run_python(command(config, overrides)[1:], folder, environment(), timeout)


def all_messages(error: BaseException | None) -> str:
    """What an error and those that it was raised from say: MONAI's parser wraps what it meets."""
    messages = []
    while error is not None:
        messages.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(messages)


def train_in_process(config: str | list[str], overrides: Mapping[str, Any]) -> None:
    """Run a bundle in this process, which is faster and shows its errors."""
    precision = torch.get_float32_matmul_precision()
    try:
        run(config_file=config, **overrides)
    finally:
        torch.set_float32_matmul_precision(precision)


def last_run(bundle: str, file: str = "run.json") -> Path:
    """Folder of a bundle's last run that has written a file."""
    folder = newest_run(Path("runs", bundle), lambda folder: (folder / file).exists())
    assert folder is not None, f"no run of {bundle} has written {file}"
    return folder


def saved_weights(bundle: str, file: str = "models/model.pt") -> dict[str, Any]:
    """The weights, or the checkpoint, that the last run of a bundle has saved."""
    return torch.load(last_run(bundle, file) / file, weights_only=True)


def write_images(folder: Path, count: int, size: int = 48) -> list[str]:
    """Pictures of noise; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    names = [f"image_{i}.png" for i in range(count)]
    for name in names:
        Image.fromarray(rng.integers(0, 255, (size, size), dtype=np.uint8)).save(folder / name)
    return names


def new_network(
    bundle: str, overlays: Sequence[str] = (), **settings: Any
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The network that a bundle's training starts from, not trained, and what its files say about it."""
    parser = ConfigParser()
    parser.read_config([f"bundles/{bundle}/configs/{name}.json" for name in ("train", *overlays)])
    outputs = {"classification": 5, "segmentation": 5, "landmarks": 15}.get(
        bundle.removeprefix("radiograph_")
    )
    if outputs is not None:
        parser.update({"class_names": [f"class {number}" for number in range(outputs)]})
    parser.update(settings)
    parser["train::run::description::trained_on"] = None  # no data is read
    torch.manual_seed(0)
    network = parser.get_parsed_content("network_def").eval()
    return network, parser.get_parsed_content("train::run::description")


def new_detector(**settings: Any) -> tuple[torch.nn.Module, dict[str, Any]]:
    """A detector that is fitted to noise, and what its file says about it."""
    network, description = new_network("afire", **settings)
    # position-bound, as training leaves them
    network.bank.prototypes.copy_(torch.rand_like(network.bank.prototypes).softmax(-1))
    fusion = ["token_mean_density", "token_neighbors", "focal"]
    detector = AnomalyDetector(network, score_fusion=fusion, copies=0).eval()
    detector.fit([torch.rand(8, 1, *network.encoder.img_size)])
    return detector, description


def check_bundle(folder: Path, bundle: str) -> None:
    """Hold a bundle, packed as it is published, against the Model Zoo's rules; skips where the tool is not there."""
    tool = (
        Path(os.environ.get("MONAI_AFIRE_SHARED", REPOSITORY_ROOT.parent / "shared"))
        / "tools"
        / "check_bundle.py"
    )
    if not tool.is_file():
        pytest.skip(SHARED_IS_MISSING)
    weights = folder / "bundles" / bundle / "models" / "model.pt"
    weights.parent.mkdir(exist_ok=True)
    shutil.copy(folder / last_run(bundle, "models/model.pt") / "models/model.pt", weights)
    published = folder / "published"
    pack_bundle(folder / "bundles" / bundle, published / "bundles", url="https://example.org")
    for config in published.glob("bundles/*/configs/*.json"):
        # the tool builds the data sets of every config: a few phantoms do, in eight batches for MAE's accumulation
        text = re.sub(
            r'("(?:training|validation|test)": )\d+(?=[,\s])', r"\g<1>16", config.read_text()
        )
        config.write_text(re.sub(r'("batch_size": )\d+', r"\g<1>2", text))
    words = [str(tool), f"bundles/{bundle}", "--repo-root", str(published)]
    checked = run_python(words, published, environment(), timeout=600)
    assert checked.returncode == 0, "\n".join(
        x for x in checked.stdout.splitlines() if not x.startswith("ok")
    )
