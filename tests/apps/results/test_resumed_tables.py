# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Inference that was stopped goes on, and ends with the tables of a run that was not."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events

from monai_afire.apps.results.result_tables import ResultTables, written_name
from monai_afire.handlers.stop_request import StoppedBySignal

# quotes, line breaks, letters of more than one byte, a name that is no valid text
NAMES = [
    "a.png",
    'b "of", c.png',
    "d\nd.png",
    "M\u00fcller.png",
    "\u80ba.png",
    "caf\udce9.png",
    "g.png",
    "h.png",
]
ITEMS = [{"image": f"/data/{name}", "index": index} for index, name in enumerate(NAMES)]
REJECTED = {2, 5}


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@dataclass(eq=False)
class Landmarks(ResultTables):
    """Two rows per image."""

    table_name = "landmarks.csv"
    items: Sequence[Any]
    output_dir: str
    resume: bool = False

    def header(self) -> Sequence[str]:
        return ["image", "landmark", "row"]

    def collect(self, engine: Engine) -> None:
        batch: Any = engine.state.batch
        for row, source in self.accepted(batch):
            for landmark in ("apex", "hilum"):
                self.add_row(
                    [source, landmark, f"{float(batch['image'][row]) + len(landmark):.6g}"]
                )


def batches(items: Sequence[Any], size: int = 2) -> list[dict[str, Any]]:
    parts = [items[start : start + size] for start in range(0, len(items), size)]
    return [
        {
            "index": torch.tensor([item["index"] for item in part]),
            "image": torch.tensor([item["index"] / 7 for item in part]),
            "rejected": ["broken" if item["index"] in REJECTED else "" for item in part],
        }
        for part in parts
    ]


def judge(
    folder: Path,
    resume: bool = False,
    shift: float = 0.0,
    items: Sequence[Any] = ITEMS,
    size: int = 1,
) -> Landmarks:
    """A whole run; `shift` stands for other weights."""
    writer = Landmarks(items, str(folder), resume)
    engine = Engine(lambda engine, batch: None)
    writer.attach(engine)
    data = batches(writer.remaining(size), 2)
    for batch in data:
        batch["image"] += shift
    engine.run(data)
    return writer


def tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_killed_after_any_batch_the_tables_end_as_those_of_a_whole_run(tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    writer, engine = Landmarks(ITEMS, str(folder)), Engine(lambda engine, batch: None)
    writer.attach(engine)

    def keep(engine: Engine) -> None:
        copy = tmp_path / f"killed_{engine.state.iteration}"
        shutil.copytree(folder, copy)
        (copy / "parts" / ".half.pt.0.tmp").write_bytes(b"half")

    engine.add_event_handler(Events.ITERATION_COMPLETED, keep)
    engine.run(batches(ITEMS))
    assert writer.num_rejected == 2
    whole = tables(folder)
    for finished in range(1, 5):
        copy = tmp_path / f"killed_{finished}"
        left = Landmarks(ITEMS, str(copy), resume=True).remaining(2)
        assert [item["index"] for item in left][2:] == [*range(2 * finished, 8)]
        assert judge(copy, resume=True, size=2).num_rejected == 2
        assert tables(copy) == whole, finished


def test_only_what_is_missing_is_judged_again(tmp_path: Path) -> None:
    judge(tmp_path)
    left = Landmarks(ITEMS, str(tmp_path), resume=True).remaining()
    assert [item["index"] for item in left] == [7], "it shows that the weights are the same"
    assert Landmarks(ITEMS, str(tmp_path)).remaining() is ITEMS
    assert Landmarks(ITEMS, str(tmp_path / "new"), resume=True).remaining() == ITEMS


def test_batches_stay_whole_where_a_short_one_was_done_before_others(tmp_path: Path) -> None:
    judge(tmp_path)
    for name in ("landmarks.csv", "rejected.csv"):
        with (tmp_path / name).open(newline="", encoding="utf-8") as file:
            rows = [
                row
                for row in csv.reader(file)
                if not any(written_name(ITEMS[i]["image"]) in row for i in (3, 4, 5))
            ]
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
    left = Landmarks(ITEMS, str(tmp_path), resume=True).remaining(3)
    assert [item["index"] for item in left] == [*range(6)]


def test_new_files_of_a_growing_folder_are_added(tmp_path: Path) -> None:
    judge(tmp_path, items=ITEMS[:7])
    judge(tmp_path, resume=True)
    judge(tmp_path / "whole")
    assert sorted(tables(tmp_path / "whole")["landmarks.csv"].splitlines()) == sorted(
        (tmp_path / "landmarks.csv").read_bytes().splitlines()
    )
    assert len(Landmarks(ITEMS, str(tmp_path), resume=True).remaining()) < len(ITEMS)


@pytest.mark.parametrize("other", [ITEMS[:3], ITEMS[:2] + ITEMS[3:], [{"image": "x", "index": 0}]])
def test_results_of_other_images_are_refused(tmp_path: Path, other: Sequence[Any]) -> None:
    judge(tmp_path)
    before = tables(tmp_path)
    with pytest.raises(ValueError, match=r"\.csv has results of \d images that are not in the"):
        judge(tmp_path, resume=True, items=other)
    assert tables(tmp_path) == before


def test_other_weights_are_refused_and_nothing_is_mixed(tmp_path: Path) -> None:
    judge(tmp_path, items=ITEMS[:6])
    with pytest.raises(
        RuntimeError,
        match=r"landmarks\.csv: the result of .*the weights or the settings.*without resume",
    ):
        judge(tmp_path, resume=True, shift=0.3)
    judge(tmp_path, resume=True, shift=1e-4)  # rounding


def test_other_columns_are_refused(tmp_path: Path) -> None:
    judge(tmp_path)
    file = tmp_path / "landmarks.csv"
    file.write_text(file.read_text().replace("row", "column", 1))
    with pytest.raises(
        ValueError, match=r"landmarks\.csv has the columns .*'column'.*, not .*'row'"
    ):
        judge(tmp_path, resume=True)


def score_and_draw(
    folder: Path, value: float, resume: bool = False, number: int = 4, rejected: Sequence[int] = ()
) -> None:
    """Score the first images, each with a picture; the value stands for what the files contain."""
    writer = Drawn(ITEMS[:number], str(folder), resume)
    engine = Engine(lambda engine, batch: None)
    writer.attach(engine)
    data = batches(writer.remaining(2))
    for batch in data:
        batch["image"] = torch.full_like(batch["image"], value)
        batch["rejected"] = ["broken" if i in rejected else "" for i in batch["index"].tolist()]
    engine.run(data)


@dataclass(eq=False)
class Drawn(ResultTables):
    """A row and a file per image."""

    table_name, derived = "scores.csv", ("pictures", "list.txt")
    items: Sequence[Any]
    output_dir: str
    resume: bool = False

    def header(self) -> Sequence[str]:
        return ["image", "score"]

    def collect(self, engine: Engine) -> None:
        batch: Any = engine.state.batch
        for row, source in self.accepted(batch):
            value = float(batch["image"][row])
            self.add_row([source, value])
            self.submit(self.save, batch["index"][row], value)

    def save(self, index: int, value: float) -> None:
        (self.folder / "pictures").mkdir(exist_ok=True)
        (self.folder / "pictures" / f"{index}.txt").write_text(str(value))

    def complete(self) -> None:
        (self.folder / "list.txt").write_text("complete")


def all_files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of change of each file."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize("other", [{"value": 9.0}, {"value": 1.0, "rejected": [2]}])
def test_a_refused_run_has_written_no_picture(tmp_path: Path, other: dict[str, Any]) -> None:
    """The files have the same names and other patients in them, or one cannot be read any more."""
    run = tmp_path / "run"
    score_and_draw(run, 1.0)
    before = all_files(run)
    with pytest.raises(
        RuntimeError,
        match=r"scores\.csv: (?s:.*)start anew in another folder, without resume",
    ):
        score_and_draw(run, resume=True, **other)
    assert all_files(run) == before


def test_every_row_that_is_computed_again_is_compared(tmp_path: Path) -> None:
    score_and_draw(tmp_path, 1.0)
    table = tmp_path / "scores.csv"
    rows = table.read_text(encoding="utf-8").splitlines(keepends=True)
    # the last two lines are of the last batch: the first of them was another image's
    rows[-2] = rows[-2].replace("1.0", "5.0")
    table.write_text("".join(rows), encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"'5\.0' and is now '1\.0'"):
        score_and_draw(tmp_path, 1.0, resume=True)


def test_a_complete_run_that_is_resumed_stays_as_it_is_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    score_and_draw(run, 1.0)
    before = all_files(run)
    with caplog.at_level("INFO"):
        score_and_draw(run, 1.0, resume=True)
    assert all_files(run) == before
    assert "complete already" in caplog.text
    score_and_draw(run, 1.0, resume=True, number=6)  # the folder has grown
    assert len((run / "scores.csv").read_text(encoding="utf-8").splitlines()) > 5
    assert len(list((run / "pictures").iterdir())) == 6


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_ends_a_scoring_after_its_batch(tmp_path: Path, name: str, code: int) -> None:
    def score(engine: Engine, batch: Any) -> None:
        if engine.state.iteration == 2:
            os.kill(os.getpid(), signal.Signals[name])

    evaluator = Engine(score)
    Landmarks(ITEMS, str(tmp_path / "run")).attach(evaluator)
    former = signal.getsignal(signal.Signals[name])
    with pytest.raises(StoppedBySignal) as stopped:
        evaluator.run(batches(ITEMS))
    assert stopped.value.code == code
    assert signal.getsignal(signal.Signals[name]) == former
    assert not (tmp_path / "run/parts").exists()
    judge(tmp_path / "run", resume=True, size=2)
    judge(tmp_path / "whole", size=2)
    for table in ("landmarks.csv", "rejected.csv"):
        whole = (tmp_path / "whole" / table).read_bytes()
        assert (tmp_path / "run" / table).read_bytes() == whole


@dataclass(eq=False)
class Pictures(ResultTables):
    """A file per image, which a thread writes when it may."""

    table_name, num_threads = "table.csv", 1
    items: Sequence[Any]
    output_dir: str
    may_write = threading.Event()

    def header(self) -> Sequence[str]:
        return ["image"]

    def collect(self, engine: Engine) -> None:
        for _, source in self.accepted(engine.state.batch):  # type: ignore[arg-type]
            self.add_row([source])
            self.submit(self.save, source)

    def save(self, source: str) -> None:
        if source.endswith("c.png"):
            assert self.may_write.wait(30)
        if source.endswith("wrong.png"):
            raise OSError("no room")
        (self.folder / Path(source).name).write_text("picture")


def picture_items(names: str) -> list[dict[str, Any]]:
    return [
        {"image": f"/data/{name}.png", "index": index} for index, name in enumerate(names.split())
    ]


def listed(folder: Path) -> list[str]:
    parts = [torch.load(path, weights_only=True) for path in (folder / "parts").glob("*.pt")]
    return [image for _, rows in parts for image in rows]


def test_a_batch_is_finished_when_its_files_are_complete(tmp_path: Path) -> None:
    items = picture_items("a b c d e f")
    writer, engine = Pictures(items, str(tmp_path)), Engine(lambda engine, batch: None)
    writer.attach(engine)
    seen = []

    def look(engine: Engine) -> None:
        if engine.state.iteration < 3:
            seen.append(listed(tmp_path))
            assert all((tmp_path / Path(name).name).is_file() for name in seen[-1])
        else:
            writer.may_write.set()

    engine.add_event_handler(Events.ITERATION_COMPLETED, look)
    engine.run([{"index": torch.tensor([i, i + 1])} for i in (0, 2, 4)])
    assert max(map(len, seen)) <= 2
    assert (tmp_path / "table.csv").read_text().split()[1:] == [item["image"] for item in items]


def test_rows_of_complete_files_outlive_an_error(tmp_path: Path) -> None:
    items = picture_items("a b d wrong e f")
    Pictures.may_write.set()
    writer, engine = Pictures(items, str(tmp_path)), Engine(lambda engine, batch: None)
    writer.attach(engine)
    with pytest.raises(OSError, match="no room"):
        engine.run([{"index": torch.tensor([i, i + 1])} for i in (0, 2, 4)])
    assert (tmp_path / "table.csv").read_text().split()[1:] == ["/data/a.png", "/data/b.png"]
    assert (tmp_path / "d.png").is_file()
