# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Weights loaded when an engine starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from ignite.engine import Engine
from torch import nn

from monai_afire.handlers import NetworkLoader


def test_weights_are_loaded_once_and_late(tmp_path: Path) -> None:
    source, network = nn.Linear(2, 1), nn.Linear(2, 1)
    loader = NetworkLoader(network, tmp_path / "model.pt")
    engine = Engine(lambda engine, batch: None)
    loader.attach(engine)
    torch.save(source.state_dict(), tmp_path / "model.pt")  # not there before
    engine.run([0])
    assert torch.equal(network.weight, source.weight)
    with torch.no_grad():
        network.weight.zero_()
    engine.run([0])
    assert not network.weight.any(), "loaded again over what has come since"


def test_a_missing_file_comes_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="train first"):
        NetworkLoader(nn.Linear(2, 1), tmp_path / "model.pt", "train first").load()
