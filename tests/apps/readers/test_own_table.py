# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The user's own table: what is read of it, and what is answered to a wrong one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monai_afire.apps.readers.__main__ import main

HEADER = "image,label,patient_id,split"
ROWS = ["a.png,0,1,train", "b.png,1,2,val", "sub/c.png,1,3,test", "sub/d.png,0,4,train"]
ALL_IN_TRAINING = ("--val_fraction", "0", "--test_fraction", "0")
WORDS = ("--label_columns", "findings", "--separator", "|", *ALL_IN_TRAINING)


def write(folder: Path, rows: list[str], header: str = HEADER) -> None:
    (folder / "labels.csv").write_text("\n".join([header, *rows]) + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.png", "b.png", "sub/c.png", "sub/d.png"):
        (folder / name).touch()
    write(folder, ROWS)
    return folder


@pytest.fixture
def read(root: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs the command, and returns the list."""

    def run(*words: str) -> dict[str, Any]:
        output = tmp_path / "list.json"
        assert main(["table", "--root", str(root), "--output", str(output), *words]) == 0
        return json.loads(output.read_text())

    return run


@pytest.fixture
def refused(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the command, and returns its message, which is one line on the error output."""

    def run(*words: str) -> str:
        output = tmp_path / "refused.json"
        assert main(["table", "--root", str(root), "--output", str(output), *words]) == 1
        message = capsys.readouterr().err
        assert message.startswith("error: ")
        assert message.count("\n") == 1
        assert not output.exists()
        return message

    return run


# ---- labels


def test_a_column_of_0_and_1_is_one_finding_with_its_name(read: Callable) -> None:
    content = read()
    assert content["finding_names"] == ["label"]
    numbered = read("--num_classes", "2")
    assert numbered["labels"] == {"0": "class 0", "1": "class 1"}
    for section in ("training", "validation", "test"):
        for one, other in zip(content[section], numbered[section], strict=True):
            assert one["label"] == [other["label"]]
            assert one["abnormal"] == other["abnormal"]


def test_columns_of_findings(root: Path, read: Callable, refused: Callable) -> None:
    write(root, ["a.png,1,0,,1", "b.png,0,-1,1.0,2", "sub/c.png,0,0,0,3"], "image,x,y,z,patient_id")
    words = ("--label_columns", "x", "y", "z", *ALL_IN_TRAINING)
    content = read(*words)
    assert content["finding_names"] == ["x", "y", "z"]
    assert [item["label"] for item in content["training"]] == [[1, 0, None], [0, -1, 1], [0, 0, 0]]
    assert [item["abnormal"] for item in content["training"]] == [1, 1, 0]
    content = read(*words, "--findings", "z", "x")
    assert [item["label"] for item in content["training"]] == [[None, 1], [1, 0], [0, 0]]
    assert "x, y, z" in refused(*words, "--findings", "w")


def test_a_column_of_no_finding_is_no_finding(
    root: Path, read: Callable, refused: Callable
) -> None:
    rows = ["a.png,1,,,1", "b.png,,1,0,2", "sub/c.png,0,0,0,3", "sub/d.png,1,-1,0,4"]
    write(root, rows, "image,No finding,Mass,Edema,patient_id")
    content = read("--label_columns", "No finding", "Mass", "Edema", *ALL_IN_TRAINING)
    assert content["finding_names"] == ["Mass", "Edema"]
    labels = [item["label"] for item in content["training"]]
    assert labels == [[None, None], [1, 0], [0, 0], [-1, 0]]
    assert [item["abnormal"] for item in content["training"]] == [0, 1, 1, -1]
    assert "--num_classes" in refused("--label_columns", "No finding")


def test_several_findings_in_a_cell(root: Path, read: Callable, refused: Callable) -> None:
    rows = ["a.png,Mass|Edema,1", "b.png,No Finding,2", "sub/c.png, Edema ,3", "sub/d.png,,4"]
    write(root, rows, "image,findings,patient_id")
    content = read(*WORDS)
    assert content["finding_names"] == ["Edema", "Mass"]
    assert [item["label"] for item in content["training"]] == [[1, 1], [0, 0], [1, 0], [0, 0]]
    assert [item["abnormal"] for item in content["training"]] == [1, 0, 1, 0]
    assert read(*WORDS, "--no_finding", "Mass")["finding_names"] == ["Edema", "No Finding"]
    write(root, ["a.png,No Finding,1", "b.png,,2"], "image,findings,patient_id")
    assert "findings" in refused(*WORDS)
    write(root, ["a.png,Mass,1", "b.png,Edema,2"], "image,findings,patient_id")
    assert "--separator" in refused("--label_columns", "findings")


@pytest.mark.parametrize("word", ["kein Befund", " NO_ FINDING ", ""])
def test_words_for_none_are_no_finding_whatever_their_case(
    root: Path, read: Callable, word: str
) -> None:
    rows = [f"a.png,{word},1", "b.png,Mass|nodule,2", "sub/c.png, MASS ,3"]
    write(root, [*rows, f"sub/d.png,{word}|Nodule,4"], "image,findings,patient_id")
    content = read(*WORDS)
    assert [name.casefold() for name in content["finding_names"]] == ["mass", "nodule"]
    assert [item["label"] for item in content["training"]] == [[0, 0], [1, 1], [1, 0], [0, 1]]


# ---- patients, sections and groups


def test_patients_without_a_name_are_no_single_patient(
    root: Path, read: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["a.png,0,NA", "b.png,1,None", "sub/c.png,0,007", "sub/d.png,1,7"]
    write(root, rows, "image,label,patient_id")
    content = read(*ALL_IN_TRAINING)
    assert [item["patient_id"] for item in content["training"]] == ["a.png", "b.png", "007", "007"]
    assert "'patient_id'" in capsys.readouterr().out


def test_sections_are_those_of_the_table_or_random_and_said_to_be(
    root: Path, read: Callable, refused: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    content = read()
    assert content["settings"]["split"] == "official"
    assert [content[f"num{name}"] for name in ("Training", "Validation", "Test")] == [2, 1, 1]
    assert "at random" not in capsys.readouterr().out
    write(root, [row.replace("train", "fold 1") for row in ROWS])
    assert "fold 1" in refused()
    assert read("--split", "random")["settings"]["split"] == "random"
    assert "at random" in capsys.readouterr().out
    assert "'fold'" in refused("--split_column", "fold")


def test_groups_of_patients_travel_with_the_list(root: Path, read: Callable) -> None:
    rows = ["a.png,0,1,train,F,57,AP,ACME", "b.png,1,2,val,,,,", "sub/c.png,1,3,test,M,8,PA,"]
    write(root, rows, f"{HEADER},sex,age,view,manufacturer")
    content = read()
    items = [content[section][0] for section in ("training", "validation", "test")]
    kept = [{key: item[key] for key in list(item)[4:]} for item in items]
    assert kept == [
        {"view": "AP", "sex": "F", "age": "57", "manufacturer": "ACME"},
        {"view": "unknown"},
        {"view": "PA", "sex": "M", "age": "8"},
    ]


# ---- tables as spreadsheets save them


@pytest.mark.parametrize(
    "content",
    [
        "\ufeffimage,label\r\na.png,0\r\nb.png,1\r\n",
        "image\tlabel\na.png\t0\nb.png\t1",
        ' image , label \n a.png , 0 \n\n"b.png","1"\n\n',
        "image,label,,\na.png,0,,\nb.png,1\n",
        gzip.compress(b"image,label\na.png,0\nb.png,1\n", mtime=0),
        'image;"note (site, device, room)";label\na.png;q;0\nb.png;q;1\n',
        'image,"x;y;z;w",label\na.png,q,0\nb.png,q,1\n',
        '\ufeff"sep=\t"\r\nimage\tlabel\r\na.png\t0\r\nb.png\t1\r\n',
    ],
    ids=[
        *("bom_crlf", "tab", "blanks_quotes", "nameless_columns", "gzip"),
        *("commas_in_quotes", "semicolons_in_quotes", "stated"),
    ],
)
def test_a_table_is_read(root: Path, read: Callable, content: str | bytes) -> None:
    content = content.encode() if isinstance(content, str) else content
    (root / "labels.csv").write_bytes(content)
    items = read(*ALL_IN_TRAINING)["training"]
    found = {Path(item["image"]).name: item["label"] for item in items}
    assert found == {"a.png": [0], "b.png": [1]}


def test_a_table_is_found_in_the_folder_of_labels_of_images_or_as_it_is_typed(
    root: Path, tmp_path: Path, read: Callable, refused: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (root / "labels.csv").rename("mine.csv")
    for words in ("--table mine.csv", "--labels . --table mine.csv", "--labels mine.csv"):
        assert len(read(*words.split())["training"]) == 2
    Path("mine.csv").rename(root / "mine.csv")
    assert len(read("--labels", ".", "--table", "mine.csv")["training"]) == 2
    assert "other.csv" in refused("--table", "other.csv")
    assert "nowhere" in refused("--labels", "nowhere")


# ---- what is refused, with the file and the lines


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("file,label\na.png,0\n", ["'image'", "--image_column"]),
        ("image,labels\na.png,0\n", ["'label'", "--label_columns"]),
        ("image,label\na.png,0,x,y\nb.png\nc.png,1\n", ["line 2", "line 3"]),
        ("image,label\nä.png,1\n".encode("latin-1"), ["line 2", "UTF-8"]),
        (b"\x1f\x8bnonsense", []),
        ('image,label\n\n"a\nb.png",0\n\nc.png,7\n', ["line 6 ('7')", "--num_classes"]),
        ("image,label\na.png,0\na.png,0\n", ["image", "line 3 (a.png)"]),
        ("image,label,patient_id\na.png,1,\n", ["patient_id", "line 2"]),
    ],
)
def test_a_wrong_table_is_refused(
    root: Path, refused: Callable, text: str | bytes, words: list[str]
) -> None:
    (root / "labels.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    message = refused()
    assert all(word in message for word in [str(root / "labels.csv"), *words]), message
