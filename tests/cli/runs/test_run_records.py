# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The newest run is the one whose record says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from monai_afire.apps.runs.running import finish_run
from monai_afire_cli.runs.run_records import (
    LATEST,
    begin_again,
    begin_run,
    newest_run,
    read_record,
    run_folders,
)


def recorded(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "run.json").write_text(text)
    return folder


def anything(_: Path) -> bool:
    return True


def test_a_run_that_starts_again_is_the_newest(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        begin_run(tmp_path / name, {"step": "train"})
    finish_run(tmp_path / "a")
    begin_again(tmp_path / "a")
    os.utime(tmp_path / "a" / "run.json", (1, 1))
    assert newest_run(tmp_path, anything) == tmp_path / "a"
    assert newest_run(tmp_path, lambda folder: folder.name != "a") == tmp_path / "b"
    assert newest_run(tmp_path, lambda _: False) is None
    assert (tmp_path / LATEST).resolve() == tmp_path / "a"
    record = read_record(tmp_path / "a")
    assert (record["step"], record["finished"]) == ("train", False)


def test_what_leads_to_a_run_and_what_has_no_record_are_no_runs(tmp_path: Path) -> None:
    run = recorded(tmp_path / "b", '{"step": "train", "started": "2026-01-01T00:00:00+00:00"}')
    (tmp_path / LATEST).symlink_to("b")
    (tmp_path / "z").mkdir()
    assert run_folders(tmp_path) == [run]


@pytest.mark.parametrize("text", ["", "{", "[]", '"train"', '{"started": 3}', '{"started": null}'])
def test_a_damaged_record_is_that_of_no_newest_run(tmp_path: Path, text: str) -> None:
    recorded(tmp_path / "z", text)
    assert isinstance(read_record(tmp_path / "z"), dict)
    good = recorded(tmp_path / "a", '{"step": "train", "started": "2026-01-01T00:00:00+00:00"}')
    assert newest_run(tmp_path, anything) == good
