# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Inference that was stopped goes on, and ends with the tables of a run that was not."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events

from monai_afire.apps.results import ResultTables
from monai_afire.data import indexed_images

# quotes, line breaks, letters of more than one byte, a name that is no valid text
NAMES = (
    *("a.png", 'b "of", c.png', "d\nd.png", "M\u00fcller.png", "\u80ba.png", "caf\udce9.png"),
    *("g.png", "h.png"),
)
REJECTED = {NAMES[2], NAMES[5]}
Items = list[dict[str, Any]]


def image_files(folder: Path, names: Sequence[str] = NAMES) -> Items:
    """Items of files, of which the first byte is what stands for a score."""
    folder.mkdir()
    for number, name in enumerate(names):
        (folder / name).write_bytes(bytes([number]))
    return [{"image": str(folder / name)} for name in names]


@pytest.fixture
def items(tmp_path: Path) -> Items:
    return image_files(tmp_path / "in")


@dataclass(eq=False)
class Landmarks(ResultTables):
    """Two rows and a picture per image."""

    table_name, derived, folders = "landmarks.csv", ("pictures", "list.txt"), ("pictures",)
    items: Sequence[Any]
    output_dir: str
    resume: bool = False
    window: int = 5

    def header(self) -> Sequence[str]:
        return ["image", "landmark", "row"]

    def settings(self) -> Mapping[str, Any]:
        return {"window": self.window}

    def add(self, source: str, output: torch.Tensor, batch: Mapping[str, Any], row: int) -> None:
        for landmark in ("apex", "hilum"):
            self.add_row([source, landmark, f"{float(output) / 7 + len(landmark):.6g}"], "known")
        path = self.folder / "pictures" / f"{Path(source).stem}.txt"
        self.submit(source, self.save, path, str(float(output)))

    def save(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def complete(self, described: Mapping[str, Any]) -> None:
        known = sorted(name for name, value in described.items() if value == "known")
        (self.folder / "list.txt").write_text("\n".join(known), encoding="utf-8")


def batches(items: Sequence[Any], size: int = 2) -> list[dict[str, Any]]:
    """What a loader makes of items with "index"."""
    parts = [items[start : start + size] for start in range(0, len(items), size)]
    return [
        {
            "index": torch.tensor([item["index"] for item in part]),
            "image": torch.tensor([Path(item["image"]).read_bytes()[0] for item in part]),
            "rejected": ["broken" if Path(item["image"]).name in REJECTED else "" for item in part],
        }
        for part in parts
    ]


def engine_of(writer: ResultTables, shift: float = 0.0) -> Engine:
    """An evaluator whose network adds a number."""
    engine = Engine(lambda engine, batch: {"pred": batch["image"] + shift})
    engine.network = torch.nn.Linear(1, 1)  # type: ignore[attr-defined]
    torch.nn.init.constant_(engine.network.weight, shift)  # type: ignore[attr-defined]
    torch.nn.init.zeros_(engine.network.bias)  # type: ignore[attr-defined]
    writer.attach(engine)
    return engine


def writer_of(folder: Path, items: Sequence[Any], *options: Any) -> Landmarks:
    return Landmarks(indexed_images(items), str(folder), *options)


def judge(
    folder: Path, items: Sequence[Any], resume: bool = False, shift: float = 0.0, window: int = 5
) -> list[int]:
    """A whole run; `shift` stands for other weights. Returns which of ``NAMES`` were computed."""
    writer = writer_of(folder, items, resume, window)
    engine, left = engine_of(writer, shift), writer.remaining(2)
    engine.run(batches(left))
    return [NAMES.index(Path(item["image"]).name) for item in left]


def files(folder: Path) -> dict[str, bytes]:
    """What is in a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def rows(folder: Path, table: str = "landmarks.csv") -> dict[str, list[str]]:
    with (folder / table).open(newline="", encoding="utf-8") as file:
        return {Path(row[0]).name: row[1:] for row in list(csv.reader(file))[1:]}


def test_killed_after_any_batch_a_run_ends_as_one_that_was_not(
    items: Items, tmp_path: Path
) -> None:
    folder = tmp_path / "whole"
    writer = writer_of(folder, items)
    engine = engine_of(writer)

    def keep(engine: Engine) -> None:
        copy = Path(shutil.copytree(folder, tmp_path / f"killed_{engine.state.iteration}"))
        (copy / ".landmarks.csv.0.tmp").write_bytes(b"half")
        with (copy / "resume.jsonl").open("a") as record:
            record.write('{"in/g.png": {"state": [1, 1')  # killed while it appended a row

    engine.add_event_handler(Events.ITERATION_COMPLETED, keep)
    engine.run(batches(indexed_images(items)))
    assert writer.num_rejected == 2
    for iteration in range(1, 5):
        copy = tmp_path / f"killed_{iteration}"
        assert not (copy / "landmarks.csv").exists()
        assert judge(copy, items, resume=True) == list(range(2 * (iteration - 1), 8))
        assert files(copy) == files(folder), iteration


def test_a_changed_file_is_scored_anew(items: Items, tmp_path: Path) -> None:
    judge(tmp_path / "out", items)
    Path(items[3]["image"]).write_bytes(b"\x40 another patient")
    assert judge(tmp_path / "out", items, resume=True) == [3]
    assert rows(tmp_path / "out")["Müller.png"] == ["hilum", f"{64 / 7 + 5:.6g}"]
    assert (tmp_path / "out/pictures/Müller.txt").read_text() == "64.0"
    judge(tmp_path / "whole", items)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_nothing_of_the_former_content_of_a_file_is_left(
    items: Items, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge(tmp_path / "out", items)
    Path(items[3]["image"]).write_bytes(b"\x40 another patient")
    monkeypatch.setattr(f"{__name__}.REJECTED", {*REJECTED, NAMES[3]})
    judge(tmp_path / "out", items, resume=True)
    assert "Müller.png" not in rows(tmp_path / "out")
    assert rows(tmp_path / "out", "rejected.csv")["Müller.png"] == ["broken"]
    assert not (tmp_path / "out/pictures/Müller.txt").exists()
    assert "Müller" not in (tmp_path / "out/list.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("moment", [1, 4])  # before it is read, and after it was scored
def test_a_file_that_changes_meanwhile_has_no_result(
    items: Items, tmp_path: Path, moment: int
) -> None:
    writer = writer_of(tmp_path / "out", items)
    engine, data = engine_of(writer), batches(indexed_images(items))

    def change(engine: Engine) -> None:
        if engine.state.iteration == moment:
            Path(items[3]["image"]).write_bytes(b"\x40 another patient")

    engine.add_event_handler(Events.ITERATION_STARTED, change)
    engine.run(data)
    assert "Müller.png" not in rows(tmp_path / "out")
    assert "changed while" in rows(tmp_path / "out", "rejected.csv")["Müller.png"][0]
    assert judge(tmp_path / "out", items, resume=True) == [3]
    judge(tmp_path / "whole", items)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_a_picture_of_a_file_that_changed_while_it_was_drawn_is_deleted(
    items: Items, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Secondary Capture has the header that its source has when it is written."""
    save = Landmarks.save

    def slow(self: Landmarks, path: Path, text: str) -> Path:
        if path.name == "Müller.txt":
            Path(items[3]["image"]).write_bytes(b"\x40 another patient")
        return save(self, path, text)

    monkeypatch.setattr(Landmarks, "save", slow)
    judge(tmp_path / "out", items)
    assert not (tmp_path / "out/pictures/Müller.txt").exists()
    assert "Müller.png" not in rows(tmp_path / "out")


def test_a_file_that_is_away_keeps_its_result(items: Items, tmp_path: Path) -> None:
    judge(tmp_path / "out", items)
    before = files(tmp_path / "out")
    (tmp_path / "in").rename(tmp_path / "away")
    left = writer_of(tmp_path / "out", items, True).remaining(2)
    assert [item["image"] for item in left] == [items[0]["image"]]
    (tmp_path / "away").rename(tmp_path / "in")
    judge(tmp_path / "out", items, resume=True)
    assert files(tmp_path / "out") == before


def test_what_could_not_be_opened_is_tried_again(items: Items, tmp_path: Path) -> None:
    writer = writer_of(tmp_path / "out", items)
    data = batches(indexed_images(items))
    data[1]["rejected"] = ["", f"{items[3]['image']}: cannot be opened (Stale file handle)"]
    engine_of(writer).run(data)
    assert judge(tmp_path / "out", items, resume=True) == [3]


def test_a_list_may_grow_and_shrink(items: Items, tmp_path: Path) -> None:
    judge(tmp_path / "out", items[:5])
    assert judge(tmp_path / "out", [items[0], *items[4:]], resume=True) == [5, 6, 7]
    judge(tmp_path / "whole", items)
    assert rows(tmp_path / "out") == rows(tmp_path / "whole")
    assert rows(tmp_path / "out", "rejected.csv") == rows(tmp_path / "whole", "rejected.csv")


@pytest.mark.parametrize(
    ("other", "named"), [({"shift": 0.3}, "weights"), ({"window": 7}, "settings")]
)
def test_other_weights_and_settings_are_refused(
    items: Items, tmp_path: Path, other: dict[str, Any], named: str
) -> None:
    judge(tmp_path / "out", items[:6])
    before = files(tmp_path / "out")
    with pytest.raises(ValueError, match=f"other {named}: .*without resume"):
        judge(tmp_path / "out", items, resume=True, **other)
    assert files(tmp_path / "out") == before


def test_a_new_run_does_not_replace_another_one(items: Items, tmp_path: Path) -> None:
    writer = writer_of(tmp_path / "out", items)
    with pytest.raises(KeyError):
        engine_of(writer).run([*batches(indexed_images(items))[:2], {"nothing": 1}])
    before = (tmp_path / "out/resume.jsonl").read_bytes()
    with pytest.raises(FileExistsError, match="resume"):
        judge(tmp_path / "out", items)
    assert (tmp_path / "out/resume.jsonl").read_bytes() == before
    assert judge(tmp_path / "out", items, resume=True)[-1] == 7


def test_a_batch_is_recorded_when_its_files_are_complete(
    items: Items, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before outlive an error."""
    save = Landmarks.save

    def full(self: Landmarks, path: Path, text: str) -> Path:
        if path.name == "Müller.txt":
            raise OSError("no room")
        return save(self, path, text)

    with monkeypatch.context() as patch:
        patch.setattr(Landmarks, "save", full)
        with pytest.raises(OSError, match="no room"):
            judge(tmp_path / "out", items)
    assert judge(tmp_path / "out", items, resume=True) == list(range(2, 8))


def test_results_are_named_as_those_of_the_first_files(tmp_path: Path) -> None:
    """Else a file in another folder would change the names of all pictures."""
    first = image_files(tmp_path / "in")
    judge(tmp_path / "out", first)
    (tmp_path / "a.png").write_bytes(b"a")
    writer = writer_of(tmp_path / "out", [*first, {"image": str(tmp_path / "a.png")}], True)
    engine_of(writer).run(batches(writer.remaining(2)))
    assert writer.root == str(tmp_path / "in")
