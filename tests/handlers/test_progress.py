# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Progress bar at the terminal."""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import torch
from ignite.engine import Engine, Events

from monai_afire.handlers import TrainingProgressBar


def quiet_engine() -> Engine:
    return Engine(lambda engine, batch: None)


def test_one_bar_over_all_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    engine = quiet_engine()
    handler = TrainingProgressBar(
        lambda output: {"loss": torch.tensor(0.12345), "rate": 2}, 1, "learning"
    )
    handler.attach(engine)
    counts: list[tuple[int, int | None]] = []

    def look() -> None:
        assert handler.bar is not None
        counts.append((handler.bar.n, handler.bar.total))

    engine.add_event_handler(Events.ITERATION_COMPLETED(every=3), look)
    engine.run([0, 1, 2], max_epochs=2)
    assert counts == [(3, 6), (6, 6)]
    assert handler.bar is None
    shown = capsys.readouterr().err
    assert "learning, epoch 2/2" in shown
    assert "6/6" in shown
    assert "loss=0.123" in shown
    assert "rate=2" in shown
    engine.run([0, 1, 2], max_epochs=3)  # one more epoch opens a new bar
    assert "9/9" in capsys.readouterr().err


def test_values_are_read_now_and_then() -> None:
    engine, reads = quiet_engine(), []

    def values(output: object) -> dict[str, float]:
        reads.append(engine.state.iteration)
        return {}

    TrainingProgressBar(values, refresh=3).attach(engine)
    engine.run(range(4), max_epochs=2)
    assert reads == [3, 6]


def test_resumed_runs_start_where_they_stopped() -> None:
    engine, seen = quiet_engine(), []
    handler = TrainingProgressBar()
    handler.attach(engine)
    state = {"epoch": 2, "epoch_length": 5, "max_epochs": 4}
    engine.add_event_handler(Events.STARTED, lambda: engine.load_state_dict(state))
    engine.add_event_handler(
        Events.EPOCH_STARTED,
        lambda: seen.append((handler.bar.n, handler.bar.total) if handler.bar else None),
    )
    engine.run(range(5), max_epochs=4)
    assert seen[0] == (10, 20)


def test_log_messages_are_not_lost_and_logging_is_restored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root, stream = logging.getLogger(), logging.StreamHandler()
    root.addHandler(stream)
    before = list(root.handlers)
    try:
        engine = quiet_engine()
        TrainingProgressBar().attach(engine)
        engine.add_event_handler(
            Events.ITERATION_COMPLETED, lambda: logging.getLogger().warning("halfway through")
        )
        engine.run([0])
        assert root.handlers == before
    finally:
        root.removeHandler(stream)
    captured = capsys.readouterr()
    assert "halfway through" in captured.err + captured.out


@pytest.mark.parametrize("skip_completed", [False, True])
def test_terminated_runs_close_the_bar(skip_completed: bool) -> None:
    engine = quiet_engine()
    handler = TrainingProgressBar()
    handler.attach(engine)
    engine.add_event_handler(
        Events.ITERATION_COMPLETED(once=2), lambda: engine.terminate(skip_completed)
    )
    before = list(logging.getLogger().handlers)
    engine.run(range(5), max_epochs=3)
    assert handler.bar is None
    assert logging.getLogger().handlers == before


def test_epochs_of_unknown_length(capsys: pytest.CaptureFixture[str]) -> None:
    engine = quiet_engine()
    TrainingProgressBar().attach(engine)
    engine.run(iter(range(3)), max_epochs=1)
    assert "3step" in capsys.readouterr().err


def test_other_ranks_are_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("monai_afire.handlers.progress.global_rank", lambda: 1)
    engine = quiet_engine()
    TrainingProgressBar().attach(engine)
    engine.run([0])
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_metrics_of_the_last_validation_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    engine, validator = quiet_engine(), quiet_engine()
    validator.state.metrics = {"auc": 0.75}
    TrainingProgressBar(lambda output: {"loss": 2.0}, refresh=1, validator=validator).attach(engine)
    engine.run([0])
    assert "loss=2, auc=0.75" in capsys.readouterr().err


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> Iterator[list[str]]:
    """A terminal of so many columns in the place of the standard error; its text is in the list at the end."""
    reading, writing = os.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    text: list[str] = []
    with os.fdopen(writing, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        yield text
    content = b""
    with suppress(OSError):  # nothing is left
        while part := os.read(reading, 4096):
            content += part
    os.close(reading)
    text.append(content.decode("utf-8"))


def shown_lines(text: str) -> list[str]:
    """What stood on each line at any time."""
    return [part for line in text.split("\n") for part in line.split("\r") if part.strip()]


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_lines_fit_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    validator = quiet_engine()
    validator.state.key_metric_name = "gain"
    validator.state.metrics = {"a_metric_with_a_long_name": 0.5, "gain": 0.25}
    values = {"total": 1.0, **{f"a_long_name_{n}": 1e-5 for n in range(9)}}
    handler = TrainingProgressBar(lambda output: values, 1, "pre-training", validator)
    engine = quiet_engine()
    handler.attach(engine)
    with terminal(monkeypatch, columns) as text:
        engine.run(range(4), max_epochs=3)
    lines = shown_lines(text[0])
    assert max(map(len, lines)) <= columns
    last = lines[-1].rstrip()
    assert ("total=1, gain=0.25" in last) == (columns >= 100)
    assert last.endswith("]")  # whole values, none cut
    assert ("a_long_name_0=1e-05" in last) == (columns >= 200)


def test_messages_of_any_logger_have_a_line_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger, handler = logging.getLogger("has its own handler"), logging.StreamHandler(sys.stderr)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        engine = quiet_engine()
        TrainingProgressBar(lambda output: {"loss": 1.0}, 1).attach(engine)
        engine.add_event_handler(Events.EPOCH_COMPLETED, lambda: logger.warning("a message"))
        engine.run(range(3), max_epochs=3)
    finally:
        logger.removeHandler(handler)
    shown = capsys.readouterr().err
    for line in shown.split("\n"):
        assert "a message" not in line or line.split("\r")[-1] == "a message"
    assert shown.count("a message") == 3


def test_the_bar_is_closed_before_closing_words(capsys: pytest.CaptureFixture[str]) -> None:
    engine = quiet_engine()
    engine.add_event_handler(Events.COMPLETED, lambda: print("closing words", file=sys.stderr))
    TrainingProgressBar(lambda output: {"loss": 1.0}, 1).attach(engine)
    engine.run(range(3), max_epochs=2)
    assert capsys.readouterr().err.split("\n")[-2] == "closing words"
