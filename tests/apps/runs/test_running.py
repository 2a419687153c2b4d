# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Evaluations, analyses and fits are done once: resumed when they are complete, they compute and write nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bundles.bundle_runs import REPOSITORY_ROOT
from monai_afire.apps.runs import run_folder, run_once

from monai_afire_cli.runs.run_records import is_finished

CONFIGS = [
    json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((REPOSITORY_ROOT / "bundles").glob("*/configs/*.json"))
]
STEPS = sorted(
    {config["run_dir::step"] for config in CONFIGS if "run_once(" in str(config.get("run"))}
)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def contents(folder: Path) -> dict[Path, tuple[bytes, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_complete_run_is_left_as_it_is() -> None:
    folder = Path(run_folder("mine", "evaluation", "first"))
    done: list[str] = []
    steps = [lambda: done.append("compute"), lambda: (folder / "metrics.json").write_text("{}")]
    run_once(folder, *steps)
    assert (done, is_finished(folder)) == (["compute"], True)
    Path(run_folder("mine", "evaluation", "second"), "note.txt").touch()
    before = contents(Path("runs"))
    run_once(run_folder("mine", "evaluation", "first", resume=True), *steps)
    assert done == ["compute"]
    assert contents(Path("runs")) == before


def test_a_run_that_failed_begins_again_and_is_the_newest() -> None:
    folder = Path(run_folder("mine", "evaluation", "first"))
    (folder / "part.csv").touch()
    Path(run_folder("mine", "evaluation", "second"), "note.txt").touch()
    with pytest.raises(ZeroDivisionError):
        run_once(folder, lambda: 1 / 0)
    assert not is_finished(folder)
    done: list[str] = []
    run_once(folder, lambda: done.append("again"))
    assert (done, is_finished(folder)) == (["again"], True)
    assert Path("runs/mine/latest").resolve() == folder.resolve()


@pytest.mark.parametrize("step", STEPS)
def test_results_of_other_images_are_not_taken_for_those_of_this_command(step: str) -> None:
    folder = Path(run_folder("mine", step, "first", images=["ward_a", None]))
    run_once(folder, lambda: (folder / "metrics.json").touch())
    assert Path(run_folder("mine", step, "first", True, ["ward_a", None])) == folder
    with pytest.raises(ValueError, match=r"first.*ward_a.*--name"):
        run_folder("mine", step, "first", True, ["ward_b", None])


def test_the_steps_that_are_done_once_are_known() -> None:
    assert STEPS == ["analysis", "evaluation", "fit"]
