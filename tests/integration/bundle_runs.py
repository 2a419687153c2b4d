# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Copies of the bundles, runs of them in other processes, and small networks for tests of what uses them."""

from __future__ import annotations

import os
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from conftest import REPOSITORY_ROOT
from monai.bundle import ConfigParser
from PIL import Image

from integration.tiny_runs import CONFIGS, ENCODER, TINY_NETWORKS, copied
from monai_afire.detection import AnomalyDetector

TINY = {
    **ENCODER,
    **TINY_NETWORKS["afire"],
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
"""A training of AFiRe that takes seconds."""


def at(holder: str, **settings: Any) -> dict[str, Any]:
    """Overrides of the settings of a part of a config, by their paths."""
    return {f"{holder}::{name}": value for name, value in settings.items()}


def copy_bundles(folder: Path) -> Path:
    """The bundles as in a fresh clone, without weights of runs; returns the folder to run in."""
    ignore = shutil.ignore_patterns("models", "output", "data", "__pycache__")
    shutil.copytree(REPOSITORY_ROOT / "bundles", folder / "bundles", ignore=ignore)
    return folder


def packaging() -> SimpleNamespace:
    """The script that packs bundles, which lies beside them."""
    return SimpleNamespace(**runpy.run_path(str(REPOSITORY_ROOT / "bundles/ci/package.py")))


def environment() -> dict[str, str]:
    """Environment in which the package is found without being installed."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY_ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def all_messages(error: BaseException | None) -> str:
    """What an error and those that it was raised from say: MONAI's parser wraps what it meets."""
    messages = []
    while error is not None:
        messages.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(messages)


def write_images(folder: Path, count: int, size: int = 48) -> list[str]:
    """Pictures of noise; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    names = [f"image_{i}.png" for i in range(count)]
    for name in names:
        Image.fromarray(rng.integers(0, 255, (size, size), dtype=np.uint8)).save(folder / name)
    return names


def config(bundle: str, *names: str, **settings: Any) -> ConfigParser:
    """Some configs of a bundle in the repository, of which parts can be built."""
    folder = CONFIGS[bundle]
    parser = ConfigParser()
    parser.read_config([str(folder / f"{name}.json") for name in names])
    own = {name: copied(value) for name, value in settings.items()}
    parser.update({"bundle_root": str(folder.parent), "device": "cpu", **own})
    return parser


def new_network(bundle: str, *overlays: str, **settings: Any) -> tuple[torch.nn.Module, dict]:
    """The network that a training starts from, tiny and not trained, and what its files say about it."""
    parser = config(bundle, "train", *overlays, **ENCODER, **TINY_NETWORKS[bundle])
    if "class_names" in parser:
        parser["class_names"] = [f"class {number}" for number in range(5)]
    parser.update(settings)
    parser["train::run::description::trained_on"] = None  # no data is read
    torch.manual_seed(0)
    network = parser.get_parsed_content("network_def").eval()
    return network, parser.get_parsed_content("train::run::description")


def new_detector(**settings: Any) -> tuple[torch.nn.Module, dict]:
    """A detector that is fitted to noise, and what its file says about it."""
    network, description = new_network("afire", **settings)
    # position-bound, as training leaves them
    network.bank.prototypes.copy_(torch.rand_like(network.bank.prototypes).softmax(-1))
    fusion = ["token_mean_density", "token_neighbors", "focal"]
    detector = AnomalyDetector(network, score_fusion=fusion).eval()
    encoder = network.encoder
    detector.fit([torch.rand(8, encoder.in_channels, *encoder.img_size)])
    return detector, description
