# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pre-training on shards: the weights are those of the files, bit by bit, interrupted or not."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import IO

import pytest
import torch
from bundles.bundle_runs import TINY_ENCODER, at, copy_bundles, saved_weights, train_in_process, write_images

from monai_afire.data import write_shards
from monai_afire.handlers.stop_request import StoppedBySignal
from monai_afire.transforms.radiograph_io import pictures
from monai_afire.transforms.radiograph_io.shards import open_file

TINY = {
    **TINY_ENCODER,
    **at("network_def", decoder_dim=8, decoder_layers=1, decoder_heads=2),
    "epochs": 2,
    "batch_size": 4,
    "cache": "none",
}
STOP_AT = 10  # images read, in the third batch


@pytest.mark.slow
def test_weights_are_those_of_the_files_interrupted_in_mid_epoch_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy_bundles(tmp_path))
    write_images(tmp_path / "files", 20)
    write_shards(tmp_path / "shards", tmp_path / "files", progress=False)

    def train(folder: str, **overrides: object) -> dict[str, torch.Tensor]:
        options = {**TINY, "dataset_dir": str(tmp_path / folder), **overrides}
        train_in_process("bundles/mae/configs/train.json", options)
        return saved_weights("mae")

    def equal(weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> bool:
        return all(torch.equal(weights[name], value) for name, value in others.items())

    whole = train("files")
    assert equal(train("shards"), whole)
    assert equal(train("shards", num_workers=2), train("files", num_workers=2))
    assert not equal(train("shards", seed=1), whole)

    reads = 0

    def open_and_stop(path: str) -> IO[bytes]:
        nonlocal reads
        reads += 1
        if reads == STOP_AT:
            os.kill(os.getpid(), signal.SIGTERM)
        return open_file(path)

    monkeypatch.setattr(pictures, "open_file", open_and_stop)
    with pytest.raises(StoppedBySignal):
        train("shards", num_workers=0)
    iteration = torch.load("bundles/mae/models/checkpoint.pt", weights_only=True)["trainer"]["iteration"]
    assert 0 < iteration < 4, "the run was not stopped within its first epoch"
    assert equal(train("shards", num_workers=0, resume=True), whole)
