# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A signal ends a run after its step, with the signal's exit code, in all processes at once."""

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
from distributed.two_ranks import needs_gloo, run_on_two_ranks
from ignite.engine import Engine, Events
from torch.utils.data import DataLoader

from monai_afire.handlers.stop_request import StoppedBySignal, StopRequest

TIMEOUT = 120  # seconds until a hanging process is ended


def stopping_engine(step: Any = lambda engine, batch: None) -> tuple[Engine, StopRequest]:
    """An engine that leaves after the step in which a stop is agreed on."""
    engine, request = Engine(step), StopRequest()
    request.attach(engine)

    def leave(engine: Engine) -> None:
        if request.agreed(engine):
            request.leave(engine, "stopped")

    engine.add_event_handler(Events.ITERATION_COMPLETED, leave)
    return engine, request


def signal_at(engine: Engine, iteration: int, number: int = signal.SIGTERM) -> None:
    engine.add_event_handler(
        Events.ITERATION_STARTED(once=iteration), lambda: signal.raise_signal(number)
    )


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


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGUSR1", 143), ("SIGINT", 130)])
def test_signals_and_loaders_are_given_back(name: str, code: int) -> None:
    number = signal.Signals[name]
    before, loader = signal.getsignal(number), DataLoader([1, 2, 3], num_workers=1)  # type: ignore[arg-type]

    def is_restored() -> bool:
        return signal.getsignal(number) == before and loader.worker_init_fn is None

    def fail(engine: Engine, batch: int) -> None:
        assert not is_restored()
        raise KeyError("a fault")

    stopping_engine()[0].run(loader)
    assert is_restored()
    engine, _ = stopping_engine()
    signal_at(engine, 2, number)
    with pytest.raises(StoppedBySignal) as stopped:
        engine.run(loader)
    assert (stopped.value.code, engine.state.iteration) == (code, 2)
    assert is_restored()
    with pytest.raises(KeyError, match="a fault"):
        stopping_engine(fail)[0].run(loader)
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


def test_in_other_threads_nothing_is_taken_over() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []
    engine, _ = stopping_engine(lambda engine, batch: seen.append(signal.getsignal(signal.SIGTERM)))
    thread = threading.Thread(target=engine.run, args=([0],))
    thread.start()
    thread.join()
    assert seen == [before]
    with pytest.raises(ValueError, match="unknown signals"):
        StopRequest(["TERM"])


def stop_both(rank: int, world_size: int) -> torch.Tensor:
    """Rank 1 alone gets the signal; the exit code, and the iteration in which this rank ends."""
    engine, request = stopping_engine(lambda engine, batch: dist.all_reduce(torch.ones(1)))
    request.sync_interval = 2
    if rank == 1:
        signal_at(engine, 7)
    try:
        engine.run([0] * 20)
    except StoppedBySignal as stopped:
        return torch.tensor([int(str(stopped.code)), engine.state.iteration])
    return torch.zeros(2)


@needs_gloo
@pytest.mark.slow
def test_all_ranks_stop_in_one_iteration(tmp_path: Path) -> None:
    assert [found.tolist() for found in run_on_two_ranks(stop_both, tmp_path)] == [[143, 8]] * 2
