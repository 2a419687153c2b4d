# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tests of user datalists."""

from __future__ import annotations

import gzip
import json
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from PIL import Image
from transforms.radiograph_files import GRAY12, load, write_dicom

from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.labels import check_label_table, normal_items
from monai_afire.data.datalist.loading import load_radiograph_datalist
from monai_afire.data.datalist.scanning import mark_results, scan_radiographs

WriteList = Callable[[Any], Path]


@pytest.fixture
def write_list(tmp_path: Path) -> WriteList:
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()

    def write(content: Any) -> Path:
        path = tmp_path / "list.json"
        path.write_text(
            content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
        )
        return path

    return write


def refused(**arguments: Any) -> str:
    with pytest.raises(DatalistError) as caught:
        load_radiograph_datalist(**arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def names(items: list[dict[str, Any]]) -> list[str]:
    return [os.path.basename(item["image"]) for item in items]


def test_results_in_the_folder_are_left_out_and_counted(tmp_path: Path) -> None:
    for name in ("a.png", "out/overlays/a.png.jpg", "out/maps/a.png.nii.gz", "out/roc.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    mark_results(tmp_path / "out", [str(tmp_path / "a.png")], ["overlays"])
    with pytest.warns(
        UserWarning, match=r"3 pictures left out, .*: .*out; 1 radiographs are found"
    ):
        assert scan_radiographs(tmp_path) == ["a.png"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(scan_radiographs(tmp_path / "out")) == 3  # who names the folder wants it


def test_a_folder_of_results_with_the_images_themselves_is_searched_but_for_its_pictures(
    tmp_path: Path,
) -> None:
    (tmp_path / "day").mkdir()
    (tmp_path / "day/a.png").touch()
    mark_results(tmp_path, [str(tmp_path / "day/a.png")], ["overlays"])
    (tmp_path / "overlays/a.png.jpg").touch()
    with pytest.warns(UserWarning, match="1 pictures left out"):
        assert scan_radiographs(tmp_path) == ["day/a.png"]


# ---- datalist files


def test_reads_items_in_order_and_leaves_other_values(
    write_list: WriteList, tmp_path: Path
) -> None:
    path = write_list(
        {
            "name": "x",
            "training": [{"image": "b.png", "label": "a.png"}, {"image": "a.png", "age": 3}],
        }
    )
    assert load_radiograph_datalist(datalist=path) == [
        {"image": str(tmp_path / "b.png"), "label": "a.png"},
        {"image": str(tmp_path / "a.png"), "age": 3},
    ]


def test_agrees_with_monai(write_list: WriteList) -> None:
    from monai.data import load_decathlon_datalist

    path = write_list(
        {
            "training": [{"image": "b.png", "label": 1}, {"image": "a.png", "label": 0}],
            "test": ["c.png"],
        }
    )
    for section in ("training", "test"):
        expected = load_decathlon_datalist(path, is_segmentation=False, data_list_key=section)
        assert load_radiograph_datalist(datalist=path, section=section) == expected


def test_names_start_from_dataset_dir(write_list: WriteList, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "d.png").touch()
    path = write_list({"training": [{"image": "d.png"}, {"image": str(tmp_path / "a.png")}]})
    items = load_radiograph_datalist(tmp_path / "images", path)
    assert [item["image"] for item in items] == [
        str(tmp_path / "images" / "d.png"),
        str(tmp_path / "a.png"),
    ]
    assert "item 0 does not exist" in refused(datalist=path)
    assert "dataset_dir does not exist" in refused(dataset_dir=tmp_path / "none", datalist=path)


def test_byte_order_mark_and_other_path_keys(write_list: WriteList, tmp_path: Path) -> None:
    path = write_list('\ufeff{"training": [{"image": ["a.png", "b.png"], "label": "c.png"}]}')
    [item] = load_radiograph_datalist(datalist=path, path_keys=("image", "label"))
    assert item == {
        "image": [str(tmp_path / "a.png"), str(tmp_path / "b.png")],
        "label": str(tmp_path / "c.png"),
    }


@pytest.mark.parametrize(
    ("content", "section", "expected"),
    [
        ('{"training": [{"image": "a.png"},\n', "training", "line 2 column 1"),
        ("", "training", "line 1 column 1"),
        ([{"image": "a.png"}], "training", "top level is an array"),
        (
            {"test": ["a.png"], "name": "x"},
            "training",
            "no section 'training'; sections found: test.",
        ),
        ({"training": []}, "training", "section 'training' is empty"),
        ({"training": {"image": "a.png"}}, "training", "section 'training' is an object"),
        (
            {"training": [{"image": "a.png"}, {"img": "b.png"}]},
            "training",
            "'image': item 1; the first of them has img",
        ),
        ({"training": [{"image": "a.png"}, 3]}, "training", "item 1 is a number"),
        ({"training": [{"image": 7}]}, "training", "item 0: 'image' is 7"),
        ({"training": [{"image": ""}]}, "training", "item 0: 'image' is ''"),
        ({"training": [{"image": []}]}, "training", "item 0: 'image' is []"),
        (
            {"validation": ["a.png", "folder.png"]},
            "validation",
            "section 'validation' names 1 of 2 files",
        ),
        ({"validation": ["a.png", "folder.png"]}, "validation", "item 1 is a folder"),
    ],
)
def test_refused_lists(write_list: WriteList, content: Any, section: str, expected: str) -> None:
    path = write_list(content)
    message = refused(datalist=path, section=section)
    assert str(path) in message
    assert expected in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[" * 200_000 + "]" * 200_000, "cannot be read"),
        ('{"training": [{"image": "a.png", "age": ' + "7" * 10_000 + "}]}", "cannot be read"),
        (
            '{"training": ["a.png"], "test": ["b.png"], "training": ["c.png"]}',
            "has the key 'training' twice",
        ),
        ('{"training": [{"image": "a.png", "label": 1, "label": 0}]}', "has the key 'label' twice"),
    ],
)
def test_json_that_python_reads_otherwise(tmp_path: Path, content: str, words: str) -> None:
    """Too deep, or a number too long: errors without the file's name; keys twice: the first section was lost."""
    path = tmp_path / "list.json"
    path.write_text(content)
    message = refused(datalist=path)
    assert str(path) in message
    assert words in message
    assert len(message) < 400


def test_missing_list_and_no_argument(tmp_path: Path) -> None:
    assert "does not exist" in refused(datalist=tmp_path / "none.json")
    assert "dataset_dir" in refused()
    assert "cannot be read" in refused(datalist=tmp_path)


@pytest.mark.parametrize("count", [3, 40])  # asked for one by one, and by listing the folder
def test_missing_files_are_counted_and_named(
    write_list: WriteList, tmp_path: Path, count: int
) -> None:
    present = [f"p{i}.png" for i in range(count)]
    for name in present:
        (tmp_path / name).touch()
    path = write_list({"training": [*present, *(f"no{i}.png" for i in range(8)), "nowhere/x.png"]})
    message = refused(datalist=path)
    assert f"names 9 of {count + 9} files" in message
    assert f"item {count} does not exist: {tmp_path / 'no0.png'}" in message
    assert message.count("item ") == 5
    assert "and 4 more" in message
    assert len(load_radiograph_datalist(datalist=path, check_files=False)) == count + 9


def test_leaks_between_sections_give_a_warning(write_list: WriteList) -> None:
    lists = {
        "training": [{"image": "a.png", "patient_id": 1}],
        "validation": [{"image": "b.png", "patient_id": 1}],
        "test": ["a.png"],
    }
    path = write_list(lists)
    with pytest.warns(UserWarning, match="in two sections") as caught:
        load_radiograph_datalist(datalist=path)
    text = " ".join(str(warning.message) for warning in caught)
    assert "1 image is in two sections: a.png (training, test)" in text
    assert "1 patient is in two sections: 1 (training, validation)" in text
    assert len(caught) == 2


# ---- folders


def touch(root: Path, *files: str) -> None:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


@pytest.mark.filterwarnings("ignore:.*cannot be read. broken.png")
def test_scan_finds_radiographs_only(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "z.png",
        "A/b (PA).PNG",
        "A/ü.jpeg",
        "c.nii.gz",
        "d.xyz",
        "notes",
        ".hidden.png",
        "__MACOSX/e.png",
    )
    touch(tmp_path, "folder.png/f.tif", "list.json")
    (tmp_path / "IM-0001").write_bytes(bytes(128) + b"DICM")
    (tmp_path / "1.2.840.7").write_bytes(bytes(128) + b"DICM")
    (tmp_path / "DICOMDIR").write_bytes(bytes(128) + b"DICM")
    os.symlink(tmp_path / "nowhere.png", tmp_path / "broken.png")
    found = [
        "1.2.840.7",
        "A/b (PA).PNG",
        "A/ü.jpeg",
        "IM-0001",
        "c.nii.gz",
        "folder.png/f.tif",
        "z.png",
    ]
    assert scan_radiographs(tmp_path) == found
    assert scan_radiographs(str(tmp_path) + "/") == found


@pytest.mark.parametrize(
    "name", ["GE0001.img", "scan.dic", "CHEST.PA", "x.acr", "Smith.John", "a.1.dcm_", "day.2/b.tmp"]
)
def test_scan_finds_dicom_of_any_extension(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    write_dicom(tmp_path / name, GRAY12, bits=12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert scan_radiographs(tmp_path) == [name]
        np.testing.assert_allclose(load(tmp_path / name), GRAY12 / 4095, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*is blank")
def test_scan_names_what_may_hold_radiographs(tmp_path: Path) -> None:
    """Texts and tables are none; pictures that nothing here reads, or by another extension, are counted and named."""
    touch(tmp_path, "a.png", "notes.txt", "list.json", "more.zip", "labels.csv")
    (tmp_path / "b.dcm.gz").write_bytes(gzip.compress(bytes(128) + b"DICM"))
    (tmp_path / "labels.csv.gz").write_bytes(gzip.compress(b"image,label"))
    Image.new("L", (40, 40)).save(tmp_path / "c.gif")
    Image.new("L", (40, 40)).save(tmp_path / "d", "PNG")
    Image.new("L", (40, 40)).save(tmp_path / "e.jfif", "JPEG")
    (tmp_path / "f.img").write_bytes(bytes(100))
    with pytest.warns(UserWarning, match="5 files left out, which may hold radiographs") as caught:
        assert scan_radiographs(tmp_path) == ["a.png", "e.jfif"]
    [warning] = caught
    for name in ("b.dcm.gz", "c.gif", "d (PNG", "f.img", "more.zip"):
        assert name in str(warning.message)
    assert "labels" not in str(warning.message)
    assert load(tmp_path / "e.jfif").shape == (40, 40)


def test_a_subfolder_that_cannot_be_listed_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "a/x.png", "closed/y.png", "z.png")
    (tmp_path / "closed" / "text.gif").write_bytes(b"GIF89a")
    list_folder = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return list_folder(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.warns(UserWarning, match=r"closed: left out.*\(Permission denied\)") as caught:
        assert scan_radiographs(tmp_path) == ["a/x.png", "z.png"]
    assert [warning.filename for warning in caught] == [__file__]


def test_scan_ends_on_a_loop_of_links(tmp_path: Path) -> None:
    touch(tmp_path, "a/x.png")
    os.symlink(tmp_path, tmp_path / "a" / "loop")
    assert scan_radiographs(tmp_path) == ["a/x.png"]


def test_a_link_that_leads_nowhere_costs_itself_alone(tmp_path: Path) -> None:
    """One in a circle ended the folder's list: how many files were found was a matter of their order on disk."""
    # first on most file systems: what is made last is listed first
    os.symlink("circle", tmp_path / "circle")
    touch(tmp_path, *(f"{number:02d}.png" for number in range(40)), "below/x.png")
    os.symlink("circle.png", tmp_path / "below" / "circle.png")
    os.symlink("nowhere", tmp_path / "broken.png")
    os.symlink("nowhere", tmp_path / "broken.txt")
    with pytest.warns(UserWarning, match="3 entries left out, which cannot be read") as caught:
        assert len(scan_radiographs(tmp_path)) == 41
    [warning] = caught
    assert "below/circle.png (Too many" in str(warning.message)
    assert "broken.png (No such file" in str(warning.message)
    assert "41 radiographs are found" in str(warning.message)


def test_links_in_a_circle_are_missing_files_of_a_list(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{number:02d}.png" for number in range(40)))
    os.symlink("circle.png", tmp_path / "circle.png")
    (tmp_path / "list.json").write_text(
        json.dumps({"test": [*(f"{n:02d}.png" for n in range(40)), "circle.png"]})
    )
    message = refused(datalist=tmp_path / "list.json", section="test")
    assert "1 of 41 files that cannot be used: item 40 is a link that leads nowhere" in message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes on this system")
def test_named_pipes_are_passed_over(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    for name in ("pipe", "pipe.png"):
        os.mkfifo(tmp_path / name)
    assert scan_radiographs(tmp_path) == ["a.png"]
    (tmp_path / "list.json").write_text('{"test": ["a.png", "pipe.png"]}')
    assert "item 1 is no regular file" in refused(datalist=tmp_path / "list.json", section="test")


def test_scan_refuses_what_is_no_folder(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    with pytest.raises(DatalistError, match="no such folder"):
        scan_radiographs(tmp_path / "none")
    with pytest.raises(DatalistError, match="is a file"):
        scan_radiographs(tmp_path / "a.png")


def test_folder_without_radiographs(tmp_path: Path) -> None:
    touch(tmp_path, "notes.txt")
    message = refused(dataset_dir=tmp_path)
    assert message.startswith(f"no radiographs found under {tmp_path}; supported: .dcm")
    assert "no such folder" in refused(dataset_dir=tmp_path / "none")


def test_folder_is_parted_by_patient(tmp_path: Path) -> None:
    touch(
        tmp_path,
        *(f"{patient:08d}_{number:03d}.png" for patient in range(40) for number in range(3)),
    )
    training = names(load_radiograph_datalist(tmp_path, validation_fraction=0.25))
    validation = names(
        load_radiograph_datalist(tmp_path, section="validation", validation_fraction=0.25)
    )
    assert sorted(training + validation) == names(
        load_radiograph_datalist(tmp_path, section="test")
    )
    assert not {name[:8] for name in training} & {name[:8] for name in validation}
    assert 4 * 3 <= len(validation) <= 16 * 3
    assert training == names(
        load_radiograph_datalist(tmp_path, datalist="", validation_fraction=0.25)
    )
    assert training != names(load_radiograph_datalist(tmp_path, validation_fraction=0.25, seed=1))
    touch(tmp_path, "99999999_000.png")  # a new file moves no old one
    grown = names(load_radiograph_datalist(tmp_path, validation_fraction=0.25))
    assert [name for name in grown if not name.startswith("9")] == training


def test_folder_with_one_patient_or_unknown_section(tmp_path: Path) -> None:
    touch(tmp_path, "patient00001/1.png", "patient00001/2.png")
    assert "one patient cannot be split: give a list with" in refused(dataset_dir=tmp_path)
    assert "is empty" in refused(dataset_dir=tmp_path, section="validation", validation_fraction=0)
    assert len(load_radiograph_datalist(tmp_path, validation_fraction=0)) == 2
    assert "'holdout'" in refused(dataset_dir=tmp_path, section="holdout")
    assert "validation_fraction" in refused(dataset_dir=tmp_path, validation_fraction=1.0)


# ---- the lists of shared/data/bad, and a real one

LISTS: dict[str, str] = {
    "list_missing_file.json": r"section 'training' .*item 1 does not exist: .*does_not_exist.png",
    "list_malformed.json": "line 2 column 1",
    "list_no_image_key.json": r"section 'training' .*'image': item 0",
    "list_no_training.json": "no section 'training'; sections found: test",
    "list_empty.json": "section 'training' is empty",
    "list_top_level_array.json": "top level is an array",
    "list_section_not_array.json": "section 'training' is an object",
    "list_directory_item.json": r"section 'training' .*item 1 is a folder",
    "list_bad_images.json": "no section 'training'",
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.filterwarnings("ignore:.*in two sections")
def test_bad_lists_are_refused(shared_data: Path, name: str) -> None:
    message = refused(datalist=shared_data / "bad" / name)
    assert name in message
    assert re.search(LISTS[name], message), message


def test_lists_that_are_read(shared_data: Path) -> None:
    bad = shared_data / "bad"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            len(load_radiograph_datalist(datalist=bad / "list_no_training.json", section="test"))
            == 1
        )
        assert (
            len(load_radiograph_datalist(datalist=bad / "list_bad_images.json", section="test"))
            == 7
        )
    with pytest.warns(UserWarning, match="1 image is in two sections"):
        assert names(load_radiograph_datalist(datalist=bad / "list_no_label_key.json")) == [
            "ok.png"
        ]
    with pytest.warns(UserWarning, match="1 image is in two sections"):
        # ok.png is in training and in test
        assert len(load_radiograph_datalist(datalist=bad / "list_ok.json")) == 1


@pytest.mark.filterwarnings("ignore:.*in two sections")
def test_label_lists(shared_data: Path) -> None:
    bad = shared_data / "bad"

    def items(name: str, section: str = "training") -> list[dict[str, Any]]:
        return load_radiograph_datalist(datalist=bad / name, section=section)

    with pytest.raises(
        DatalistError, match=r"2 wrong labels: item 1 \(.*\): class 7, item 2 \(.*\): class -1"
    ):
        check_label_table(items("list_label_out_of_range.json"), 2)
    with pytest.raises(
        DatalistError, match=r"item 1 .*: 'abnormal' for .* item 2 .*: no label, item 3 .*: 0.5 for"
    ):
        check_label_table(items("list_label_wrong_type.json"), 2)
    with pytest.warns(UserWarning, match="left 1 abnormal"):
        assert len(normal_items(items("list_abnormal_in_training.json"))) == 1
    with pytest.warns(UserWarning, match=r"1 patient is in two sections: 1 "):
        items("list_leak.json")


@pytest.mark.filterwarnings("ignore:.*which may hold radiographs")
def test_folder_of_samples(shared_data: Path) -> None:
    found = scan_radiographs(shared_data / "samples")
    assert "IM-0001-0001" in found
    assert "Näme with späces (PA).PNG" in found
    assert "README.md" not in found
    bad = scan_radiographs(shared_data / "bad")
    assert "directory_named.png" not in bad
    assert "unknown_extension.xyz" not in bad


def test_real_list(shared_data: Path) -> None:
    folder = shared_data / "nih_cxr_1k"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # its sections share no patient
        items = load_radiograph_datalist(datalist=folder / "datalist_anomaly.json")
    assert len(items) == 195


def test_scan_recognizes_dicom_without_preamble(tmp_path: Path) -> None:
    dataset = pydicom.Dataset()
    dataset.SOPClassUID = "1.2.840.10008.5.1.4.1.1.1"
    dataset.PatientID = "made up"
    dataset.save_as(tmp_path / "IM0001", implicit_vr=False, little_endian=True)
    assert scan_radiographs(tmp_path) == ["IM0001"]


def test_validation_is_held_out_of_a_list_without_it(tmp_path: Path) -> None:
    entries = [{"image": f"{number}.png", "patient_id": f"p{number // 2}"} for number in range(40)]
    for entry in entries:
        (tmp_path / entry["image"]).touch()
    source = tmp_path / "list.json"
    source.write_text(json.dumps({"training": entries}))
    parts = [
        load_radiograph_datalist(None, source, part, hold_out=True)
        for part in ("training", "validation")
    ]
    patients = [{item["patient_id"] for item in part} for part in parts]
    assert sum(map(len, parts)) == 40
    assert all(patients)
    assert not patients[0] & patients[1]
    with pytest.raises(DatalistError, match="no section 'validation'"):
        load_radiograph_datalist(None, source, "validation")
    # a section of its own is taken as it is
    source.write_text(json.dumps({"training": entries[:30], "validation": entries[30:]}))
    assert len(load_radiograph_datalist(None, source, "training", hold_out=True)) == 30


def test_a_new_image_in_another_folder_moves_no_other_image(tmp_path: Path) -> None:
    source = tmp_path / "list.json"

    def validation(names: list[str]) -> set[str]:
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
        source.write_text(json.dumps({"training": names}))
        items = load_radiograph_datalist(None, source, "validation", hold_out=True)
        return {Path(item["image"]).name for item in items}

    names = [f"a/{number}.png" for number in range(40)]
    before = validation(names)
    assert before
    assert validation([*names, "b/new.png"]) - {"new.png"} == before
    with pytest.raises(DatalistError, match="one patient cannot be split"):
        validation([f"patient00042/{number}.png" for number in range(20)])
