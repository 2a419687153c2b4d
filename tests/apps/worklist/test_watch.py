# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The watcher of a folder: each file is scored once, whatever happens in between."""

from __future__ import annotations

import csv
import errno
import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bundles.bundle_runs import new_detector, write_images
from handlers.lock_holder import holding_process

from monai_afire.apps.runs.process_end import innermost_cause
from monai_afire.apps.worklist import watch
from monai_afire.apps.worklist.watched_normals import WatchedNormals
from monai_afire.data import DatalistError
from monai_afire.detection import AnomalyDetector
from monai_afire.networks import save_network
from monai_afire.transforms import radiograph_files
from monai_afire_cli.runs.run_records import begin_run

SMALL: dict[str, Any] = {"saved": [], "device": "cpu", "batch_size": 2}


@pytest.fixture
def detector(tmp_path: Path) -> str:
    """File of a detector that is too small to find anything."""
    network, description = new_detector(
        image_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2, device="cpu"
    )
    return str(save_network(network, tmp_path / "model.pt", description))


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detector: str) -> Callable[..., None]:
    """A watch of ``in`` that does a step at each of its pauses and is stopped after the last one."""

    def run(*steps: Callable[[], object]) -> None:
        remaining: Iterator[Callable[[], object]] = iter(steps)

        def pause(seconds: float) -> None:
            step = next(remaining, None)
            if step is None:
                raise KeyboardInterrupt
            step()

        monkeypatch.setattr(watch.time, "sleep", pause)
        (tmp_path / "in").mkdir(exist_ok=True)
        with pytest.raises(KeyboardInterrupt):
            watch.watch_folder(tmp_path / "in", tmp_path / "out", 1.0, ckpt_path=detector, **SMALL)

    return run


def scored(folder: Path, table: str = "worklist.csv") -> dict[str, list[str]]:
    """Names of the images on each batch's list."""
    batches = sorted(path for path in (folder / "out").glob("batch_*") if path.is_dir())
    return {
        batch.name: sorted(
            Path(row["image"]).name for row in csv.DictReader((batch / table).open(newline=""))
        )
        for batch in batches
    }


def nothing() -> None:
    """A pause in which nothing happens."""


def test_a_file_is_scored_when_it_has_stopped_growing(
    tmp_path: Path, look: Callable[..., None]
) -> None:
    write_images(tmp_path / "sent", 2)
    whole = (tmp_path / "sent/image_1.png").read_bytes()
    growing = tmp_path / "in/day 1/growing.png"

    def begin() -> None:
        (tmp_path / "in/whole.png").write_bytes((tmp_path / "sent/image_0.png").read_bytes())
        growing.parent.mkdir()
        growing.write_bytes(whole[:100])

    look(
        begin,
        lambda: growing.write_bytes(whole[:200]),
        lambda: growing.write_bytes(whole),
        nothing,
        nothing,
    )
    assert scored(tmp_path) == {"batch_000001": ["whole.png"], "batch_000002": ["growing.png"]}
    assert list(scored(tmp_path, "rejected.csv").values()) == [[], []]
    assert not list((tmp_path / "out").glob(".*"))

    look(nothing, nothing)  # a new start scores none again
    assert len(scored(tmp_path)) == 2
    look(nothing, lambda: growing.write_bytes(whole + b" "), nothing, nothing)
    assert scored(tmp_path)["batch_000003"] == ["growing.png"]  # another content is another arrival


def test_files_that_cannot_be_read_end_no_watch(tmp_path: Path, look: Callable[..., None]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "in/notes.txt").write_text("no image")
    look(nothing, lambda: write_images(tmp_path / "in", 1), nothing, nothing)
    assert scored(tmp_path, "rejected.csv") == {"batch_000001": ["broken.png"], "batch_000002": []}
    assert scored(tmp_path) == {"batch_000001": [], "batch_000002": ["image_0.png"]}


def test_a_remedy_names_the_folder_that_the_user_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, description = new_detector(
        image_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2, device="cpu"
    )
    phantoms = {**description, "trained_on": "phantoms"}
    path = save_network(network, tmp_path / "model.pt", phantoms)
    write_images(tmp_path / "in", 1)
    monkeypatch.setattr(watch.time, "sleep", lambda _: None)
    with pytest.raises(Exception, match="phantom") as refused:
        watch.watch_folder(tmp_path / "in", tmp_path / "out", 1.0, ckpt_path=path, **SMALL)
    said = str(innermost_cause(refused.value))
    assert f"--dataset_dir {tmp_path / 'in'}" in said
    assert ".batch_" not in said


def test_the_detector_of_a_run_is_taken_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detector: str
) -> None:
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "runs/afire/mine/models/model.pt"
    model.parent.mkdir(parents=True)
    Path(detector).rename(model)
    begin_run(model.parents[1], {"step": "anomaly"})
    taken: list[Any] = []

    def score(batch: Path, folder: Path, overrides: dict[str, Any]) -> Path:
        taken.append(overrides["ckpt_path"])
        raise KeyboardInterrupt

    write_images(tmp_path / "in", 1)
    monkeypatch.setattr(watch.time, "sleep", lambda _: None)
    monkeypatch.setattr(watch, "_score", score)
    for run in ("mine", "latest", "runs/afire/mine"):
        with pytest.raises(KeyboardInterrupt):
            watch.watch_folder("in", f"out/{len(taken)}", 1.0, weights_of=run)
    assert {Path(path).resolve() for path in taken} == {model}
    with pytest.raises(FileNotFoundError, match="no_run"):
        watch.watch_folder("in", "out", 1.0, weights_of="no_run")


def test_a_folder_that_is_away_is_waited_for(
    tmp_path: Path, look: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """A share drops out for some seconds: the watch says so once, and goes on."""
    write_images(tmp_path / "in", 1)
    there, away = tmp_path / "in", tmp_path / "away"
    look(lambda: there.rename(away), nothing, nothing, lambda: away.rename(there), nothing)
    assert scored(tmp_path) == {"batch_000001": ["image_0.png"]}
    said = capsys.readouterr().out
    assert said.count("is away") == said.count("is back") == 1


def test_a_folder_that_goes_away_while_it_is_scored(
    tmp_path: Path, look: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_images(tmp_path / "in", 2)
    there, away, score, calls = tmp_path / "in", tmp_path / "away", watch._score, iter([True])

    def drop_out(*arguments: Any) -> Path:
        if next(calls, False):
            there.rename(away)
        return score(*arguments)

    monkeypatch.setattr(watch, "_score", drop_out)
    look(nothing, lambda: away.rename(there), nothing, nothing)
    names = [name for batch in scored(tmp_path).values() for name in batch]
    assert sorted(names) == ["image_0.png", "image_1.png"]


def test_the_folder_of_results_may_be_away_for_some_time(
    tmp_path: Path,
    look: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An empty folder, such as the place where a share is mounted, is not the folder of results."""
    there, away, score, calls = tmp_path / "out", tmp_path / "away", watch._score, iter([1, 2])

    def come_back() -> None:
        there.rmdir() if not any(there.iterdir()) else there.rename(tmp_path / "below")
        away.rename(there)

    def go_away() -> None:
        there.rename(away)
        there.mkdir()

    def drop_out(*arguments: Any) -> Path:
        if next(calls, 0) == 1:
            go_away()
        return score(*arguments)

    monkeypatch.setattr(watch, "_score", drop_out)
    write_images(tmp_path / "in", 1)
    look(nothing, nothing, come_back, go_away, nothing, come_back, nothing)
    assert scored(tmp_path) == {"batch_000001": ["image_0.png"]}
    said = capsys.readouterr().out
    assert said.count(f"{there} is away") == said.count(f"{there} is back") == 2


@pytest.mark.parametrize(
    ("arrivals", "results"), [("in #1", "out #2"), ("@in", "$out"), ("%a", "1e3")]
)
def test_folders_may_have_names_that_monai_reads_as_its_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detector: str, arrivals: str, results: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / arrivals, 1)
    own = Path(detector).rename(tmp_path / "@model #1.pt")
    pauses = iter([None])

    def pause(seconds: float) -> None:
        if next(pauses, "no more") == "no more":
            raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", pause)
    with pytest.raises(KeyboardInterrupt):
        watch.watch_folder(arrivals, results, 1.0, ckpt_path=own.name, **SMALL)
    assert (tmp_path / results / "batch_000001/worklist.csv").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([own.name, arrivals, results])


def test_files_that_are_taken_away_before_they_are_scored(
    tmp_path: Path, look: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_images(tmp_path / "in", 2)
    plan = watch._plan

    def take(*arguments: Any) -> Path:
        (tmp_path / "in/image_0.png").unlink(missing_ok=True)
        return plan(*arguments)

    monkeypatch.setattr(watch, "_plan", take)
    look(nothing, lambda: write_images(tmp_path / "in", 1), nothing)
    assert scored(tmp_path) == {"batch_000001": ["image_1.png"]}


def test_files_that_could_not_be_opened_are_tried_again(
    tmp_path: Path, look: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_images(tmp_path / "in", 2)
    gone = tmp_path / "gone"
    gone.touch()

    def fail(path: Any, mode: str) -> Any:
        if gone.exists() and str(path).endswith("image_0.png"):
            raise OSError(errno.ESTALE, "Stale file handle")
        return open(path, mode)

    monkeypatch.setattr(radiograph_files, "open", fail, raising=False)
    look(nothing, gone.unlink, nothing, nothing)
    found = scored(tmp_path)
    assert found.pop("batch_000001") == ["image_1.png"]
    assert [name for names in found.values() for name in names] == ["image_0.png"]
    look(nothing, nothing)
    assert [name for names in scored(tmp_path).values() for name in names].count("image_0.png") == 1


@pytest.mark.parametrize("place", ["before scoring", "while scoring", "before it is shown"])
def test_a_batch_that_was_begun_is_completed_first(
    tmp_path: Path, look: Callable[..., None], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def stop(*arguments: Any, **others: Any) -> Any:
        raise KeyboardInterrupt

    write_images(tmp_path / "in", 5)
    with monkeypatch.context() as patched:
        if place == "before scoring":
            patched.setattr(watch, "ConfigWorkflow", stop)
        elif place == "while scoring":
            forward, calls = AnomalyDetector.forward, iter([False, True])
            patched.setattr(
                AnomalyDetector,
                "forward",
                lambda *images: stop() if next(calls) else forward(*images),
            )
        else:
            patched.setattr(Path, "rename", stop)
        look(nothing, nothing)
    assert scored(tmp_path) == {}
    begun = tmp_path / "out/.batch_000001"
    assert (begun / "datalist.json").is_file()
    rows = (
        len((begun / "scores.csv").read_text().splitlines()) - 1
        if (begun / "scores.csv").is_file()
        else 0
    )
    assert rows == {"before scoring": 0, "while scoring": 2, "before it is shown": 5}[place]
    (tmp_path / "in/late.png").write_bytes((tmp_path / "in/image_0.png").read_bytes())
    look(nothing, nothing)
    assert scored(tmp_path) == {
        "batch_000001": [f"image_{number}.png" for number in range(5)],
        "batch_000002": ["late.png"],
    }


def test_a_batch_of_other_settings_is_named(
    tmp_path: Path, look: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(**settings: Any) -> None:
        raise KeyboardInterrupt

    def refuse(*arguments: Any) -> None:
        raise RuntimeError("begun with other columns")

    write_images(tmp_path / "in", 1)
    with monkeypatch.context() as patched:
        patched.setattr(watch, "ConfigWorkflow", stop)
        look(nothing, nothing)
    monkeypatch.setattr(watch, "_score", refuse)
    with pytest.raises(
        DatalistError, match=r"\.batch_000001 cannot be completed \(begun with other .*delete this"
    ):
        watch.watch_folder(tmp_path / "in", tmp_path / "out")


def test_many_files_come_in_several_batches(
    tmp_path: Path, look: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_MOST", 2)
    write_images(tmp_path / "in", 3)
    look(nothing)
    assert [len(names) for names in scored(tmp_path).values()] == [2, 1]


def test_folders_that_cannot_be_watched_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # what it changes in a process of its own
    monkeypatch.setattr(watch.signal, "signal", lambda *arguments: None)
    monkeypatch.setattr(watch, "show_cause_last", lambda: None)
    assert watch.main([str(tmp_path), str(tmp_path / "out")]) == 1
    assert "where results would count as arrivals" in capsys.readouterr().err
    assert watch.main([str(tmp_path / "in"), str(tmp_path / "out")]) == 1
    assert "no such folder" in capsys.readouterr().err


def test_a_device_that_is_not_there_is_refused_before_a_file_arrives(
    tmp_path: Path,
) -> None:
    with pytest.raises(DatalistError, match="--device: found 'cuda:99', needs a device"):
        watch.watch_folder(tmp_path, f"{tmp_path}_out", device="cuda:99")


@pytest.mark.skipif(os.name != "posix", reason="folders are locked by POSIX")
def test_one_watch_at_a_time_writes_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    with (
        holding_process(tmp_path / "out"),
        pytest.raises(RuntimeError, match="another run is writing"),
    ):
        watch.watch_folder(tmp_path / "in", tmp_path / "out")


def watching(folder: Path, detector: str) -> None:
    """A process as the command starts it."""
    os.chdir(folder)
    output = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    words = [
        "in",
        "out",
        "--interval",
        "0.2",
        "--ckpt_path",
        detector,
        "--device",
        "cpu",
        "--saved",
        "overlays",
    ]
    raise SystemExit(watch.main(words))


@pytest.mark.slow
def test_kills_lose_no_file_and_score_none_twice(tmp_path: Path, detector: str) -> None:
    names = write_images(tmp_path / "sent", 24)
    (tmp_path / "in").mkdir()
    context, chance, killed = multiprocessing.get_context("forkserver"), random.Random(0), 0
    deadline = time.monotonic() + 300
    while len(names) > 1 and time.monotonic() < deadline:
        process = context.Process(target=watching, args=(tmp_path, detector))
        process.start()
        for name in [names.pop() for _ in range(min(len(names) - 1, 3))]:
            os.replace(tmp_path / "sent" / name, tmp_path / "in" / name)
        process.join(chance.uniform(0.5, 5.0))
        assert process.is_alive(), (tmp_path / "log.txt").read_text()[-2000:]
        process.kill()
        process.join()
        killed += 1
    process = context.Process(target=watching, args=(tmp_path, detector))
    process.start()
    os.replace(tmp_path / "sent" / names[0], tmp_path / "in" / names[0])
    while sum(map(len, scored(tmp_path).values())) < 24 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 0
    counts = Counter(name for names in scored(tmp_path).values() for name in names)
    assert killed == 8
    assert counts == {f"image_{number}.png": 1 for number in range(24)}
    assert len(list((tmp_path / "out").glob("batch_*/overlays/*.jpg"))) == 24
    assert not list((tmp_path / "out").glob(".*"))


def test_normal_images_are_scored_once_and_the_last_weeks_anew_each_day(tmp_path: Path) -> None:
    out, folder = tmp_path / "out", tmp_path / "normals"
    out.mkdir()
    write_images(folder, 3)
    old, *recent = sorted(folder.iterdir())
    os.utime(old, (0, 0))
    assert WatchedNormals(out, folder).option() == {"calibrate": str(folder)}
    watched = WatchedNormals(out, folder, weeks=2)
    [listed] = watched.option().values()
    items = json.loads(Path(listed).read_text())["training"]
    assert [item["image"] for item in items] == [str(path) for path in recent]
    (tmp_path / "batch").mkdir()
    (tmp_path / "batch/normals.safetensors").write_bytes(b"scores")
    watched.keep(tmp_path / "batch")
    kept = out / "normals.safetensors"
    assert watched.option() == {"calibrate": str(kept)}
    os.utime(kept, (1e9, 1e9))
    assert watched.option() == {"calibrate": listed}
    assert WatchedNormals(out, folder).option() == {"calibrate": str(kept)}


def test_weeks_without_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatalistError, match="needs a folder"):
        WatchedNormals(tmp_path, None, weeks=2)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatalistError, match="no image of the last 2 weeks"):
        WatchedNormals(tmp_path, tmp_path / "empty", weeks=2).option()
