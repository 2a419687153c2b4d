# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""One run, one folder: named or by time, never shared, found again by name, by time, and by what is in it."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from bundles.bundle_runs import environment
from monai_afire.apps.runs import check_folders, run_folder, run_weights
from monai_afire.apps.runs.run_folder import run_name, stopped_run
from monai_afire.apps.runs.running import finish_run
from monai_afire.networks.weights.released_files import weights_file
from torch import nn

from monai_afire.data.datalist.image_list import image_fingerprint
from monai_afire.networks import save_network
from monai_afire_cli.runs.run_records import begin_again


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(name: str | None = None, task: str = "classifier", step: str = "train") -> Path:
    """A run that has saved weights and can be resumed."""
    folder = Path(run_folder("bundles/mine", step, name))
    save_network(nn.Linear(1, 1), folder / "models/model.pt", {"task": task})
    torch.save({}, folder / "models/checkpoint.pt")
    return folder


def go_on(folder: Path) -> Path:
    """What a training does with the folder that it resumes."""
    check_folders(str(folder), str(folder / "models"), resume=True)
    begin_again(folder)
    return folder


def test_runs_have_the_name_given_or_the_time_and_the_last_one_is_found() -> None:
    first = Path(run_folder("bundles/mine", "train", "hospital_a"))
    assert first == Path("runs/mine/hospital_a")
    (first / "note.txt").write_text("")
    second = Path(run_folder("mine", "train"))
    (second / "note.txt").write_text("")
    third = Path(run_folder("mine", "train"))
    assert len({first, second, third}) == 3
    assert Path("runs/mine/latest").is_symlink()
    assert Path("runs/mine/latest").resolve() == third.resolve()
    assert not Path("runs/mine/latest").readlink().is_absolute()


def test_without_links_a_text_names_the_last_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("a required privilege is not held by the client")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    folder = train()
    assert Path("runs/mine/latest").read_text().strip() == folder.name
    assert run_weights("latest", "mine") == str(folder / "models/model.pt")
    assert stopped_run("mine", "train") == folder


def test_a_copy_that_followed_the_link_is_no_run(caplog: pytest.LogCaptureFixture) -> None:
    first = train()
    Path("runs/mine/latest").unlink()
    shutil.copytree(first, "runs/mine/latest")
    assert stopped_run("mine", "train") == first
    second = train()
    assert "latest is a folder" in caplog.text
    assert stopped_run("mine", "train") == second


@pytest.mark.parametrize("name", ["latest", "data", "a/b", "..", ".", "", "/tmp"])
def test_names_that_are_no_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--name"):
        run_folder("mine", "train", name)
    assert list(tmp_path.iterdir()) == []


def test_a_name_is_given_once() -> None:
    train("hospital_a")
    with pytest.raises(FileExistsError, match=r"hospital_a already.*--resume True"):
        run_folder("mine", "train", "hospital_a")


@pytest.mark.parametrize("saved", ["scores.csv", "parts/0a1b.pt"])
@pytest.mark.parametrize("resume", [True, "true", "True"])
def test_a_stopped_run_goes_on_in_its_folder(resume: bool | str, saved: str) -> None:
    named, last = train("hospital_a"), train()
    failed = Path(run_folder("mine", "train"))  # before it had saved anything
    (failed / "events").touch()
    inferred = Path(run_folder("mine", "inference"))
    (inferred / saved).parent.mkdir(exist_ok=True)
    (inferred / saved).touch()
    assert go_on(Path(run_folder("mine", "train", resume=resume))) == last
    assert Path("runs/mine/latest").resolve() == last.resolve()
    assert Path(run_folder("mine", "train", "hospital_a", resume)) == named
    assert Path(run_folder("mine", "inference", None, resume)) == inferred
    with pytest.raises(ValueError, match="is a run of train, not of inference"):
        run_folder("mine", "inference", "hospital_a", resume)
    new = Path(run_folder("mine", "train", "hospital_b", resume))
    assert new == Path("runs/mine/hospital_b")


@pytest.mark.filterwarnings("ignore:.* leads to a run without weights")
def test_latest_is_by_the_records_whatever_the_times_of_the_files_are() -> None:
    first, second = train(), train()
    os.utime(second / "models/model.pt", (1, 1))
    os.utime(second / "run.json", (1, 1))
    newest = (second / "models/model.pt").resolve()
    Path(run_folder("mine", "inference"), "scores.csv").touch()  # latest leads here
    assert Path(run_weights("latest", "mine") or "").resolve() == newest
    assert weights_file("runs/mine/latest").resolve() == newest
    assert stopped_run("mine", "train") == second
    # who goes on with the first makes it the last
    assert go_on(Path(run_folder("mine", "train", first.name, resume=True))) == first
    newest = (first / "models/model.pt").resolve()
    assert Path(run_weights("latest", "mine") or "").resolve() == newest
    assert weights_file("runs/mine/latest").resolve() == newest
    assert stopped_run("mine", "train") == first


def started(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """Let the process be one that MONAI's command has started."""
    program = "/site/monai/bundle/__main__.py"
    monkeypatch.setattr(sys, "argv", [program, "run", "--config_file", "train.json", *words])


def train_on(folder: str | None, name: str | None = None) -> Path:
    run = Path(run_folder("mine", "train", name, images=[folder, None]))
    (run / "models").mkdir()
    (run / "models/checkpoint.pt").touch()
    return run


def test_without_a_name_the_run_of_the_same_images_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, other, phantom = train_on("a"), train_on("b"), train_on(None)
    for folder, run in (
        (str(tmp_path / "a"), first),
        ("b/", other),
        (None, phantom),
        ("", phantom),
    ):
        assert stopped_run("mine", "train", None, [folder, None]) == run
    newer = train_on("a")
    assert stopped_run("mine", "train", None, ["a", None]) == newer
    finish_run(newer)
    assert stopped_run("mine", "train", None, ["a", None]) == first  # the one that is not complete
    finish_run(first)
    assert stopped_run("mine", "train", None, ["a", None]) == newer
    begin_again(first)
    assert stopped_run("mine", "train", None, ["a", None]) == first


def score_on(folder: str) -> Path:
    run = Path(run_folder("mine", "inference", images=[folder, None], resume=True))
    (run / "scores.csv").touch()
    return run


def test_a_complete_scoring_does_not_go_on_unless_by_its_name() -> None:
    first = score_on("a")
    assert score_on("a") == first, "not complete"
    finish_run(first)
    second = score_on("a")
    assert second != first
    finish_run(second)
    assert score_on("b") not in (first, second), "nor is it one of those that could go on"
    assert stopped_run("mine", "inference", first.name, ["a", None]) == first


def test_without_a_name_the_run_of_the_same_options_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started(monkeypatch, "--seed", "1", "--epochs", "9")
    first = train_on("a")
    started(monkeypatch, "--seed", "2", "--name", "b")
    second = train_on("a", "b")
    started(monkeypatch, "--seed", "1", "--epochs", "20", "--device", "cpu", "--resume", "True")
    assert stopped_run("mine", "train", None, ["a", None]) == first
    started(monkeypatch, "--seed", "2", "--resume", "True")
    assert stopped_run("mine", "train", None, ["a", None]) == second
    started(monkeypatch, "--seed", "3", "--resume", "True")
    with pytest.raises(ValueError, match="--name b"):
        stopped_run("mine", "train", None, ["a", None])
    monkeypatch.setattr(sys, "argv", ["my_program.py"])  # has no options to compare
    assert stopped_run("mine", "train", None, ["a", None]) == second


def test_runs_of_other_images_are_listed_by_name(tmp_path: Path) -> None:
    first, named = train_on("a"), train_on("b", "ward 3")
    with pytest.raises(ValueError, match="--resume True: no run") as caught:
        run_folder("mine", "train", resume=True, images=["c", None])
    lines = str(caught.value).splitlines()[1:]
    assert lines[0].startswith("  --name 'ward 3' (")
    assert str(tmp_path / "b") in lines[0]
    assert lines[1].startswith(f"  --name {first.name} (")
    assert str(tmp_path / "a") in lines[1]
    assert {path.name for path in Path("runs/mine").iterdir()} == {first.name, named.name, "latest"}
    # no run at all: a new one
    assert Path(run_folder("mine", "fit", resume=True, images=["c", None])).is_dir()


def test_a_folder_of_results_has_no_name(tmp_path: Path) -> None:
    run = train_on("a")
    assert run_name(run) == run.name
    assert run_name(tmp_path) is None
    finish_run(tmp_path)
    assert not (tmp_path / "run.json").exists()


def test_false_on_the_command_line_resumes_nothing() -> None:
    last = train()
    assert Path(run_folder("mine", "train", resume="false")) != last


@pytest.mark.parametrize("name", [None, "b"])
def test_a_run_that_is_not_there_to_resume_is_said_to_be_new(
    name: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Path(run_folder("mine", "train", name, resume=True))
    [said] = caplog.messages
    assert str(folder.parent.absolute()) in said
    assert name is None or f"no run {name}" in said
    with caplog.at_level(logging.INFO):
        assert Path(run_folder("mine", "train", name, resume=True)) == folder
    assert caplog.messages == [said], "MONAI's tracking evaluates a config twice"
    (folder / "parts").mkdir()
    (folder / "parts/0.pt").touch()
    caplog.clear()
    assert Path(run_folder("mine", "train", name, resume=True)) == folder
    assert not [text for text in caplog.messages if "new one" in text]
    run_folder("mine", "train", "other")
    assert not [text for text in caplog.messages if "new one" in text]


def test_a_config_that_is_evaluated_twice_has_one_run() -> None:
    """As MONAI's tracking does, which writes the config first."""
    first = Path(run_folder("mine", "train", "a"))
    (first / "config_20260101_000000.json").touch()
    assert Path(run_folder("mine", "train", "a")) == first
    (first / "events.out.tfevents.1").touch()
    with pytest.raises(FileExistsError):
        run_folder("mine", "train", "a")


def test_weights_of_a_run_by_name_by_folder_and_the_latest_that_fit() -> None:
    pretrained = train("first", task="pre-trained AFiRe network")
    detector = train("second", task="anomaly detector")
    Path(run_folder("mine", "inference"), "scores.csv").touch()
    for run, task, folder in (
        ("latest", None, detector),
        ("latest", "anomaly detector", detector),
        ("latest", "pre-trained AFiRe network", pretrained),
        ("first", "anomaly detector", pretrained),
        ("runs/mine/first", None, pretrained),
        (str(pretrained.absolute() / "models/model.pt"), None, pretrained),
    ):
        found = run_weights(run, "bundles/mine", task, otherwise="shipped.pt")
        assert found is not None
        assert Path(found).resolve() == (folder / "models/model.pt").resolve(), run
    assert run_weights(None, "mine", otherwise="shipped.pt") == "shipped.pt"


@pytest.mark.parametrize(("run", "task"), [("third", None), ("latest", "segmenter")])
def test_a_run_that_is_not_there_is_named_with_those_that_are(run: str, task: str | None) -> None:
    train("first")
    train("second")
    with pytest.raises(FileNotFoundError, match=rf"--weights_of {run}.*second, first"):
        run_weights(run, "mine", task)


def test_no_run_with_fitting_weights_names_what_trains_them() -> None:
    train("first", task="pre-trained AFiRe network")
    with pytest.raises(FileNotFoundError, match=r"latest: .*have: first.*train.*finetune_anomaly"):
        run_weights("latest", "mine", "anomaly detector")
    with pytest.raises(FileNotFoundError, match=r"is a folder of runs; take runs/mine/latest"):
        run_weights("runs/mine", "mine")


@pytest.mark.slow
def test_two_processes_never_share_a_folder(tmp_path: Path) -> None:
    script = (
        "import sys; sys.stdin.readline(); from monai_afire.apps.runs import run_folder\n"
        "folder = run_folder('mine', 'train'); print(folder); open(folder + '/note.txt', 'w')"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
            cwd=tmp_path,
        )
        for _ in range(2)
    ]
    folders = [process.communicate("\n", timeout=300)[0].strip() for process in processes]
    assert len(set(folders)) == 2, folders
    assert all(Path(folder, "run.json").is_file() for folder in folders)


@pytest.mark.slow
def test_a_run_that_failed_before_it_began_leaves_its_name_free(tmp_path: Path) -> None:
    before = train("before")
    script = "from monai_afire.apps.runs import run_folder; run_folder('mine', 'train', 'a'); raise SystemExit(1)"
    command = [sys.executable, "-c", script]
    for _ in range(2):
        assert subprocess.run(command, env=environment(), cwd=tmp_path).returncode == 1
        assert not Path("runs/mine/a").exists()
        assert Path("runs/mine/latest").resolve() == before.resolve()
    shutil.rmtree(before)
    subprocess.run(command, env=environment(), cwd=tmp_path)
    assert list(Path("runs/mine").iterdir()) == []
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run(command, env=environment(), cwd=elsewhere)
    assert list(elsewhere.iterdir()) == []


def test_a_launched_process_waits_for_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(RuntimeError, match="--output_dir"):
        run_folder("mine", "train")


@pytest.mark.parametrize("name", ["events.out.tfevents.1.host", "models/model.pt"])
def test_folders_with_another_run_are_refused_unless_it_goes_on(tmp_path: Path, name: str) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / name).touch()
    with pytest.raises(FileExistsError, match="is of another run"):
        check_folders(str(tmp_path), str(tmp_path / "models"))
    check_folders(str(tmp_path), str(tmp_path / "models"), resume=True)
    check_folders(str(tmp_path / "new"), str(tmp_path / "new/models"))


def test_a_checkpoint_of_other_images_is_refused_before_the_folder_is_touched(
    tmp_path: Path,
) -> None:
    models = tmp_path / "models"
    items = [{"image": str(tmp_path / f"{number}.png")} for number in range(3)]
    models.mkdir()
    torch.save({"images": image_fingerprint(items)}, models / "checkpoint.pt")
    check_folders(str(tmp_path), str(models), True, items)
    with pytest.raises(RuntimeError, match="1 training images now, 3 in that run"):
        check_folders(str(tmp_path / "new"), str(models), True, items[:1])
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_no_empty_folder_stays_of_a_run_that_failed_before_it_began(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; from monai_afire.apps.runs import check_folders\n"
        "check_folders('a/b', 'a/b/models'); check_folders('c', 'c/models')\n"
        "Path('c/note.txt').touch(); raise SystemExit(1)"
    )
    (tmp_path / "a").mkdir()
    subprocess.run([sys.executable, "-c", script], env=environment(), cwd=tmp_path)
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert found == {"a", "c", "c/note.txt"}


def test_a_run_of_other_images_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    older = Path(run_folder("afire", "train", "a", images=["a", None]))
    newer = Path(run_folder("afire", "train", "b", images=["b", None]))
    (older / "models").mkdir()
    (older / "models/checkpoint.pt").touch()
    before = (older / "run.json").read_bytes()
    assert Path(run_folder("afire", "train", "a", True, ["b", None])) == older
    assert (older / "run.json").read_bytes() == before
    assert (Path("runs/afire/latest")).resolve() == newer.resolve()


def test_a_run_without_weights_is_named_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    restored, trained = (
        Path(run_folder("afire", "restore", "r")),
        Path(run_folder("afire", "train", "t")),
    )
    (trained / "models").mkdir()
    (trained / "models" / "model.pt").touch()
    assert run_weights("t", "afire") == str(Path("runs/afire/t/models/model.pt"))
    with pytest.raises(FileNotFoundError, match=r"'restore'.*no weights.*runs/afire: t$"):
        run_weights(restored.name, "afire")
    with pytest.raises(FileNotFoundError, match=r"'restore'.*no weights"):
        run_weights(str(restored.absolute()), "mine")


def test_clients_of_a_federation_in_one_process_have_each_their_own_folder() -> None:
    """Both are prepared before either has written anything; MONAI's tracking asks twice for the same."""
    first, second = (run_folder(f"client_{number}/bundles/mine", "train") for number in range(2))
    assert first != second
    assert run_folder("client_1/bundles/mine", "train") == second
    assert run_folder("client_1/bundles/mine", "train", images=["other"]) != second
