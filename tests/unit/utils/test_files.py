# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Files are complete or absent, and stay where they belong."""

from __future__ import annotations

import json
import os
import stat
import unicodedata
from pathlib import Path

import pytest

from monai_afire.data import DatalistError, load_radiograph_datalist
from monai_afire.utils.files import atomic_path, check_writable, spelling_on_disk


def write(path: Path, text: str, is_interrupted: bool = False) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text)
        assert temporary.parent == path.parent  # a rename across file systems is not atomic
        inode = temporary.stat().st_ino
        if is_interrupted:
            raise KeyboardInterrupt
    assert path.stat().st_ino == inode, "renamed, not copied"


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "some" / "folder" / "note.txt"
    for text in ("first", "second"):
        write(target, text)
        assert target.read_text() == text
    with pytest.raises(KeyboardInterrupt):
        write(target, "hal", is_interrupted=True)
    assert target.read_text() == "second"
    assert list(target.parent.iterdir()) == [target]


def test_content_is_flushed_to_disk_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda _: flushed.append((tmp_path / "note.txt").exists()))
    write(tmp_path / "note.txt", "text")
    assert flushed == [False]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX systems")
def test_others_may_read_the_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "note.txt", "text")
    finally:
        assert os.umask(before) == 0o027  # left as it was
    assert stat.S_IMODE((tmp_path / "note.txt").stat().st_mode) == 0o640


def test_unwritable_folders_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match="--cache_dir"):
        check_writable(tmp_path / "file" / "models", option="--cache_dir")
    assert (tmp_path / "file").read_text() == "not a folder"


# ---- names as other systems spell them: letters that macOS takes apart, backslashes of Windows


def listed(folder: Path, name: str, on_disk: str) -> Path:
    """A list that names an image otherwise than the disk does."""
    (folder / on_disk).parent.mkdir()
    (folder / on_disk).touch()
    (folder / "list.json").write_text(json.dumps({"test": [name]}))
    return folder / "list.json"


@pytest.mark.parametrize(("form", "there"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_another_form_is_named(tmp_path: Path, form: str, there: str) -> None:
    name, on_disk = (unicodedata.normalize(each, "é/Ångström.png") for each in (form, there))
    with pytest.raises(DatalistError, match=there):
        load_radiograph_datalist(datalist=listed(tmp_path, name, on_disk), section="test")


@pytest.mark.skipif(os.sep != "/", reason="backslashes separate folders on this system")
def test_backslashes_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatalistError, match="backslashes"):
        load_radiograph_datalist(datalist=listed(tmp_path, "im\\a.png", "im/a.png"), section="test")
    for name in ("a.png", "ü.png", "im\\b.png", "no/ü.png"):
        assert spelling_on_disk(tmp_path / name) == ""
