# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tests of the command that writes datalists, and of what all readers have in common."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from monai.data import load_decathlon_datalist

from monai_afire.apps.readers import READERS, datalist_writing
from monai_afire.apps.readers.__main__ import main
from monai_afire.data import load_radiograph_datalist
from monai_afire.data.datalist.datalist_checks import DatalistError

Run = Callable[..., str]

HEADER = "image,label,patient_id,split"
ROWS = ["a.png,0,1,train", "b.png,1,2,val", "sub/c.png,1,3,test", "sub/d.png,0,4,train"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.png", "b.png", "sub/c.png", "sub/d.png"):
        (folder / name).touch()
    write(folder, ROWS)
    return folder


def write(folder: Path, rows: list[str], header: str = HEADER) -> None:
    (folder / "labels.csv").write_text("\n".join([header, *rows]) + "\n")


@pytest.fixture
def refused(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command and returns its message, which is one line on the error output."""

    def run(*words: str) -> str:
        output = tmp_path / "refused.json"
        assert main(["table", "--root", str(root), "--output", str(output), *words]) == 1
        captured = capsys.readouterr()
        assert captured.err.startswith("error: ")
        assert captured.err.count("\n") == 1
        assert not output.exists()
        return captured.err

    return run


def read(root: Path, output: Path, *words: str) -> dict[str, Any]:
    assert main(["table", "--root", str(root), "--output", str(output), *words]) == 0
    return json.loads(output.read_text())


# ---- the datalist


def test_datalist_is_read_by_monai_and_by_this_package(root: Path, tmp_path: Path) -> None:
    output = tmp_path / "lists" / "new" / "list.json"
    content = read(root, output)
    assert content["training"][1]["image"] == "../../images/sub/d.png"
    assert content["finding_names"] == ["label"]
    for section, names in (
        ("training", ["a.png", "sub/d.png"]),
        ("validation", ["b.png"]),
        ("test", ["sub/c.png"]),
    ):
        ours = load_radiograph_datalist(datalist=output, section=section)
        assert [item["image"] for item in ours] == [str(root / name) for name in names]
        assert ours == load_decathlon_datalist(output, is_segmentation=False, data_list_key=section)
        for item in ours:
            # MONAI takes "" for the folder of the list
            assert not any(value == "" for value in item.values())


@pytest.mark.usefixtures("another_drive")
def test_a_list_on_another_drive_than_the_images(root: Path, tmp_path: Path) -> None:
    content = read(root, tmp_path / "list.json")
    assert content["training"][1]["image"] == (root / "sub" / "d.png").as_posix()
    assert load_radiograph_datalist(datalist=tmp_path / "list.json", section="training")


@pytest.mark.parametrize("place", ["beside", "in it", "below it", "linked"])
def test_root_and_datalist_are_a_natural_pair(root: Path, tmp_path: Path, place: str) -> None:
    """The folder given as --root is the one that a run is given as --dataset_dir, wherever the list was written."""
    folder = {"in it": root, "below it": root / "lists"}.get(place, tmp_path / "lists")
    folder.mkdir(exist_ok=True)
    shown = root
    if place == "linked":
        shown = tmp_path / "link"
        shown.symlink_to(root)
    assert main(["table", "--root", str(shown), "--output", str(folder / "list.json")]) == 0
    for dataset_dir in (str(shown), None):
        found = load_radiograph_datalist(dataset_dir, folder / "list.json")
        assert found
        assert all(Path(item["image"]).resolve().is_relative_to(root.resolve()) for item in found)


def test_another_folder_of_the_same_names_is_not_taken_for_it(root: Path, tmp_path: Path) -> None:
    """Images beside the list are not used where another folder is asked for."""
    main(["table", "--root", str(root), "--output", str(tmp_path / "list.json")])
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(DatalistError, match="cannot be used"):
        load_radiograph_datalist(tmp_path / "elsewhere", tmp_path / "list.json")


def test_datalist_is_the_same_each_time_and_depends_on_the_seed(root: Path, tmp_path: Path) -> None:
    names = [f"{number}.png" for number in range(60)]
    for name in names:
        (root / name).touch()
    write(root, [f"{name},0,p{name}" for name in names], "image,label,patient_id")
    texts = []
    for seed in ("0", "0", "1"):
        read(root, tmp_path / "list.json", "--seed", seed)
        texts.append((tmp_path / "list.json").read_text().replace(f'"seed": {seed}', ""))
    assert texts[0] == texts[1] != texts[2]


def test_absent_images(
    root: Path, tmp_path: Path, refused: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "b.png").unlink()
    (root / "sub" / "d.png").unlink()
    assert "2 of 4 listed images are not there: b.png, sub/d.png; " in refused()
    content = read(root, tmp_path / "list.json", "--allow_missing", "--val_fraction", "0")
    assert "not on disk: 2 images (b.png, sub/d.png)" in capsys.readouterr().out
    assert [item["image"] for item in content["training"]] == ["images/a.png"]
    assert "validation" not in content
    for name in ("a.png", "sub/c.png"):
        (root / name).unlink()
    assert "none of the 4 listed images is there" in refused("--allow_missing")


def test_normal_only_keeps_the_sections_of_the_whole_list(root: Path, tmp_path: Path) -> None:
    write(root, [row.rsplit(",", 1)[0] for row in ROWS], "image,label,patient_id")
    fractions = ("--val_fraction", "0.3", "--test_fraction", "0.3", "--seed", "3")
    whole = read(root, tmp_path / "list.json", *fractions)
    normal = read(root, tmp_path / "list.json", *fractions, "--normal_only")
    for section in ("training", "validation"):
        assert normal.get(section, []) == [item for item in whole[section] if item["label"] == [0]]
    assert normal["test"] == whole["test"]


def test_a_division_at_random_is_told(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Run
) -> None:
    assert read(root, tmp_path / "list.json")["settings"]["split"] == "official"
    assert "at random" not in capsys.readouterr().out
    write(root, [row.rsplit(",", 2)[0] for row in ROWS], "image,label")
    assert read(root, tmp_path / "list.json")["settings"]["split"] == "random"
    said = capsys.readouterr().out
    assert (
        "no official split: the patients are divided at random with the seed 0, 20% to test" in said
    )
    assert "which do not give those of 4 images" in said
    assert "has no column 'fold'; the columns are image, label" in refused("--split_column", "fold")


def test_findings(root: Path, tmp_path: Path, refused: Run) -> None:
    write(root, ["a.png,1,0,,1", "b.png,0,-1,1,2", "sub/c.png,0,0,0,3"], "image,x,y,z,patient_id")
    labels = ("--label_columns", "x", "y", "z", "--val_fraction", "0", "--test_fraction", "0")
    content = read(root, tmp_path / "list.json", *labels)
    assert content["finding_names"] == ["x", "y", "z"]
    assert [item["label"] for item in content["training"]] == [[1, 0, None], [0, -1, 1], [0, 0, 0]]
    assert [item["abnormal"] for item in content["training"]] == [1, 1, 0]
    content = read(root, tmp_path / "list.json", *labels, "--findings", "z", "x")
    assert [item["label"] for item in content["training"]] == [[None, 1], [1, 0], [0, 0]]
    assert "no finding is called w; the findings are x, y, z" in refused(*labels, "--findings", "w")


def test_a_column_of_0_and_1_is_one_finding_with_its_name(root: Path, tmp_path: Path) -> None:
    content = read(root, tmp_path / "list.json")
    assert content["finding_names"] == ["label"]
    assert "labels" not in content
    numbered = read(root, tmp_path / "list.json", "--num_classes", "2")
    for section in ("training", "validation", "test"):
        pairs = zip(content.get(section, []), numbered.get(section, []), strict=True)
        assert all(
            one["label"] == [other["label"]] and one["abnormal"] == other["abnormal"]
            for one, other in pairs
        )


def test_groups_of_patients_travel_with_the_list(root: Path, tmp_path: Path) -> None:
    rows = [
        "a.png,0,1,train,F,57,AP,ACME",
        "b.png,1,2,val,,,,",
        "sub/c.png,1,3,test,M,8,PA,",
        "sub/d.png,0,4,train,,9,,B",
    ]
    write(root, rows, f"{HEADER},sex,age,view,manufacturer")
    content = read(root, tmp_path / "list.json")
    names = ("sex", "age", "view", "manufacturer")
    items = [item for section in ("training", "validation", "test") for item in content[section]]
    told = {
        Path(item["image"]).name: {name: item[name] for name in names if name in item}
        for item in items
    }
    assert told == {
        "a.png": {"sex": "F", "age": "57", "view": "AP", "manufacturer": "ACME"},
        "b.png": {"view": "unknown"},
        "c.png": {"sex": "M", "age": "8", "view": "PA"},
        "d.png": {"age": "9", "view": "unknown", "manufacturer": "B"},
    }


def test_several_findings_in_a_cell(root: Path, tmp_path: Path, refused: Run) -> None:
    rows = ["a.png,Mass|Edema,1", "b.png,No Finding,2", "sub/c.png, Edema ,3", "sub/d.png,,4"]
    write(root, rows, "image,findings,patient_id")
    words = (
        "--label_columns",
        "findings",
        "--separator",
        "|",
        "--val_fraction",
        "0",
        "--test_fraction",
        "0",
    )
    content = read(root, tmp_path / "list.json", *words)
    assert content["finding_names"] == ["Edema", "Mass"]
    assert [item["label"] for item in content["training"]] == [[1, 1], [0, 0], [1, 0], [0, 0]]
    assert [item["abnormal"] for item in content["training"]] == [1, 0, 1, 0]
    other = read(root, tmp_path / "list.json", *words, "--no_finding", "Mass")
    assert other["finding_names"] == ["Edema", "No Finding"]
    assert "give one of --label_columns" in refused(
        *words[2:], "--label_columns", "findings", "patient_id"
    )
    write(root, ["a.png,No Finding,1", "b.png,,2"], "image,findings,patient_id")
    assert "no cell of 'findings' names a finding" in refused(*words)
    write(root, ["a.png,Mass,1", "b.png,Edema,2"], "image,findings,patient_id")
    assert "for names of findings --separator" in refused("--label_columns", "findings")


@pytest.mark.parametrize(
    "word",
    [
        "No finding",
        "kein Befund",
        "no_finding",
        " NO  FINDING ",
        "None",
        "normal",
        "nan",
        "N/A",
        "NA",
        "",
    ],
)
def test_words_for_none_are_no_finding_whatever_their_case(
    root: Path, tmp_path: Path, word: str
) -> None:
    rows = [
        f"a.png,{word},1",
        "b.png,Mass|nodule,2",
        "sub/c.png, MASS ,3",
        f"sub/d.png,{word}|Nodule,4",
    ]
    write(root, rows, "image,findings,patient_id")
    words = (
        "--label_columns",
        "findings",
        "--separator",
        "|",
        "--val_fraction",
        "0",
        "--test_fraction",
        "0",
    )
    content = read(root, tmp_path / "list.json", *words)
    assert [name.casefold() for name in content["finding_names"]] == ["mass", "nodule"]
    assert [item["label"] for item in content["training"]] == [[0, 0], [1, 1], [1, 0], [0, 1]]
    assert [item["abnormal"] for item in content["training"]] == [0, 1, 1, 1]


def test_words_that_look_like_none_are_named(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        root,
        ["a.png,Normal,1", "b.png,Mass,2", "sub/c.png,clear,3", "sub/d.png,Mass,4"],
        "image,findings,patient_id",
    )
    words = (
        "--label_columns",
        "findings",
        "--separator",
        "|",
        "--val_fraction",
        "0",
        "--test_fraction",
        "0",
    )
    read(root, tmp_path / "list.json", *words)
    assert "'Normal' count as no finding" in capsys.readouterr().out
    content = read(root, tmp_path / "list.json", *words, "--no_finding", "CLEAR")
    assert content["finding_names"] == ["Mass", "Normal"]
    assert "'Normal' look like no finding, and count as findings" in capsys.readouterr().out


def test_column_of_no_finding_is_no_finding(root: Path, tmp_path: Path, refused: Run) -> None:
    rows = ["a.png,1,,,1", "b.png,,1,0,2", "sub/c.png,0,0,0,3", "sub/d.png,1,-1,0,4"]
    write(root, rows, "image,No finding,Mass,Edema,patient_id")
    words = (
        "--label_columns",
        "No finding",
        "Mass",
        "Edema",
        "--val_fraction",
        "0",
        "--test_fraction",
        "0",
    )
    content = read(root, tmp_path / "list.json", *words)
    assert content["finding_names"] == ["Mass", "Edema"]
    assert [item["label"] for item in content["training"]] == [
        [None, None],
        [1, 0],
        [0, 0],
        [-1, 0],
    ]
    assert [item["abnormal"] for item in content["training"]] == [0, 1, 1, -1]
    write(root, ["a.png,1,1", "b.png,0,2"], "image,No finding,patient_id")
    assert "says that nothing is found" in refused("--label_columns", "No finding")


def test_patients_without_a_name_are_no_single_patient(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        root,
        ["a.png,0,NA", "b.png,1,None", "sub/c.png,0,007", "sub/d.png,1,7"],
        "image,label,patient_id",
    )
    content = read(root, tmp_path / "list.json", "--val_fraction", "0", "--test_fraction", "0")
    assert [item["patient_id"] for item in content["training"]] == ["a.png", "b.png", "007", "007"]
    assert "2 cells of 'patient_id' name nobody" in capsys.readouterr().out


def test_a_small_validation_and_a_small_test_are_named(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = read(root, tmp_path / "list.json")
    assert {"validation", "test"} <= set(content)
    printed = capsys.readouterr().out
    assert "validation has only 1 image: what it chooses is largely chance" in printed
    assert f"test has only {len(content['test'])} patient" in printed


def test_report_counts(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read(root, tmp_path / "list.json")
    words = capsys.readouterr().out.split()
    assert " ".join(words[:9]) == "label table: 4 images of 4 patients images patients"
    assert "label 2" in " ".join(words)
    read(root, tmp_path / "list.json", "--num_classes", "2")
    assert "class 0 2, class 1 2" in " ".join(capsys.readouterr().out.split())


# ---- what is refused


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            ["a.png,0,1,train", "b.png,3,2,train"],
            "line 3 ('3'); accepted: 1, 0, -1, empty, 1.0, 0.0, -1.0. For classes numbered",
        ),
        (["a.png,0,1,holdout"], "line 2 ('holdout'); accepted: train, training, val"),
        (["a.png,0,1,train", "b.png,0,1,test"], "1 patient in two sections: 1"),
        (["a.png,0,1,train", "a.png,0,1,train"], "image is repeated in line 3 (a.png)"),
        (
            [",0,1,train", "b.png,,1,train", "c.png,0,,train"],
            "line 2 (image), line 3 (label), line 4 (patient_id)",
        ),
    ],
)
def test_wrong_tables(root: Path, refused: Run, rows: list[str], words: str) -> None:
    write(root, rows)
    assert words in refused()


@pytest.mark.parametrize("patients", [("1", "1"), ("1", "2")])
@pytest.mark.parametrize("split", ["official", "random"])
def test_one_patient_for_two_sections_is_answered_with_options_that_help(
    split: str, patients: tuple[str, str], root: Path, tmp_path: Path, refused: Run
) -> None:
    rows = [f"a.png,0,{patients[0]},train", f"gone.png,1,{patients[1]},train"]
    write(root, rows)
    words = ["--allow_missing", *(["--split", "random"] if split == "random" else [])]
    said = refused(*words)
    assert ("2 listed patients, 1 with images on disk" in said) == (patients == ("1", "2"))
    remedy = said.split("; give ")[1].strip().rstrip(".").split()
    content = read(root, tmp_path / "list.json", *words, *remedy)
    assert len(content["training"]) == 1


def test_patients_who_went_to_test_are_told_from_those_that_are_missing(
    root: Path, refused: Run
) -> None:
    write(root, ["a.png,0,1,train", "b.png,1,2,train"])
    said = refused("--split", "random")
    assert "2 listed patients, 2 with images on disk, 1 in training" in said
    assert "give --val_fraction 0." in said


def test_wrong_arguments(
    root: Path, tmp_path: Path, refused: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "val_fraction is 1.5" in refused("--val_fraction", "1.5")
    assert "classes, not findings" in refused("--num_classes", "2", "--findings", "Edema")
    assert "there must be two" in refused("--num_classes", "1")
    assert "no image is known to be a frontal view" in refused("--frontal_only")
    assert "other.csv: cannot be read" in refused("--table", "other.csv")
    assert "given by --labels does not exist" in refused("--labels", str(tmp_path / "nowhere"))
    assert main(["table", "--root", str(tmp_path / "nowhere"), "--output", "x.json"]) == 1
    assert main(["table", "--root", str(root), "--output", str(root)]) == 1
    assert "is a folder" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["table", "--root", str(root), "--output", str(tmp_path / "file" / "x.json")]) == 1
    assert "cannot write to" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["table", "--root", str(root), "--output", "x.json", "--mask_dir", "masks"])
    assert caught.value.code == 2


def test_old_list_survives_a_refusal(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "list.json"
    before = read(root, output)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(datalist_writing, "_entry", fail)
    assert main(["table", "--root", str(root), "--output", str(output)]) == 1
    assert json.loads(output.read_text()) == before
    assert sorted(os.listdir(tmp_path)) == ["images", "list.json"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("ok", ""),
        ("bom_crlf", ""),
        ("semicolon", ""),
        ("missing_column", "'image' is missing; columns found: file, label, patient_id, split"),
        ("label_out_of_range", "line 3 ('3')"),
        ("empty_cells", "line 2 (label), line 3 (image), line 4 (patient_id)"),
        ("ragged", "line 3 (6 cells), line 4 (1 cells)"),
        ("header_only", "no rows"),
        ("zero_byte", "is empty"),
        ("split_unknown", "line 3 ('holdout'); accepted: train,"),
    ],
)
def test_shared_bad_tables(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str, words: str
) -> None:
    arguments = [
        "--root",
        str(shared_data / "bad"),
        "--table",
        f"table_{table}.csv",
        "--val_fraction",
        "0",
    ]
    assert main(["table", *arguments, "--output", str(tmp_path / "list.json")]) == (
        1 if words else 0
    )
    captured = capsys.readouterr()
    if words:
        assert f"table_{table}.csv" in captured.err
        assert words in captured.err
    else:
        assert "ok.png" in (tmp_path / "list.json").read_text()


# ---- the command itself


@pytest.mark.parametrize("name", READERS)
def test_help_of_every_set(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert READERS[name].title in text
    assert "ROOT/" in text
    assert ("--mask_dir" in text) == READERS[name].has_masks


@pytest.mark.parametrize("name", READERS)
def test_every_reader_refuses_an_empty_folder(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "set").mkdir()
    assert (
        main([name, "--root", str(tmp_path / "set"), "--output", str(tmp_path / "list.json")]) == 1
    )
    assert str(tmp_path / "set") in capsys.readouterr().err


@pytest.mark.slow
def test_command_in_a_process_of_its_own(root: Path, tmp_path: Path, repository_root: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "monai_afire.apps.readers",
        "table",
        "--root",
        str(root),
        "--output",
        str(tmp_path),
    ]
    run = subprocess.run(command, capture_output=True, text=True, cwd=repository_root)
    assert run.returncode == 1
    assert (
        run.stderr
        == f"error: {tmp_path}: is a folder; give --output the name of a file, such as datalist.json.\n"
    )
