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


def test_target_is_untouched_until_the_end(tmp_path: Path) -> None:
    target = tmp_path / "note.txt"
    target.write_text("old")
    with atomic_path(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_leaves_the_old_file_alone(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "note.txt"
    target.write_text("old")

    def write_half() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("ne")
            raise error

    with pytest.raises(error):
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


@pytest.mark.parametrize("below", ["", "models"])
def test_unwritable_folders_are_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    folder = tmp_path / "file" / below
    with pytest.raises(OSError, match="another output folder") as caught:
        check_writable(folder)
    assert str(folder) in str(caught.value)
    assert (tmp_path / "file").read_text() == "not a folder"
    with pytest.raises(OSError, match="another folder by --cache_dir"):
        check_writable(folder, option="--cache_dir")


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind the superuser"
)
def test_folders_without_permission_are_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(OSError, match="cannot write to"):
            check_writable(tmp_path)
    finally:
        tmp_path.chmod(0o700)


# ---- names of output files


@pytest.mark.usefixtures("another_drive")
def test_a_path_on_another_drive_is_absolute() -> None:
    assert path_from("/data/images/a b.png", "/lists") == "/data/images/a b.png"
    assert common_folder(["/data/a/1.png", "/data/b/2.png"]) == ""


def test_the_folder_of_one_file_is_its_own() -> None:
    assert common_folder(["/data/a/1.png"]) == "/data/a"
    assert common_folder([]) == ""
    assert path_from("/data/a/1.png", common_folder([])) == "/data/a/1.png"
