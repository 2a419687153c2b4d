# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A run that a signal has stopped goes on as if it had not been."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from handlers.miniature_training import assert_same, final_state, make_trainer
from ignite.engine import Engine, Events
from imported_processes import start_ranks
from torch import nn

from monai_afire.handlers import EpochSeed, ResumableCheckpoint
from monai_afire.handlers.random_state import random_state, set_random_state
from monai_afire.handlers.stop_request import StoppedBySignal, StopRequest

TIMEOUT = 120  # seconds until a hanging pair of processes is ended


def signal_at(
    engine: Any, iteration: int, event: Any = Events.ITERATION_STARTED, number: int = signal.SIGTERM
) -> Any:
    """The engine, which is sent a signal in this iteration."""

    def send(engine: Engine) -> None:
        if engine.state.iteration == iteration:
            signal.raise_signal(number)

    engine.add_event_handler(event, send)
    return engine


def iteration_in(folder: Path) -> int:
    return torch.load(folder / "checkpoint.pt", weights_only=True)["trainer"]["iteration"]


# epochs have three iterations
@pytest.mark.parametrize(
    ("iterations", "num_workers"), [([4], 0), ([5, 8], 0), ([4, 5], 0), ([6], 0), ([5], 2)]
)
def test_stopped_and_resumed_run_ends_as_an_uninterrupted_one(
    tmp_path: Path, iterations: list[int], num_workers: int
) -> None:
    whole = make_trainer(tmp_path / "whole", num_workers=num_workers)
    whole.run()
    for seed, iteration in enumerate(iterations):
        part = make_trainer(tmp_path / "parts", seed=seed, num_workers=num_workers, resume=True)
        with pytest.raises(
            StoppedBySignal,
            match=rf"SIGTERM in epoch .* after iteration {iteration};.*checkpoint",
        ):
            signal_at(part, iteration).run()
        assert iteration_in(tmp_path / "parts") == iteration
    resumed = make_trainer(tmp_path / "parts", seed=99, num_workers=num_workers, resume=True)
    seen: list[int] = []
    resumed.add_event_handler(
        Events.ITERATION_COMPLETED, lambda engine: seen.append(engine.state.iteration)
    )
    resumed.run()
    assert seen == list(range(iterations[-1] + 1, 13))
    assert resumed.state.epoch == 4
    assert_same(final_state(resumed), final_state(whole))


LEFT_OVER = """
from torch.utils.data import DataLoader
from ignite.engine import Engine, Events
from monai_afire.handlers.stop_request import StopRequest

loader = DataLoader(range(100), num_workers=2)
batches = []

def fail(engine, batch):
    batches.append(iter(loader))  # loader processes that nobody ends, as those of a raised error
    next(batches[0])
    raise RuntimeError("in a step")

trainer = Engine(fail)
StopRequest().attach(trainer)
trainer.run(loader)
"""


def test_a_failed_run_ends_although_its_loader_processes_ignore_signals() -> None:
    result = subprocess.run(
        [sys.executable, "-c", LEFT_OVER], capture_output=True, text=True, timeout=TIMEOUT
    )
    assert result.returncode == 1
    assert "in a step" in result.stderr


def test_the_random_state_matters_and_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make_trainer(tmp_path / "whole")
    whole.run()
    with pytest.raises(StoppedBySignal):
        signal_at(make_trainer(tmp_path / "parts"), 5).run()
    monkeypatch.setattr("monai_afire.handlers.checkpoint.set_random_state", lambda *args: None)
    resumed = make_trainer(tmp_path / "parts", resume=True)
    resumed.run()
    with pytest.raises(AssertionError):
        assert_same(final_state(resumed), final_state(whole))


@pytest.mark.parametrize("event", [Events.ITERATION_STARTED, Events.EPOCH_COMPLETED])
def test_a_run_in_its_last_iteration_is_completed(tmp_path: Path, event: Any) -> None:
    trainer = signal_at(make_trainer(tmp_path), 12, event)
    trainer.run()
    assert iteration_in(tmp_path) == 12


def test_signal_during_validation_stops_after_the_epoch(tmp_path: Path) -> None:
    trainer, completed = make_trainer(tmp_path, interval=3), []
    trainer.add_event_handler(
        Events.EPOCH_COMPLETED, lambda engine: completed.append(engine.state.epoch)
    )
    with pytest.raises(StoppedBySignal) as stopped:
        signal_at(trainer, 6, Events.EPOCH_COMPLETED).run()
    assert stopped.value.code == 143
    assert completed == [1, 2]
    # the handler that sends was attached after the checkpoint's: one more iteration was under way
    assert iteration_in(tmp_path) == 7


def test_gradients_that_are_being_accumulated_are_not_lost(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.accumulation_steps = 2
    with pytest.raises(StoppedBySignal):
        signal_at(trainer, 4).run()
    assert iteration_in(tmp_path) == 5


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGINT"])
def test_signals_and_loaders_are_given_back(tmp_path: Path, name: str) -> None:
    number = signal.Signals[name]
    before = signal.getsignal(number)
    trainer = make_trainer(tmp_path / "whole", epochs=1, num_workers=1)
    init = trainer.data_loader.worker_init_fn  # type: ignore[union-attr]

    def is_restored() -> bool:
        return signal.getsignal(number) == before and trainer.data_loader.worker_init_fn is init  # type: ignore[union-attr]

    trainer.run()
    assert is_restored()
    trainer = make_trainer(tmp_path / "stopped", epochs=2, num_workers=1)
    init = trainer.data_loader.worker_init_fn  # type: ignore[union-attr]
    with pytest.raises(StoppedBySignal, match=name) as stopped:
        signal_at(trainer, 2, number=number).run()
    assert stopped.value.code == (130 if name == "SIGINT" else 143)
    assert is_restored()

    def fail(engine: Engine) -> None:
        assert not is_restored()
        raise KeyError("a fault")

    trainer = make_trainer(tmp_path / "failed", epochs=1, num_workers=1)
    init = trainer.data_loader.worker_init_fn  # type: ignore[union-attr]
    trainer.add_event_handler(Events.ITERATION_COMPLETED, fail)
    with pytest.raises(KeyError, match="a fault"):
        trainer.run()
    assert is_restored()


def test_a_second_signal_ends_at_once_unless_it_is_an_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(number))
    request, engine = StopRequest(["SIGTERM"]), Engine(lambda engine, batch: None)
    before = signal.getsignal(signal.SIGTERM)
    request.listen(engine)
    for _ in range(2):
        request.remember(signal.SIGTERM, None)
    assert killed == []
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 6)
    request.remember(signal.SIGTERM, None)
    assert killed == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) == before


def test_without_signals_and_in_other_threads_nothing_is_taken_over(tmp_path: Path) -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def look(engine: Engine) -> None:
        seen.append(signal.getsignal(signal.SIGTERM))

    trainer = make_trainer(tmp_path, epochs=1, stop_signals=())
    trainer.add_event_handler(Events.ITERATION_COMPLETED, look)
    trainer.run()
    trainer = make_trainer(tmp_path / "thread", epochs=1)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, look)
    thread = threading.Thread(target=trainer.run)
    thread.start()
    thread.join()
    assert seen == [before] * 6
    with pytest.raises(ValueError, match="unknown signals"):
        StopRequest(["TERM"])


def test_random_state_repeats_everything() -> None:
    import random

    import numpy as np

    generator = torch.Generator().manual_seed(3)

    def draw() -> list[float]:
        numbers = [random.random(), np.random.rand(), np.random.randn()]  # noqa: NPY002
        return [*numbers, torch.rand(()).item(), torch.rand((), generator=generator).item()]

    np.random.randn()  # noqa: NPY002  leaves the second of its pair in the state
    state = random_state([generator])
    first = draw()
    assert draw() != first
    set_random_state(state, [generator])
    assert draw() == first


def run_rank(
    rank: int, folder: str, name: str, resume: bool = False, stop_at: int = 0
) -> dict[str, Any]:
    """Both ranks add the sum of what each draws; rank 1 alone gets the signal."""
    network = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(network.weight)

    def step(engine: Engine, batch: int) -> None:
        draw = torch.rand(()) * batch
        dist.all_reduce(draw)
        network.weight.data += draw

    engine: Any = Engine(step)
    EpochSeed(5).attach(engine)
    checkpoint = ResumableCheckpoint(f"{folder}/{name}", network, resume=resume)
    checkpoint.stop_request.sync_interval = 2
    checkpoint.attach(engine)
    if rank == 1:
        signal_at(engine, stop_at)
    code: Any = 0
    try:
        engine.run([1, 2, 3, 4, 5], max_epochs=2)
    except StoppedBySignal as stopped:
        code = stopped.code
    return {"weight": network.weight.data, "code": code, "at": engine.state.iteration}


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    whole = run_rank(rank, folder, "whole")
    stopped = run_rank(rank, folder, "parts", stop_at=7)
    dist.barrier()
    torch.save(
        [whole, stopped, run_rank(rank, folder, "parts", resume=True)], f"{folder}/{rank}.pt"
    )
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="needs PyTorch's gloo backend"
)
def test_all_ranks_stop_in_one_iteration_and_go_on(tmp_path: Path) -> None:
    processes = start_ranks(worker, str(tmp_path))
    deadline = time.monotonic() + TIMEOUT
    while not processes.join(timeout=1):
        if time.monotonic() > deadline:
            for process in processes.processes:
                process.kill()
            pytest.fail("the two processes hang")
    assert iteration_in(tmp_path / "whole") == 10
    for rank in range(2):
        whole, stopped, resumed = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert (whole["code"], stopped["code"], resumed["code"]) == (0, 143, 0)
        assert (whole["at"], stopped["at"], resumed["at"]) == (10, 8, 10)
        assert_same(resumed["weight"], whole["weight"])
        assert not torch.equal(stopped["weight"], whole["weight"])
