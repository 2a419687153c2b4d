# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The next steps of a training are those that the bundle's configs make possible."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundles.bundle_runs import REPOSITORY_ROOT

from monai_afire.apps.runs import training_message

PRETRAINING = ("peac", "ace", "mae", "dino")
TRANSFER = ("radiograph_classification", "radiograph_segmentation", "radiograph_landmarks")


@pytest.mark.parametrize("bundle", ["afire", *PRETRAINING, *TRANSFER])
def test_the_configs_of_all_next_steps_exist(bundle: str, tmp_path: Path) -> None:
    root = REPOSITORY_ROOT / "bundles" / bundle
    (tmp_path / "model.pt").touch()
    message = training_message(str(tmp_path), str(tmp_path), str(root))
    lines = message.lines()
    assert lines["model"] == str(tmp_path / "model.pt")
    commands = {
        name: text for name, text in lines.items() if text.startswith("python -m monai.bundle run")
    }
    assert set(commands) == ({"evaluate", "use"} if bundle in TRANSFER else {"next"})
    wanted = {"afire": "finetune_anomaly.json"} | dict.fromkeys(
        PRETRAINING, "radiograph_classification"
    )
    assert wanted.get(bundle, "inference.json") in " ".join(commands.values())
