# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A training by two processes that die in turn, as machines do: an epoch is lost at most, and no bit of the rest."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from ignite.engine import Engine, Events
from unit.handlers.miniature_training import assert_same, make_trainer

from integration.distributed.two_ranks import needs_gloo, run_on_two_ranks

pytestmark = [needs_gloo, pytest.mark.slow]

EPOCHS, BATCHES, GLOBAL_BATCH = 3, 5, 8


def train(
    rank: int, world_size: int, folder: Path, resume: bool = False, killed: tuple[int, int] = (0, 0)
) -> dict[str, torch.Tensor]:
    """One process of a training; `killed` are the iteration and the rank at which a process dies."""
    sizes: dict[str, Any] = {
        "num_items": BATCHES * GLOBAL_BATCH,
        "batch_size": GLOBAL_BATCH // world_size,
    }
    # nothing but the checkpoint may count
    trainer = make_trainer(folder, epochs=EPOCHS, seed=99 * resume, resume=resume, **sizes)

    def die(engine: Engine) -> None:
        if (engine.state.iteration, rank) == killed:
            os.kill(os.getpid(), signal.SIGKILL)

    trainer.add_event_handler(Events.ITERATION_STARTED, die)
    trainer.run()
    return trainer.network.module.state_dict()  # type: ignore[union-attr]


def train_by_two(folder: Path, store: Path, **options: Any) -> dict[str, torch.Tensor]:
    store.mkdir()
    first, _ = run_on_two_ranks(partial(train, folder=folder, **options), store)
    return first


def test_processes_that_die_cost_an_epoch_at_most(tmp_path: Path) -> None:
    whole = train_by_two(tmp_path / "whole", tmp_path / "store_whole")
    parts = tmp_path / "parts"
    # the main process in the second epoch, the other one in the third
    for epoch, killed in ((1, (7, 0)), (2, (13, 1))):
        with pytest.raises(mp.ProcessExitedException):
            train_by_two(parts, tmp_path / f"store_{epoch}", resume=epoch > 1, killed=killed)
        state = torch.load(parts / "models/checkpoint.pt", weights_only=True)
        assert state["training"]["epoch"] == epoch
    assert_same(train_by_two(parts, tmp_path / "store", resume=True), whole)
