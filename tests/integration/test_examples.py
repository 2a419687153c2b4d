# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The method of docs/examples/simsiam trains as the pages say, and its encoder is found by the name of its run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import REPOSITORY_ROOT

from integration.tiny_runs import ENCODER, ONE_MACHINE, PHANTOM, key_metric, run_workflow
from monai_afire.networks import load_encoder

EXAMPLE = REPOSITORY_ROOT / "docs" / "examples" / "simsiam"


def test_a_method_of_your_own_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    options = {**ENCODER, **ONE_MACHINE, **PHANTOM, "batch_size": 4, "epochs": 1}
    run = run_workflow("dino", "train", str(EXAMPLE / "simsiam"), name="simsiam", **options)
    assert 0 < key_metric(run) < 1
    network = run.network_def
    assert all(each.grad is not None for each in network.parameters() if each.requires_grad)
    encoder, _ = load_encoder("dino/simsiam")
    images = torch.rand(2, 1, 32, 32)
    torch.testing.assert_close(encoder(images), network.eval().encoder(images))
