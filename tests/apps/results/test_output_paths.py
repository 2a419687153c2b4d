# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Where the results of an image are written: within the folder, and never two in one place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monai_afire.apps.results.output_paths import output_path
from monai_afire.utils.files import atomic_path


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
    "/data/a\nb\r\t\x00\x1b[31m.png",
    "/data/" + "a" * 300 + ".png",
    "/data/" + "x" * 300 + "/" + "y" * 300,
    '/data/<>:"|?*\\.dcm',
    "/data/\udcff\udc80.png",
    "/data/ends with a dot./and a blank ",
    "/data/...",
    "/data",
    "",
]


@pytest.mark.parametrize("root", ["/data", "/", "/elsewhere/data"])
def test_outputs_never_leave_their_folder(tmp_path: Path, root: str) -> None:
    out = tmp_path / "out"
    paths = {output_path(out, source, root, ".nii.gz") for source in HOSTILE}
    for path in paths:
        assert out in path.parents
        assert ".." not in path.parts
        assert path.name.endswith(".nii.gz")
        assert portable(path.relative_to(out))
        with atomic_path(path) as temporary:  # the name fits even while it is being written
            temporary.write_text("text")
    assert {found for found in tmp_path.rglob("*") if found.is_file()} == paths


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    out, outside = tmp_path / "out", tmp_path / "outside"
    out.mkdir()
    outside.mkdir()
    (out / "day 1").symlink_to(outside)
    (out / "a.png.csv").symlink_to(outside / "a.png.csv")
    for source in ("/data/day 1/a.png", "/data/day 1/deep/er/a.png", "/data/a.png"):
        with pytest.raises(ValueError, match="link"):
            output_path(out, source, "/data", ".csv")
    assert output_path(out, "/data/day 2/a.png", "/data", ".csv").is_relative_to(out)
    (out / "inner").mkdir()
    (out / "day 3").symlink_to(out / "inner")
    assert output_path(out, "/data/day 3/a.png", "/data", ".csv") == out / "day 3" / "a.png.csv"


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


@settings(max_examples=60)
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
