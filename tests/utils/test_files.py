# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Files are complete or absent, and stay where they belong."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monai_afire.utils.files import (
    atomic_path,
    check_writable,
    common_folder,
    output_path,
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


def test_writable_folders_are_made_and_left_empty(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert check_writable(str(folder)) == folder
    assert check_writable(folder) == folder
    assert names(folder) == []


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


def portable(path: Path) -> bool:
    """Can each part be written on the usual file systems, and be copied to the others?"""
    forbidden = set('<>:"|?*\\\x7f') | {chr(code) for code in range(32)}
    parts = path.parts
    fits = all(len(part.encode()) <= 200 for part in parts)  # UnicodeEncodeError on surrogates
    return fits and not any(set(part) & forbidden or part.endswith((".", " ")) for part in parts)


HOSTILE = [
    "../../etc/passwd",
    "/etc/passwd",
    "/data/../etc/passwd",
    "/data/./../../../../root/.ssh/authorized_keys",
    "//etc/passwd",
    "/data/a\nb\r\t\x00\x1b[31m.png",
    "/data/" + "a" * 300 + ".png",
    "/data/" + "x" * 300 + "/" + "y" * 300,
    "/data/" + "肺" * 85,
    "/data/" + "🫁" * 63,
    '/data/<>:"|?*\\.dcm',
    "/data/C:\\Windows\\system32\\a.dll",
    "/data/\udcff\udc80.png",
    "/data/\ud800.png",
    "/data/Thorax für Müller 胸部.dcm",
    "/data/ends with a dot./and a blank ",
    "/data/...",
    "/data/ ",
    "/data",
    "/",
    "",
]


@pytest.mark.parametrize("source", HOSTILE)
@pytest.mark.parametrize("root", ["/data", "/", "/elsewhere/data"])
def test_outputs_never_leave_their_folder(tmp_path: Path, source: str, root: str) -> None:
    out = tmp_path / "out"
    path = output_path(out, source, root, ".nii.gz")
    assert out in path.parents
    assert ".." not in path.parts
    assert path.name.endswith(".nii.gz")
    assert portable(path.relative_to(out))
    with atomic_path(path) as temporary:  # the name fits even while it is being written
        temporary.write_text("text")
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [path]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("/data/a.dcm", "a.dcm.png"),
        ("/data/day 1/a.dcm", "day 1/a.dcm.png"),
        ("/data/IM-0001", "IM-0001.png"),
        ("/data/x/../y/a.png", "y/a.png"),
        ("/data/Müller/胸部.png", "Müller/胸部.png"),
        ("/data/.hidden/..a", ".hidden/..a.png"),
        ("/data/study_20240131/1.2.840.10008", "study_20240131/1.2.840.10008.png"),
    ],
)
def test_harmless_names_are_kept(source: str, expected: str) -> None:
    assert output_path("out", source, "/data", ".png").as_posix() == f"out/{expected}"
    assert (
        output_path(Path("out"), Path(source), Path("/data/"), ".png").as_posix()
        == f"out/{expected}"
    )


def test_names_with_and_without_the_extension_have_outputs_of_their_own(tmp_path: Path) -> None:
    """As exports have it that put a preview beside a DICOM file without extension."""
    for name in ("IM-1", "IM-1.jpg", "IM-2.jpg", "b.JPG"):
        (tmp_path / name).touch()

    def outputs(folder: str, suffix: str = ".jpg") -> list[str]:
        names = ("IM-1", "IM-1.jpg", "IM-2.jpg", "b.JPG", "b")
        paths = [output_path(tmp_path / folder, tmp_path / n, tmp_path, suffix) for n in names]
        assert not {str(path) for path in paths} & {str(tmp_path / name) for name in names}
        return [path.name for path in paths]

    assert outputs("out") == ["IM-1.jpg", "IM-1.jpg.jpg", "IM-2.jpg", "b.JPG.jpg", "b.jpg"]
    assert outputs("out", "_new.jpg")[2] == "IM-2_new.jpg"
    # in the place of the sources themselves
    beside = output_path(tmp_path, tmp_path / "IM-2.jpg", tmp_path, ".jpg")
    assert beside.name == "IM-2.jpg.jpg"


def test_relative_names_start_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert output_path("out", "images/a.png", "images", ".npz") == Path("out/a.png.npz")
    assert output_path("out", tmp_path / "images" / "a.png", ".", ".npz") == Path(
        "out/images/a.png.npz"
    )


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    out, outside = tmp_path / "out", tmp_path / "outside"
    out.mkdir()
    outside.mkdir()
    (out / "day 1").symlink_to(outside)
    (out / "a.png.csv").symlink_to(outside / "a.png.csv")
    for source in ("/data/day 1/a.png", "/data/day 1/deep/er/a.png", "/data/a.png"):
        with pytest.raises(ValueError, match="by a link: choose an empty output folder"):
            output_path(out, source, "/data", ".csv")
    assert output_path(out, "/data/day 2/a.png", "/data", ".csv").is_relative_to(out)
    (out / "inner").mkdir()
    (out / "day 3").symlink_to(out / "inner")
    assert output_path(out, "/data/day 3/a.png", "/data", ".csv") == out / "day 3" / "a.png.csv"


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    assert (
        output_path(tmp_path / "out", "/data/a.png", "/data", ".csv")
        == tmp_path / "out" / "a.png.csv"
    )


def test_a_path_within_a_folder_is_relative() -> None:
    assert path_from("/data/images/a b.png", "/data") == "images/a b.png"


@pytest.mark.usefixtures("another_drive")
def test_a_path_on_another_drive_is_absolute() -> None:
    assert path_from("/data/images/a b.png", "/lists") == "/data/images/a b.png"
    assert common_folder(["/data/a/1.png", "/data/b/2.png"]) == ""


def test_the_folder_of_one_file_is_its_own() -> None:
    assert common_folder(["/data/a/1.png"]) == "/data/a"
    assert common_folder([]) == ""
    assert path_from("/data/a/1.png", common_folder([])) == "/data/a/1.png"


# few different characters, so that replaced and cut names come close to each other
characters = st.sampled_from(
    ["a", "_", "?", "*", ":", "~", ".", " ", "ü", "\n", "\udcff", "\udcfe", "\ud800"]
)
file_names = st.text(characters, min_size=1, max_size=4).filter(
    lambda name: name not in (".", "..")
)
long_names = st.tuples(st.sampled_from(["a", "肺"]), st.integers(110, 140)).map(
    lambda drawn: drawn[0] * drawn[1]
)
paths = st.lists(file_names | long_names | st.just("elsewhere"), min_size=1, max_size=3).map(
    "/".join
)
sources = st.tuples(st.sampled_from(["/data/", "/data/x/", "/other/"]), paths).map("".join)


@settings(deadline=None, max_examples=60)
@given(st.sets(sources, min_size=2, max_size=30))
def test_two_sources_never_share_an_output(drawn: set[str]) -> None:
    outputs = {output_path("out", source, "/data", ".png") for source in drawn}
    assert len(outputs) == len(drawn)
    assert all(portable(path) for path in outputs)


@pytest.mark.parametrize("source", ["/data/a?", "/data/a./b", "/other/b", "/data/" + "a" * 300])
def test_names_that_look_changed_are_changed_themselves(source: str) -> None:
    """Whoever knows how a name is changed cannot make another file take its place."""
    written = output_path("out", source, "/data", "")
    rival = "/data/" + written.relative_to("out").as_posix()
    assert output_path("out", rival, "/data", "") != written
