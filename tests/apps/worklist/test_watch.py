# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The watcher of a folder: each file is scored once, whatever happens in between."""

from __future__ import annotations

import csv
import errno
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.bundle_runs import new_detector, write_images

from monai_afire.apps.worklist import watch
from monai_afire.data import DatalistError
from monai_afire.networks import save_network

SMALL: dict[str, Any] = {"saved": [], "device": "cpu", "batch_size": 2}
Look = Callable[..., None]


@pytest.fixture
def detector(tmp_path: Path) -> str:
    """File of a detector that is too small to find anything."""
    network, description = new_detector(image_size=32, patch_size=8, device="cpu")
    return str(save_network(network, tmp_path / "model.pt", description))


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detector: str) -> Look:
    """A watch of ``in`` that does a step at each of its pauses and is stopped after the last one."""

    def run(*steps: Callable[[], object], **settings: Any) -> None:
        remaining: Iterator[Callable[[], object]] = iter(steps)

        def pause(seconds: float) -> None:
            step = next(remaining, None)
            if step is None:
                raise KeyboardInterrupt
            step()

        monkeypatch.setattr(watch.time, "sleep", pause)
        (tmp_path / "in").mkdir(exist_ok=True)
        options = {"weights": detector, **SMALL, **settings}
        with pytest.raises(KeyboardInterrupt):
            watch.watch_folder(tmp_path / "in", tmp_path / "out", 1.0, **options)

    return run


def scores(folder: Path, table: str = "scores.csv") -> dict[str, str]:
    """The second cell behind each name."""
    with (folder / "out" / table).open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    return {os.path.relpath(row[0], folder / "in"): row[min(2, len(row) - 1)] for row in rows}


def nothing() -> None:
    """A pause in which nothing happens."""


def test_a_file_is_scored_when_it_has_stopped_growing(tmp_path: Path, look: Look) -> None:
    write_images(tmp_path / "sent", 2)
    whole = (tmp_path / "sent/image_1.png").read_bytes()
    growing = tmp_path / "in/day 1/growing.png"
    seen: list[set[str]] = []

    def begin() -> None:
        (tmp_path / "in/whole.png").write_bytes((tmp_path / "sent/image_0.png").read_bytes())
        growing.parent.mkdir()
        growing.write_bytes(whole[:100])

    def grow(content: bytes) -> Callable[[], object]:
        def step() -> None:
            seen.append({*scores(tmp_path), *scores(tmp_path, "rejected.csv")})
            growing.write_bytes(content)

        return step

    look(begin, lambda: growing.write_bytes(whole[:200]), grow(whole[:300]), grow(whole), nothing)
    assert seen == [{"whole.png"}] * 2
    assert set(scores(tmp_path)) == {"whole.png", "day 1/growing.png"}
    assert scores(tmp_path, "rejected.csv") == {}


def test_a_file_that_is_replaced_under_its_name_is_scored_anew(tmp_path: Path, look: Look) -> None:
    """A router that numbers its files from the beginning: the score is never that of the old patient."""
    write_images(tmp_path / "sent", 3)
    first, second, third = sorted((tmp_path / "sent").iterdir())
    shown: list[dict[str, str]] = []

    def arrive(source: Path) -> Callable[[], object]:
        return lambda: (tmp_path / "in/IMG0001.png").write_bytes(source.read_bytes())

    def replace() -> None:
        shown.append(scores(tmp_path))
        arrive(second)()
        (tmp_path / "in/other.png").write_bytes(third.read_bytes())

    look(arrive(first), nothing, replace, nothing, nothing)
    former, anew = shown[0]["IMG0001.png"], scores(tmp_path)["IMG0001.png"]
    assert float(former) != pytest.approx(float(anew), rel=1e-4)
    look(lambda: (tmp_path / "in/second.png").write_bytes(second.read_bytes()), nothing, nothing)
    assert float(scores(tmp_path)["second.png"]) == pytest.approx(float(anew), rel=1e-4)


def test_a_stopped_watch_goes_on(tmp_path: Path, look: Look) -> None:
    write_images(tmp_path / "in", 3)
    look(nothing, nothing)
    before, written = scores(tmp_path), (tmp_path / "out/resume.jsonl").read_bytes()
    look(nothing, nothing)  # nothing has come meanwhile
    assert (tmp_path / "out/resume.jsonl").read_bytes() == written
    for name in ("image_0.png", "image_1.png"):  # an archive has fetched them
        (tmp_path / "in" / name).unlink()
    (tmp_path / "in/new.png").write_bytes((tmp_path / "in/image_2.png").read_bytes())
    look(nothing, nothing)
    assert scores(tmp_path) == {**before, "new.png": before["image_2.png"]}


def test_files_that_cannot_be_read_end_no_watch(tmp_path: Path, look: Look) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "in/notes.txt").write_text("no image")
    look(nothing, lambda: write_images(tmp_path / "in", 1), nothing, nothing)
    assert set(scores(tmp_path, "rejected.csv")) == {"broken.png"}
    assert set(scores(tmp_path)) == {"image_0.png"}


def test_a_folder_that_is_away_is_waited_for(
    tmp_path: Path, look: Look, capsys: pytest.CaptureFixture[str]
) -> None:
    """A share drops out for some seconds: the watch says so once, and goes on."""
    write_images(tmp_path / "in", 1)
    there, away = tmp_path / "in", tmp_path / "away"
    look(lambda: there.rename(away), nothing, nothing, lambda: away.rename(there), *[nothing] * 3)
    assert set(scores(tmp_path)) == {"image_0.png"}
    said = capsys.readouterr().out
    assert said.count("is away") == said.count("is back") == 1


@pytest.mark.parametrize("name", ["in", "out"])
def test_a_folder_that_goes_away_while_it_is_scored(
    tmp_path: Path, look: Look, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An empty folder in the place of a share is not the folder of results."""
    write_images(tmp_path / "in", 1)
    there, away, score, calls = tmp_path / name, tmp_path / "away", watch._score, iter([1, 2])

    def drop_out(*arguments: Any) -> None:
        if next(calls, 0) == 2:
            there.rename(away)
            if name == "out":
                there.mkdir()
                raise OSError(errno.EIO, "Input/output error")
        score(*arguments)

    def come_back() -> None:
        if there.exists():
            there.rmdir()
        away.rename(there)

    monkeypatch.setattr(watch, "_score", drop_out)
    more = tmp_path / "in/more"
    look(nothing, lambda: write_images(more, 1), nothing, come_back, *[nothing] * 4)
    assert set(scores(tmp_path)) == {"image_0.png", "more/image_0.png"}


def test_other_weights_are_refused(tmp_path: Path, look: Look, detector: str) -> None:
    write_images(tmp_path / "in", 1)
    look(nothing, nothing)
    write_images(tmp_path / "in/more", 1)
    network, description = new_detector(image_size=32, patch_size=8, device="cpu")
    next(network.parameters()).data.add_(0.01)
    other = str(save_network(network, tmp_path / "other.pt", description))
    before = scores(tmp_path)
    with pytest.raises(RuntimeError) as refused:
        look(nothing, nothing, weights=other)
    assert "other weights" in str(refused.value.__cause__)
    assert scores(tmp_path) == before


def test_folders_that_cannot_be_watched_are_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for folder, out, named in [("in", "in/out", "in/out"), ("gone", "out", "gone")]:
        with pytest.raises(DatalistError, match=named):
            watch.watch_folder(tmp_path / folder, tmp_path / out)


def watching(folder: Path, detector: str) -> None:
    """A process as the command starts it."""
    os.chdir(folder)
    output = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    words = "in out --interval 0.2 --device cpu --saved overlays --weights"
    raise SystemExit(watch.main([*words.split(), detector]))


@pytest.mark.slow
def test_kills_lose_no_file_and_score_none_twice(tmp_path: Path, detector: str) -> None:
    names = write_images(tmp_path / "sent", 10)
    (tmp_path / "in").mkdir()
    context, chance = multiprocessing.get_context("forkserver"), random.Random(0)
    deadline, table = time.monotonic() + 300, tmp_path / "out/worklist.csv"
    for kills in range(4):  # the last one is left alone
        process = context.Process(target=watching, args=(tmp_path, detector))
        process.start()
        for name in names[3 * kills : 3 * kills + 3]:
            os.replace(tmp_path / "sent" / name, tmp_path / "in" / name)
        if kills < 3:
            process.join(chance.uniform(1.0, 4.0))
            assert process.is_alive(), (tmp_path / "log.txt").read_text()[-2000:]
            process.kill()
            process.join()
    while time.monotonic() < deadline and not (table.is_file() and len(scores(tmp_path)) == 10):
        time.sleep(0.2)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 0
    assert sorted(scores(tmp_path)) == sorted(names)
    assert len(list((tmp_path / "out").glob("overlays/*.jpg"))) == 10
