# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Execution of an experiment's runs in processes of their own: several at a time, resumable."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

from tqdm.auto import tqdm

from monai_afire.apps.experiments.plan import Experiment, ExperimentError, Pretraining, Run
from monai_afire.utils.device import device_count
from monai_afire.utils.files import check_writable, write_text

_COMMAND = (sys.executable, "-m", "monai.bundle", "run")
_PATIENCE = 10.0  # seconds that a stopped process has to end


@dataclass(frozen=True)
class Outcome:
    """
    Outcome of a run.

    Attributes:
        run: the run.
        status: "done", "done before" or "failed".
        reason: why it failed, with the last line of its log.
    """

    run: Run
    status: str
    reason: str = ""


def execute_runs(
    experiment: Experiment, runs: Sequence[Run], num_processes: int = 1, progress: bool = True
) -> list[Outcome]:
    """
    Train and evaluate each run that has no result yet, after the pre-training that it starts from, if any.

    A run has its folder, ``runs/<name>`` in the output folder, with ``log.txt`` (the commands and what they printed),
    whatever the bundle writes, ``models/`` and at last ``metrics.json`` and ``settings.json``. The latter is written
    when all went well; a run with a ``settings.json`` of the same settings, files by their content, is not done again.
    A pre-training has its folder too, ``pretraining/<arm>-seed_<seed>``, and is done once for all runs that start from
    it; one that was interrupted goes on from its last checkpoint.

    Training and evaluation are ``python -m monai.bundle run``, each in a process of its own with its share of the
    CPU's threads (``OMP_NUM_THREADS``, unless that is set) and, where there are several GPUs and processes, with one
    of the GPUs. When this function ends by an exception, such as Ctrl-C, the processes are ended too.

    Args:
        experiment: what the runs share.
        runs: the runs.
        num_processes: how many to do at the same time.
        progress: whether to show a progress bar over the runs.

    Returns:
        One per run, in order.

    Raises:
        OSError: when the output folder cannot be written to.
        ValueError: for ``num_processes`` < 1.
    """
    if num_processes < 1:
        raise ValueError(f"num_processes must be at least 1, got {num_processes}")
    check_writable(experiment.output_dir)
    outcomes = {run: Outcome(run, "done before") for run in runs if _is_done(experiment, run)}
    pending = [run for run in runs if run not in outcomes]
    environments: SimpleQueue[dict[str, str]] = SimpleQueue()
    for environment in _environments(num_processes):
        environments.put(environment)
    processes = _Processes()
    bar = tqdm(
        total=len(runs), initial=len(outcomes), disable=not progress, unit="run", dynamic_ncols=True
    )
    with bar, ThreadPoolExecutor(num_processes) as pool:
        futures = [
            pool.submit(_execute, experiment, run, processes, environments) for run in pending
        ]
        try:
            for future in as_completed(futures):
                outcome = future.result()
                outcomes[outcome.run] = outcome
                bar.update()
                bar.write(f"{outcome.status}: {outcome.run.name}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise
    return [outcomes[run] for run in runs]


def read_metrics(folder: Path) -> dict[str, Any]:
    """
    Read the metrics of a run.

    Args:
        folder: the run's folder.

    Returns:
        The content of its ``metrics.json``.

    Raises:
        OSError: when there is none.
        ValueError: when it is no JSON object.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "metrics.json").write_text('{"mean_auc": 0.75}')
        >>> read_metrics(folder)
        {'mean_auc': 0.75}
    """
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    if not isinstance(metrics, dict):
        raise ValueError(f"{folder / 'metrics.json'} holds no JSON object")
    return metrics


def pretrained_weights(pretraining: Pretraining, seed: int) -> Path:
    """
    Do a pre-training alone, in a process of its own; what is done is not done again, what was interrupted goes on.

    Args:
        pretraining: an arm of :func:`monai_afire.apps.experiments.read_arms`.
        seed: of the pre-training.

    Returns:
        The file of the weights.

    Raises:
        ExperimentError: when it fails, with the last line of its log, and for a folder that holds another one.
    """
    if reason := _pretrain(pretraining, seed, _Processes(), _environments(1)[0]):
        raise ExperimentError(reason)
    return pretraining.weights(seed)


class _Processes:
    """The processes that run now; those that stop are not followed by others."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: set[subprocess.Popen] = set()
        self.stopped = False
        self.pretraining: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)

    def call(self, command: Sequence[str], log: TextIO, environment: Mapping[str, str]) -> int:
        """Run a command to its end; its exit status."""
        with self.lock:
            if self.stopped:
                raise InterruptedError("the experiment was stopped")
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(environment),
            )
            self.running.add(process)
        try:
            return process.wait()
        finally:
            with self.lock:
                self.running.discard(process)

    def stop(self) -> None:
        """End all that run."""
        with self.lock:
            self.stopped = True
            running = list(self.running)
        for process in running:
            process.terminate()
        deadline = time.monotonic() + _PATIENCE
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()


def _is_done(experiment: Experiment, run: Run) -> bool:
    folder = experiment.folder(run)
    try:
        read_metrics(folder)
    except (OSError, ValueError):
        return False
    return _read_settings(folder / "settings.json") == experiment.settings(run)


def _execute(
    experiment: Experiment,
    run: Run,
    processes: _Processes,
    environments: SimpleQueue[dict[str, str]],
) -> Outcome:
    """One run, in a thread that waits for its processes; any error is the run's own."""
    environment = environments.get()
    try:
        reason = _train_and_evaluate(experiment, run, processes, environment)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    finally:
        environments.put(environment)
    return Outcome(run, "failed" if reason else "done", reason)


def _train_and_evaluate(
    experiment: Experiment, run: Run, processes: _Processes, environment: Mapping[str, str]
) -> str:
    """Do the steps and certify the result; why it failed, or nothing."""
    if isinstance(run.start, Pretraining):
        with processes.pretraining[
            run.start.folder(run.seed)
        ]:  # runs beside this one may start from it, too
            if reason := _pretrain(run.start, run.seed, processes, environment):
                return reason
    folder = experiment.folder(run)
    # the files as they are now, whatever happens to them meanwhile
    settings = experiment.settings(run)
    started = folder / "started.json"
    can_resume = _read_settings(started) == settings
    steps = experiment.steps(run, can_resume)
    _make_room(folder, goes_on=can_resume and experiment.resumes)
    write_text(started, json.dumps(settings, indent=2))
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        for step, arguments in steps.items():
            if reason := _call(step, arguments, processes, log, environment):
                return reason
    try:
        read_metrics(folder)
    except (OSError, ValueError) as error:
        return f"the evaluation left no metrics.json that can be read ({error}): {_last_line(folder / 'log.txt')}"
    write_text(folder / "settings.json", json.dumps(settings, indent=2))
    return ""


def _make_room(folder: Path, goes_on: bool) -> None:
    """Delete what an earlier try has left, or, where the training goes on, what its evaluation has."""
    if goes_on:
        for path in (folder / "settings.json", folder / "metrics.json", *folder.glob("*.csv")):
            path.unlink(missing_ok=True)
    elif (folder / "started.json").is_file():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def _read_settings(path: Path) -> dict[str, Any] | None:
    """Settings in a file of a run; None without one that can be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _pretrain(
    pretraining: Pretraining, seed: int, processes: _Processes, environment: Mapping[str, str]
) -> str:
    """Do a pre-training, or what is left of it; why it failed, or nothing."""
    folder, settings = pretraining.folder(seed), pretraining.settings(seed)
    done, started = folder / "settings.json", folder / "started.json"
    for path in (done, started):
        if path.is_file() and _read_settings(path) != settings:
            return f"{folder} holds a pre-training with other settings: remove it, or choose another --output_dir"
    if done.is_file() and pretraining.weights(seed).is_file():
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(started, json.dumps(settings, indent=2))
    with (folder / "log.txt").open("a", encoding="utf-8") as log:
        if reason := _call(
            "pre-training", pretraining.arguments(seed), processes, log, environment
        ):
            return reason
    if not pretraining.weights(seed).is_file():
        return f"the pre-training left no {pretraining.weights(seed)}: {_last_line(folder / 'log.txt')}"
    os.replace(started, done)
    return ""


def _call(
    step: str,
    arguments: Sequence[str],
    processes: _Processes,
    log: TextIO,
    environment: Mapping[str, str],
) -> str:
    """Run one step of the bundle; why it failed, or nothing."""
    log.write(f"$ {shlex.join(['python', *_COMMAND[1:], *arguments])}\n")
    log.flush()
    status = processes.call([*_COMMAND, *arguments], log, environment)
    if not status:
        return ""
    how = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
    return f"the {step} {how}: {_last_line(Path(log.name))}"


def _last_line(log: Path) -> str:
    """The last line with something on it; a progress bar writes many of them over one another."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")


def _environments(num_processes: int) -> list[dict[str, str]]:
    """Environment of each of the processes at a time."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    shared = {
        "OMP_NUM_THREADS": str(max(1, cores // num_processes)),
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",
    }
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = (
        [*map(str, range(device_count("cuda")))]
        if visible is None
        else [*filter(None, visible.split(","))]
    )
    if num_processes == 1 or len(devices) < 2:
        return [shared] * num_processes
    return [
        {**shared, "CUDA_VISIBLE_DEVICES": devices[k % len(devices)]} for k in range(num_processes)
    ]
