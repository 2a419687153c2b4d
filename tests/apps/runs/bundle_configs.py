# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundles' configs, and the ways in which they are put together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser
from monai_afire.apps.runs import BundleCall

BUNDLES = Path(__file__).resolve().parents[3] / "bundles"
# overlays of inference.json; evaluate.json is one of train.json in the fine-tuning bundles
_OF_INFERENCE = {"analysis", "restore"}


def config_files() -> dict[str, dict[str, Any]]:
    """Content of each config by ``"bundle/name"``."""
    paths = [
        path for path in sorted(BUNDLES.glob("*/configs/**/*.json")) if path.stem != "metadata"
    ]
    return {_key(path): json.loads(path.read_text()) for path in paths}


def _key(path: Path) -> str:
    bundle, _, *names = path.relative_to(BUNDLES).with_suffix("").parts
    return "/".join([bundle, *names])


def runs() -> list[list[str]]:
    """Names of the files of each run that the documentation knows."""
    together = []
    for key in config_files():
        bundle, name = key.split("/", 1)
        if name in ("train", "inference"):
            together.append([key])
            continue
        if name == "fit_encoder":
            together.append([f"{bundle}/train", f"{bundle}/finetune_anomaly", key])
            continue
        after_inference = name in _OF_INFERENCE or (name == "evaluate" and bundle == "afire")
        together.append([f"{bundle}/{'inference' if after_inference else 'train'}", key])
    return together


def paths_of(run: list[str]) -> list[str]:
    """The files of a run."""
    return [str(BUNDLES / key.replace("/", "/configs/", 1)) + ".json" for key in run]


def call_of(run: list[str], **overrides: Any) -> BundleCall:
    """The start of a run from a command line, which knows its files one by one, without starting anything."""
    return BundleCall(
        {path: ConfigParser.load_config_file(path) for path in paths_of(run)}, overrides
    )
