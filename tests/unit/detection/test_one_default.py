# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The class, adapting and fitting have one default: a detector that is built here and there scores alike."""

from __future__ import annotations

import inspect

import pytest
from conftest import REPOSITORY_ROOT
from monai.bundle import ConfigParser

from monai_afire.detection import AnomalyDetector

CONFIGS = REPOSITORY_ROOT / "bundles/afire/configs"
SETTINGS = inspect.signature(AnomalyDetector).parameters


@pytest.mark.parametrize(
    "overlays", [["finetune_anomaly"], ["finetune_anomaly", "fit_encoder"]], ids="-".join
)
def test_configs_have_the_defaults_of_the_class(overlays: list[str]) -> None:
    parser = ConfigParser()
    parser.read_config([str(CONFIGS / f"{name}.json") for name in ("train", *overlays)])
    written = {
        name: parser.get_parsed_content(f"detector_def::{name}")
        for name in parser["detector_def"]
        if name not in ("_target_", "network")
    }
    assert written.keys() <= SETTINGS.keys()
    for name, value in written.items():
        default = SETTINGS[name].default
        assert value == (list(default) if isinstance(default, tuple) else default), name
