# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A label table in the place of a datalist: the command that the message suggests makes the list."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

from monai_afire.apps.readers.__main__ import main
from monai_afire.apps.runs.call import BundleCall
from monai_afire.apps.runs.options.check import OptionError, check_call
from monai_afire.data import DatalistError, bundle_items, labeled_items
from monai_afire_cli.options.table_hint import list_command

HEADER = "Image Index,Finding Labels,Patient ID,View Position"
NAMES = [f"0000000{number}_000.png" for number in range(1, 9)]


def nih_folder(folder: Path) -> Path:
    """Radiographs in a folder with a blank in its name, and the published table beside them."""
    folder.mkdir()
    for name in NAMES:
        Image.new("L", (16, 16)).save(folder / name)
    rows = [f"{name},Mass,{name[:8]},PA" for name in NAMES]
    (folder / "Data_Entry_2017.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return folder


def suggested(refusal: pytest.ExceptionInfo[DatalistError]) -> list[str]:
    """Words of the command at the end of a message."""
    return shlex.split(str(refusal.value).partition("monai-afire data ")[2])


@pytest.mark.parametrize("has_lists", [False, True])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_suggested_command_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_lists: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = nih_folder(tmp_path / "nih images")
    if has_lists:
        (folder / "lists").mkdir()
        (folder / "lists/train_val_list.txt").write_text("\n".join(NAMES[:6]))
        (folder / "test_list.txt").write_text("\n".join(NAMES[6:]))
    for load in (bundle_items, labeled_items):
        with pytest.raises(DatalistError, match="is a table") as refusal:
            load("training", "nih images", "nih images/Data_Entry_2017.csv")
        assert "IMAGES" not in str(refusal.value)
    command = re.search(r"monai-afire data (.*)", str(refusal.value))
    assert command is not None
    words = shlex.split(command[1])
    assert words[:3] == ["nih", "--root", "nih images"]
    assert ("random" in words) is not has_lists
    assert main(words) == 0
    assert (tmp_path / "labels.json").is_file()


@pytest.mark.parametrize("name", ["mine.csv", "Data_Entry_2017_mine.csv"])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_published_table_of_another_name_is_read_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool, name: str
) -> None:
    """The reader of the set would look for the published name, and take another table that has it."""
    monkeypatch.chdir(tmp_path)
    table = nih_folder(tmp_path / "nih") / "Data_Entry_2017.csv"
    rows = table.read_text().splitlines()
    Path("nih", name).write_text("\n".join(rows[:6]))
    if not beside:
        table.unlink()
    with pytest.raises(DatalistError, match="is a table") as refusal:
        bundle_items("training", "nih", f"nih/{name}")
    words = suggested(refusal)
    assert main(words) == 0
    made = json.loads(Path("labels.json").read_text())
    assert sum(len(made.get(section, [])) for section in ("training", "validation", "test")) == 5
    assert "Mass" in made["finding_names"]
    assert {item["patient_id"] for item in made["training"]} <= {name[:8] for name in NAMES}


@pytest.mark.parametrize("name", ["mine.csv", "Data_Entry_2017.csv"])
@pytest.mark.parametrize("columns", [HEADER, "Image Index,Finding Labels", "image,label"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_command_for_a_part_of_the_images_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, columns: str
) -> None:
    monkeypatch.chdir(tmp_path)
    nih_folder(tmp_path / "nih")
    Path("nih/Data_Entry_2017.csv").unlink()
    finding = "1" if "label" in columns else "Mass"
    rows = [f"{image},{finding},{image[:8]},PA" for image in [*NAMES, "absent.png"]]
    width = len(columns.split(","))
    rows = [",".join(row.split(",")[:width]) for row in rows]
    Path("nih", name).write_text("\n".join([columns, *rows]) + "\n")
    with pytest.raises(DatalistError, match="is a table") as refusal:
        bundle_items("training", "nih", f"nih/{name}")
    assert main(suggested(refusal)) == 0
    made = json.loads(Path("labels.json").read_text())
    assert sum(len(made.get(section, [])) for section in ("training", "validation", "test")) == 8


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_table_as_the_folder_of_images_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nih_folder(tmp_path / "nih")
    with pytest.raises(DatalistError, match="is a table") as refusal:
        bundle_items("test", "nih/Data_Entry_2017.csv")
    assert main(suggested(refusal)) == 0
    call = BundleCall({}, {"dataset_dir": "nih/Data_Entry_2017.csv"})
    with pytest.raises(OptionError, match=r"dataset_dir: .* is a table"):
        check_call(call)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_table_beside_the_images_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nih_folder(tmp_path / "nih")
    Path("labels").mkdir()
    words = ["table", "--root", "nih", "--labels", "labels", "--table", "Data_Entry_2017.csv"]
    words += ["--image_column", "Image Index", "--separator", "|", "--output", "labels.json"]
    assert main([*words, "--label_columns", "Finding Labels"]) == 0


def test_a_table_beside_its_images_has_them_in_its_folder(tmp_path: Path) -> None:
    table = nih_folder(tmp_path / "nih") / "Data_Entry_2017.csv"
    assert f"--root {table.parent} " in list_command(table)
    assert "--root IMAGES " in list_command(table.rename(tmp_path / "Data_Entry_2017.csv"))
