# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tests of the reading of label tables."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from monai_afire.apps.readers.label_tables import (
    find_label_file,
    find_optional_file,
    read_json_array,
    read_name_list,
    read_table,
)
from monai_afire.data.datalist.loading import DatalistError

ROWS = [["a.png", "0"], ["b.png", "1"]]


def write(folder: Path, content: str | bytes, name: str = "labels.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refused(folder: Path, content: str | bytes) -> str:
    path = write(folder, content)
    with pytest.raises(DatalistError) as caught:
        read_table(path, ["image", "label"])
    assert str(path) in str(caught.value)
    return str(caught.value)


# ---- what is read


@pytest.mark.parametrize(
    "content",
    [
        "image,label\na.png,0\nb.png,1\n",
        "\ufeffimage,label\r\na.png,0\r\nb.png,1\r\n",
        "image;label\na.png;0\nb.png;1\n",
        "image\tlabel\na.png\t0\nb.png\t1",
        " image , label \n a.png , 0 \n\n b.png , 1 \n\n",
        'image,label\n"a.png",0\n"b.png","1"\n',
        "image,label,,\na.png,0,,\nb.png,1\n",
        gzip.compress(b"image,label\na.png,0\nb.png,1\n", mtime=0),
        'image;"note (site, device, room)";label\na.png;q;0\nb.png;q;1\n',
        "image;note (site, device, room);label\na.png;q;0\nb.png;q;1\n",
        'image;"note\n(a, b, ""c"", d)";label\na.png;q;0\nb.png;q;1\n',
        'image,"x;y;z;w",label\na.png,q,0\nb.png,q,1\n',
        "sep=;\nimage;label\na.png;0\nb.png;1\n",
        '\ufeff"sep=\t"\r\nimage\tlabel\r\na.png\t0\r\nb.png\t1\r\n',
        "SEP=|\nimage|label\na.png|0\nb.png|1\n",
        "image|label\na.png|0\nb.png|1\n",
    ],
    ids=[
        *(
            "plain",
            "bom_crlf",
            "semicolon",
            "tab",
            "blanks",
            "quotes",
            "nameless_columns",
            "gzip",
            "commas_in_quotes",
        ),
        *(
            "commas",
            "lines_in_quotes",
            "semicolons_in_quotes",
            "stated",
            "stated_in_quotes",
            "stated_bar",
            "bar",
        ),
    ],
)
def test_table_is_read(tmp_path: Path, content: str | bytes) -> None:
    table = read_table(write(tmp_path, content), ["image", "label"])
    assert [
        list(row) for row in zip(table.column("image"), table.column("label"), strict=True)
    ] == ROWS
    assert len(table) == 2


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    table = read_table(
        write(tmp_path, 'image,label\n\n"a\nb.png",0\n\nc.png,7\n'), ["image", "label"]
    )
    with pytest.raises(DatalistError, match=r"line 6 \('7'\); accepted: 0, 1"):
        table.values("label", {"0": 0, "1": 1})
    stated = read_table(write(tmp_path, "sep=;\nimage;label\na.png;7\n"), ["image", "label"])
    with pytest.raises(DatalistError, match=r"line 3 \('7'\)"):
        stated.values("label", {"0": 0, "1": 1})


# ---- what is refused, with the line


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("file,label\na.png,0\n", ["'image' is missing", "columns found: file, label"]),
        ("picture,class\na.png,0\n", ["'image', 'label' are missing"]),
        (
            "image,label\na.png,0,x,y\nb.png\nc.png,1\n",
            ["line 2 (4 cells), line 3 (1 cells)", "2 cells"],
        ),
        ("image,label\n", ["no rows"]),
        ("", ["is empty"]),
        (" \n\n", ["is empty"]),
        ("<!DOCTYPE html><p>log in", ["web page", "download"]),
        (b"PK\x03\x04....", ["ZIP archive"]),
        ("image,label\na.png,0\n".encode("utf-16"), ["line 1", "UTF-8"]),
        ("image,label\na.png,0\nä.png,1\n".encode("latin-1"), ["line 3", "UTF-8"]),
        ('image,label\n"a.png,0\nb.png,1\n', ["line 3", "quotes"]),
        (gzip.compress(b"image,label\na.png,0\n" * 50, mtime=0)[:-20], ["damaged gzip"]),
        (b"\x1f\x8bnonsense", ["damaged gzip"]),
    ],
    ids=lambda value: "" if isinstance(value, list) else None,
)
def test_table_is_refused(tmp_path: Path, content: str | bytes, words: list[str]) -> None:
    message = refused(tmp_path, content)
    assert all(word in message for word in words), message


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    for name in ("absent.csv", "folder.csv"):
        with pytest.raises(DatalistError, match=name):
            read_table(tmp_path / name, [])


def test_checks_of_cells_name_the_lines(tmp_path: Path) -> None:
    table = read_table(
        write(tmp_path, "image,label\na,\n,1\na,nan\na,1e999\nb,x\n"), ["image", "label"]
    )
    with pytest.raises(DatalistError, match=r"empty cells in line 2 \(label\), line 3 \(image\);"):
        table.require_cells("image", "label")
    with pytest.raises(DatalistError, match=r"image is repeated in line 4 \(a\), line 5 \(a\);"):
        table.require_unique("image")
    with pytest.raises(
        DatalistError, match=r"line 2 \(''\), line 4 \('nan'\), line 5 \('1e999'\), line 6 \('x'\)"
    ):
        table.numbers("label")


def test_many_wrong_lines_are_counted(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "image,label\n" + "a,9\n" * 2000), ["image"])
    with pytest.raises(DatalistError) as caught:
        table.values("label", {"0": 0})
    assert "1,995 more" in str(caught.value)
    assert len(str(caught.value)) < 400


# ---- finding files


def test_label_file_is_found_plain_or_compressed_here_or_one_folder_down(tmp_path: Path) -> None:
    inside = tmp_path / "set" / "labels.csv.gz"
    inside.parent.mkdir()
    inside.touch()
    assert find_label_file(tmp_path, ["labels*.csv"], "labels") == inside
    here = write(tmp_path, "x")
    assert find_label_file(tmp_path, ["labels*.csv"], "labels") == here
    write(tmp_path, "x", "labels.csv.gz")
    assert find_label_file(tmp_path, ["labels*.csv"], "labels") == here


def test_missing_and_ambiguous_label_files(tmp_path: Path) -> None:
    assert find_optional_file(tmp_path, ["labels*.csv"], "labels") is None
    with pytest.raises(DatalistError, match=r"no file labels\*\.csv or other\.csv"):
        find_label_file(tmp_path, ["labels*.csv", "other.csv"], "labels")
    write(tmp_path, "x", "labels_1.csv")
    write(tmp_path, "x", "labels_2.csv")
    with pytest.raises(DatalistError, match=r"several files.*labels_1\.csv, labels_2\.csv"):
        find_label_file(tmp_path, ["labels*.csv"], "labels")
    assert (
        find_label_file(tmp_path, ["labels_2*.csv", "labels*.csv"], "labels")
        == tmp_path / "labels_2.csv"
    )


def test_name_lists_and_json(tmp_path: Path) -> None:
    assert read_name_list(write(tmp_path, "\ufeffa.png\r\n\r\n b.png", "list.txt")) == [
        "a.png",
        "b.png",
    ]
    assert read_json_array(write(tmp_path, '[{"a": 1, "b": 2}]'), ["a"]) == [{"a": 1, "b": 2}]
    for content, word in (
        ('[{"b": 1}]', "item 0 lacks 'a'"),
        ("{}", "array"),
        ("[]", "array"),
        ("[1", "line 1"),
    ):
        with pytest.raises(DatalistError, match=word):
            read_json_array(write(tmp_path, content), ["a"])
    with pytest.raises(DatalistError, match="item 1 lacks 'a'"):
        read_json_array(write(tmp_path, '[{"a": 1}, 3]'), ["a"])
