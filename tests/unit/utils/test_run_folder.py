# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A run is a folder: made once, never shared, found again to be resumed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from monai_afire.utils import run_dir


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trained(name: str, seconds: int) -> Path:
    """A run with a checkpoint, written at a time."""
    folder = Path(run_dir("afire", name))
    (folder / "models").mkdir()
    (folder / "models" / "checkpoint.pt").touch()
    os.utime(folder, (seconds, seconds))
    return folder


def test_runs_without_a_name_have_folders_of_their_own() -> None:
    folders = {run_dir("afire") for _ in range(3)}
    assert len(folders) == 3
    assert all(Path(folder).parent == Path("runs/afire") for folder in folders)


def test_a_folder_of_a_bundle_has_the_runs_of_its_name(tmp_path: Path) -> None:
    Path("runs/afire/a").mkdir(parents=True)  # left by a run that failed before it began
    assert Path(run_dir(tmp_path / "mine" / "afire", "a")) == Path("runs/afire/a")


def test_a_run_is_never_overwritten() -> None:
    trained("a", 1)
    with pytest.raises(FileExistsError, match="runs/afire/a"):
        run_dir("afire", "a")


@pytest.mark.parametrize("name", ["a/b", "..", "latest", ""])
def test_a_name_is_a_plain_one(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        run_dir("afire", name)


def test_resuming_takes_the_named_run_or_the_newest_with_a_checkpoint() -> None:
    for seconds, name in enumerate(("a", "b", "c"), 1):
        trained(name, seconds)
    Path("runs/afire/without").mkdir()
    assert Path(run_dir("afire", resume=True)).name == "c"
    assert Path(run_dir("afire", "a", resume=True)).name == "a"


@pytest.mark.parametrize("name", [None, "a"])
def test_resuming_nothing_is_refused(name: str | None) -> None:
    with pytest.raises(FileNotFoundError, match="resume"):
        run_dir("afire", name, resume=True)


def test_tracking_evaluates_a_config_twice_for_one_run() -> None:
    first = run_dir("afire", "a")
    Path(first, "config_20260101_000000.json").touch()  # by MONAI, between the two
    assert run_dir("afire", "a") == first
    Path(first, "models").mkdir()
    with pytest.raises(FileExistsError):
        run_dir("afire", "a")
