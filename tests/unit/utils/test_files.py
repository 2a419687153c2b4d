# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Files are complete or absent, and stay where they belong."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from monai_afire.utils.files import (
    atomic_path,
    check_writable,
    common_folder,
    path_from,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_new_content_replaces_the_old(tmp_path: Path) -> None:
    target = tmp_path / "some" / "folder" / "note.txt"
    for text in ("first", "second"):
        with atomic_path(str(target)) as temporary:
            temporary.write_text(text)
            assert temporary.parent == target.parent  # a rename across file systems is not atomic
        assert target.read_text() == text
        assert names(target.parent) == ["note.txt"]


def test_an_interruption_leaves_the_old_file_alone(tmp_path: Path) -> None:
    target = tmp_path / "note.txt"
    target.write_text("old")

    def write_half() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("ne")
            assert target.read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["note.txt"]


def test_content_is_flushed_to_disk_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    replace = Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: events.append("flush"))

    def recorded_replace(self: Path, target: Path) -> Path:
        events.append("rename")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", recorded_replace)
    with atomic_path(tmp_path / "note.txt") as temporary:
        temporary.write_text("text")
    assert events == ["flush", "rename"]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX systems")
def test_others_may_read_the_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic_path(tmp_path / "note.txt") as temporary:
            temporary.write_text("text")
    finally:
        assert os.umask(before) == 0o027  # left as it was
    assert stat.S_IMODE((tmp_path / "note.txt").stat().st_mode) == 0o640


def test_unwritable_folders_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match=r"models.*--cache_dir"):
        check_writable(tmp_path / "file" / "models", option="--cache_dir")
    assert (tmp_path / "file").read_text() == "not a folder"


# ---- names of output files


@pytest.mark.usefixtures("another_drive")
def test_a_path_on_another_drive_is_absolute() -> None:
    assert path_from("/data/images/a b.png", "/lists") == "/data/images/a b.png"
    assert common_folder(["/data/a/1.png", "/data/b/2.png"]) == ""
