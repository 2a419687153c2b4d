# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A run goes on with other batches or another number of processes: from the last complete epoch, and it says so."""

from __future__ import annotations

import logging
import os
import shutil
import signal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from distributed.two_ranks import needs_gloo, run_on_two_ranks
from handlers.miniature_training import assert_same, final_state, make_trainer
from handlers.test_stop_request import iteration_in, signal_at
from ignite.engine import Events
from monai.engines import SupervisedTrainer

from monai_afire.handlers.epoch_progress import RemainingBatches, adapt_progress, epoch_division
from monai_afire.handlers.stop_request import StoppedBySignal

LEFT_OUT = "To lose nothing, resume with the same data, batch size and number of processes"


def stop_at(iteration: int, folder: Path, **options: Any) -> None:
    """A run of epochs of three iterations that is stopped by a signal."""
    with pytest.raises(StoppedBySignal):
        signal_at(make_trainer(folder, resume=True, **options), iteration).run()
    assert iteration_in(folder) == iteration


def run_on(folder: Path, **options: Any) -> SupervisedTrainer:
    """The same run in epochs of two iterations, with other weights to begin with."""
    trainer = make_trainer(folder, seed=99, resume=True, batch_size=3, **options)
    trainer.run()
    return trainer


@pytest.mark.parametrize("iterations", [[4], [4, 5]])
@pytest.mark.parametrize("has_links", [True, False])
def test_from_within_an_epoch_the_last_complete_one_is_resumed(
    tmp_path: Path,
    iterations: list[int],
    has_links: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not has_links:
        monkeypatch.setattr(
            os, "link", lambda *paths: (_ for _ in ()).throw(OSError("no hard links"))
        )
    make_trainer(tmp_path / "boundary", epochs=1).run()
    for iteration in iterations:
        stop_at(iteration, tmp_path / "within")
    shutil.copytree(tmp_path / "within", tmp_path / "again")
    expected = run_on(tmp_path / "boundary")
    with caplog.at_level(logging.INFO):
        resumed = run_on(tmp_path / "within")
    assert resumed.state.iteration == 8
    assert_same(final_state(resumed), final_state(expected))
    message = "midst of an epoch of 3 batches on one process, but now there are 2 batches on one process: going on from"
    assert message in caplog.text
    assert LEFT_OUT in caplog.text
    assert (
        f"resumed from {tmp_path / 'within' / 'checkpoint_epoch.pt'} after epoch 1 of 4"
        in caplog.text
    )
    assert sorted(path.name for path in (tmp_path / "within").iterdir()) == [
        "checkpoint.pt",
        "model.pt",
    ]

    whole = make_trainer(tmp_path / "whole")
    whole.run()
    trainer = make_trainer(tmp_path / "again", resume=True)  # with the same batches nothing is lost
    trainer.run()
    assert_same(final_state(trainer), final_state(whole))
    assert not (tmp_path / "again" / "checkpoint_epoch.pt").exists()


def test_until_the_first_save_the_former_batches_may_come_back(tmp_path: Path) -> None:
    whole = make_trainer(tmp_path / "whole")
    whole.run()
    stop_at(5, tmp_path / "parts")
    other = make_trainer(tmp_path / "parts", resume=True, batch_size=3)
    other.add_event_handler(Events.ITERATION_STARTED, lambda engine: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        other.run()
    resumed = make_trainer(tmp_path / "parts", resume=True)
    resumed.run()
    assert_same(final_state(resumed), final_state(whole))


def test_in_the_first_epoch_the_beginning_is_the_last_boundary(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stop_at(2, tmp_path / "parts")
    resumed = make_trainer(tmp_path / "parts", resume=True, batch_size=3)
    resumed.run()
    assert "going on from the beginning" in caplog.text
    expected = make_trainer(tmp_path / "whole", batch_size=3)
    expected.run()
    assert_same(final_state(resumed), final_state(expected))


def test_without_a_complete_epoch_to_go_back_to_it_is_refused(tmp_path: Path) -> None:
    stop_at(5, tmp_path)
    (tmp_path / "checkpoint_epoch.pt").unlink()
    before = (tmp_path / "checkpoint.pt").read_bytes()
    with pytest.raises(
        RuntimeError,
        match=r"of 3 batches on one process, .* was not saved beside it: resume with the",
    ):
        run_on(tmp_path)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_a_new_run_leaves_both_checkpoints_of_a_stopped_one(tmp_path: Path) -> None:
    stop_at(5, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(FileExistsError, match="of another run"):
        make_trainer(tmp_path, epochs=1).run()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("then", "now", "words"),
    [
        (
            (4, 8, 10),
            (2, 16, 10),
            "2 processes now, 4 in the checkpoint: the global batch of 32 images is kept",
        ),
        (
            (4, 8, 10),
            (2, 8, 20),
            "the global batch is 16 images now, 32 before (--batch_size 16 keeps it)",
        ),
        ((4, 8, 10), (3, 8, 13), "the global batch is 24 images now, 32 before"),
        ((4, None, 10), (1, 8, 10), "one process now, 4 in the checkpoint"),
        ((1, 8, 10), (1, 4, 20), "an epoch has 20 batches now, 10 in the checkpoint"),
        ((None, None, 10), (2, 4, 10), ""),
    ],
)
def test_what_becomes_of_the_global_batch_is_said(
    then: tuple[int, ...], now: tuple[int, ...], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("processes", "batch_size", "batches")
    engine = SimpleNamespace(
        state=SimpleNamespace(epoch=3, epoch_length=then[2], iteration=3 * then[2])
    )
    adapt_progress(engine, dict(zip(names, then, strict=True)), dict(zip(names, now, strict=True)))
    assert words in caplog.text
    assert bool(caplog.text) == bool(words)
    assert ("keeps it" in caplog.text) == ("keeps it" in words)
    assert (engine.state.epoch_length, engine.state.iteration) == (now[2], 3 * now[2])


def test_the_rest_of_an_epoch_is_dealt_like_the_whole() -> None:
    loader = torch.utils.data.DataLoader([1, 2, 3, 4, 5], batch_size=2)
    expected = {"processes": 1, "batch_size": 2, "batches": 3}
    assert epoch_division(loader) == epoch_division(RemainingBatches(loader, 1)) == expected
    assert epoch_division(iter([1])) == {"processes": 1, "batch_size": None, "batches": None}


def agree_in_each_iteration() -> None:
    signal.getsignal(signal.SIGTERM).__self__.sync_interval = 1  # type: ignore[union-attr]


def two_processes(rank: int, world_size: int, folder: Path) -> dict[str, Any]:
    """A run that is stopped in its second epoch, and one whose processes do not share their folder."""
    trainer = signal_at(make_trainer(folder / "parts", batch_size=1), 4)
    trainer.add_event_handler(Events.ITERATION_STARTED, agree_in_each_iteration)
    result: dict[str, Any] = {}
    try:
        trainer.run()
    except StoppedBySignal as stopped:
        result["code"] = stopped.code
    try:
        make_trainer(
            folder / ("parts" if rank == 0 else "elsewhere"), resume=True, batch_size=1
        ).run()
    except RuntimeError as error:
        result["words"] = str(error)
    return result


@pytest.mark.slow
@needs_gloo
def test_two_processes_stop_and_one_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for result in run_on_two_ranks(partial(two_processes, folder=tmp_path), tmp_path):
        assert result["code"] == 143
        assert "do not see the same" in result["words"]
        assert "[True, False]): all machines must share the folder" in result["words"]
    assert iteration_in(tmp_path / "parts") == 4
    resumed = make_trainer(tmp_path / "parts", seed=99, resume=True)
    resumed.run()
    assert "3 batches on 2 processes, but now there are 3 batches on one process" in caplog.text
    assert (
        "one process now, 2 in the checkpoint: the global batch of 2 images is kept" in caplog.text
    )
    assert (resumed.state.epoch, resumed.state.iteration) == (4, 12)
