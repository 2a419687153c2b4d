# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Signals of a cluster that ask a run to stop."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from types import FrameType
from typing import Any

import torch
from ignite.engine import Engine, Events
from torch.utils.data import DataLoader

from monai_afire.utils.distributed import all_reduce_max, barrier, world_size

STOPPED_EXIT_CODE, INTERRUPTED_EXIT_CODE = (
    143,
    130,
)  # 128 + SIGTERM, 128 + SIGINT, as a shell reports them
_STOPPING = b"\nCtrl-C: saving after this step; Ctrl-C again in five seconds stops at once\n"
_SAME_REQUEST = 5.0  # seconds within which a second signal belongs to the first: a launcher repeats its scheduler's


class StoppedBySignal(SystemExit):
    """Ends the process with the exit code of a signal, without a traceback."""

    def __init__(self, message: str, code: int = STOPPED_EXIT_CODE) -> None:
        super().__init__(code)
        self.message = message

    def __str__(self) -> str:
        return self.message


class StopRequest:
    """Whether a signal has asked the run to stop, agreed on by all processes of the run."""

    sync_interval = 10  # iterations between two times that several processes ask each other

    def __init__(self, signals: Sequence[str] = ("SIGTERM", "SIGUSR1", "SIGINT")) -> None:
        unknown = [name for name in signals if name not in signal.Signals.__members__]
        if unknown and sys.platform != "win32":  # Windows has few
            raise ValueError(f"unknown signals {unknown}: give names like 'SIGTERM'")
        self.signals = [signal.Signals[name] for name in signals if name not in unknown]
        self.received: signal.Signals | None = None
        self.received_at = 0.0
        self._is_agreed = False
        self._message = ""
        self._is_listening = False
        self._undo = ExitStack()

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        engine.add_event_handler(Events.STARTED, self.listen)
        engine.add_event_handler(Events.COMPLETED, self.restore)
        engine.add_event_handler(Events.TERMINATE, self.terminated)
        engine.add_event_handler(Events.EXCEPTION_RAISED, self.failed)

    def listen(self, engine: Engine) -> None:
        """Handle the signals until the run ends."""
        self.restore()
        self.received, self._is_agreed, self._message = None, False, ""
        if not self.signals or threading.current_thread() is not threading.main_thread():
            return
        for number in self.signals:
            former = signal.signal(number, self.remember)
            # None: installed by another language, out of Python's reach
            self._undo.callback(signal.signal, number, signal.SIG_DFL if former is None else former)
        self._is_listening = True
        self.shield(engine.state.dataloader)

    def shield(self, loader: Any) -> None:
        """Let a loader's processes survive the signals."""
        if isinstance(loader, DataLoader) and loader.num_workers > 0 and self._is_listening:
            former = loader.worker_init_fn
            loader.worker_init_fn = partial(
                _ignore_signals, [int(number) for number in self.signals], former
            )
            self._undo.callback(setattr, loader, "worker_init_fn", former)
            atexit.unregister(_end_loader_processes)
            atexit.register(_end_loader_processes)

    def call_at_end(self, function: Callable[[], object]) -> None:
        """Have a function called when the run ends, in whichever way."""
        self._undo.callback(function)

    def remember(self, number: int, frame: FrameType | None) -> None:
        """Remember the signal; a signal handler must not do more."""
        if self.received is None:
            self.received, self.received_at = signal.Signals(number), time.monotonic()
            if number == signal.SIGINT:
                os.write(2, _STOPPING)  # print is not safe here
        elif time.monotonic() - self.received_at > _SAME_REQUEST:
            self.restore()
            os.kill(os.getpid(), number)

    def agreed(self, engine: Engine) -> bool:
        """Whether to stop now, the same answer in all processes; all of them must ask in the same iterations."""
        if not self._is_agreed and world_size() == 1:
            self._is_agreed = self.received is not None
        elif not self._is_agreed and self._may_ask(engine):
            wish = torch.tensor(
                int(self.received is not None), device=getattr(engine.state, "device", None)
            )
            self._is_agreed = bool(all_reduce_max(wish).item())
        return self._is_agreed

    def _may_ask(self, engine: Engine) -> bool:
        iteration, epoch_length = engine.state.iteration, engine.state.epoch_length
        return iteration % self.sync_interval == 0 or bool(
            epoch_length and iteration % epoch_length == 0
        )

    def leave(self, engine: Engine, message: str) -> None:
        """End the run after the current event."""
        barrier()  # a launcher kills all processes when the first one leaves, and one may be still writing
        self._message = message
        engine.terminate()

    def terminated(self, engine: Engine) -> None:
        """Leave the process, if it was this request that terminated the run."""
        self.restore()
        if self._message:
            is_interrupt = self.received == signal.SIGINT
            code = INTERRUPTED_EXIT_CODE if is_interrupt else STOPPED_EXIT_CODE
            raise StoppedBySignal(self._message, code)

    def failed(self, engine: Engine, error: BaseException) -> None:
        """Restore the signals and raise the error."""
        self.restore()
        raise error

    def restore(self) -> None:
        """Restore signals and loaders."""
        self._is_listening = False
        self._undo.close()


def _end_loader_processes() -> None:
    """End what is left of the loader processes, which ignore the signal by which Python would end them.

    After an error they may still wait for work, and Python would wait for them without end.
    """
    for process in multiprocessing.active_children():
        if process.daemon:
            process.kill()


def _ignore_signals(
    numbers: Sequence[int], then: Callable[[int], None] | None, worker_id: int
) -> None:
    """Start of a loader process."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
    if then is not None:
        then(worker_id)
