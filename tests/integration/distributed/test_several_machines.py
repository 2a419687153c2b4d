# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The recipe for several machines: one of them dies, and at most an epoch is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from unit.handlers.miniature_training import assert_same

from integration.bundle_runs import environment
from integration.distributed import training_on_machines
from integration.distributed.training_on_machines import DISTURBED, EPOCHS, KILLED_AT, over
from integration.distributed.two_ranks import needs_gloo

pytestmark = [needs_gloo, pytest.mark.slow]

TIMEOUT = 900  # seconds until a job that hangs is ended
PER_MACHINE = 1


class Machines:
    """Two launchers on this computer, each with one process, as the recipe starts them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launchers: list[subprocess.Popen] = []
        self.deadline = time.monotonic() + TIMEOUT
        with socket.socket() as free:
            free.bind(("localhost", 0))
            self.port = free.getsockname()[1]

    def start(self, hosts: bool) -> subprocess.Popen:
        """One machine; the one that hosts the meeting point is left in peace."""
        # of a machine that is gone the others know after 8 s instead of 15
        meeting = f"is_host={int(hosts)},keep_alive_interval=2,keep_alive_max_attempt=4"
        launcher = ["torch.distributed.run", "--nnodes", "2", "--nproc_per_node", str(PER_MACHINE)]
        launcher += [
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            f"localhost:{self.port}",
            "--rdzv-id",
            "a_job",
        ]
        launcher += ["--rdzv-conf", meeting, "--max-restarts", "3", "--local-addr", "localhost"]
        command = [sys.executable, "-m", *launcher, training_on_machines.__file__, str(self.folder)]
        tests = str(Path(__file__).parents[2])
        path = os.pathsep.join([tests, environment()["PYTHONPATH"]])
        variables = {
            **environment(),
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "300",
            DISTURBED: "" if hosts else "1",
        }
        log = (self.folder / f"log_{len(self.launchers)}.txt").open("w")
        self.launchers.append(
            subprocess.Popen(command, env=variables, stdout=log, stderr=log, start_new_session=True)
        )
        return self.launchers[-1]

    def processes_at(self, iteration: int, ranks: list[str]) -> list[int]:
        """Numbers of the disturbed machine's processes, which have come to this iteration and wait."""
        signs = self.folder / f"iteration_{iteration}"
        self.wait(lambda: len(list(signs.iterdir())) == PER_MACHINE)
        names = [sign.name.split("_") for sign in sorted(signs.iterdir())]
        assert [rank for rank, _ in names] == ranks
        return [int(process) for _, process in names]

    def wait(self, is_done: Callable[[], object]) -> None:
        while not is_done():
            assert time.monotonic() < self.deadline, self.logs()
            assert all(
                launcher.poll() in (None, 0, -signal.SIGKILL) for launcher in self.launchers[:2]
            ), self.logs()
            time.sleep(0.1)

    def logs(self) -> str:
        return "\n".join(log.read_text()[-3000:] for log in sorted(self.folder.glob("log_*.txt")))

    def end(self) -> None:
        """Launchers end their processes, which have sessions of their own."""
        for launcher in self.launchers:
            launcher.terminate()
        for launcher in self.launchers:
            try:
                launcher.wait(timeout=60)
            except subprocess.TimeoutExpired:
                launcher.kill()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path)
    for iteration in KILLED_AT:
        (tmp_path / f"iteration_{iteration}").mkdir()
    yield machines
    machines.end()


def saved_epoch(folder: Path) -> int:
    state = torch.load(folder / "parts/models/checkpoint.pt", weights_only=True)
    return state["training"]["epoch"]


def test_machines_that_die_cost_nothing_but_time(machines: Machines, tmp_path: Path) -> None:
    disturbed, host = machines.start(hosts=False), machines.start(hosts=True)
    # the main process is on the machine that dies first, then on the other one
    for iteration, ranks, epoch in zip(KILLED_AT, (["0"], ["1"]), (1, 3), strict=True):
        processes = machines.processes_at(iteration, ranks)
        disturbed.kill()
        for process in processes:
            os.kill(process, signal.SIGKILL)
        over(tmp_path, iteration).touch()
        assert saved_epoch(tmp_path) == epoch
        disturbed = machines.start(hosts=False)

    machines.wait(lambda: host.poll() is not None and disturbed.poll() is not None)
    assert (host.returncode, disturbed.returncode) == (0, 0), machines.logs()
    assert saved_epoch(tmp_path) == EPOCHS
    whole = torch.load(tmp_path / "whole.pt", weights_only=True)
    assert_same(torch.load(tmp_path / "parts/models/model.pt", weights_only=True), whole)
