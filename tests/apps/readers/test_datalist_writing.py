# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Datalists: sections by patient, paths, what is left out, and the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from monai.data import load_decathlon_datalist

from monai_afire.apps.readers import SETS, divide_by_patient, write_datalist
from monai_afire.data import DatalistError, load_radiograph_datalist

SECTIONS = ("training", "validation", "test")
ROWS = ["a.png,0,1,train,PA", "b.png,1,2,val,", "sub/c.png,1,3,test,LL", "sub/d.png,0,4,train,AP"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.png", "b.png", "sub/c.png", "sub/d.png"):
        (folder / name).touch()
    text = "\n".join(["image,label,patient_id,split,view", *ROWS])
    (folder / "labels.csv").write_text(text)
    return folder


@pytest.fixture
def build(root: Path, tmp_path: Path) -> Callable[..., dict]:
    def run(**options: object) -> dict:
        report = write_datalist(SETS["table"], root, tmp_path / "list.json", **options)
        return {**json.loads((tmp_path / "list.json").read_text()), "report": report}

    return run


def many(root: Path, count: int) -> None:
    """A table of images, each of a patient of its own: edema in every second, an effusion in the first one alone."""
    names = [f"{number}.png" for number in range(count)]
    for name in names:
        (root / name).touch()
    rows = [f"{name},{place % 2},{int(place == 0)},p{name}" for place, name in enumerate(names)]
    (root / "labels.csv").write_text("\n".join(["image,edema,effusion,patient_id", *rows]))


# ---- the division by patient


def rows_of(patients: list[int], sections: list[str] | None = None) -> pd.DataFrame:
    rows = pd.DataFrame({"patient_id": [str(patient) for patient in patients]})
    return rows if sections is None else rows.assign(section=sections)


def patients_in(rows: pd.DataFrame) -> dict[str, set[str]]:
    return {name: set(rows["patient_id"][rows["section"] == name]) for name in SECTIONS}


FRACTIONS = st.floats(0, 0.95)


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 12), min_size=3, max_size=40), FRACTIONS, FRACTIONS, st.integers(0, 9)
)
def test_no_patient_is_in_two_sections_and_no_image_is_lost(
    patients: list[int], val_fraction: float, test_fraction: float, seed: int
) -> None:
    rows = rows_of([*patients, 97, 98, 99])
    try:
        divided = divide_by_patient(rows, val_fraction, test_fraction, seed)
    except DatalistError as error:
        # all patients but one are in test
        if "one patient" in str(error) and val_fraction > 0 and test_fraction > 0.2:
            return
        raise
    sections = patients_in(divided)
    for one, other in combinations(sections.values(), 2):
        assert not one & other
    assert divided["patient_id"].tolist() == rows["patient_id"].tolist()
    assert bool(sections["validation"]) == (val_fraction > 0)
    assert bool(sections["test"]) == (test_fraction > 0)
    assert sections["training"]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from(SECTIONS)), min_size=1, max_size=30),
    st.sampled_from([0.0, 0.3]),
)
def test_official_sections_never_overlap(
    listed: list[tuple[int, str]], val_fraction: float
) -> None:
    rows = rows_of([p for p, _ in listed] + [98, 99], [s for _, s in listed] + ["training"] * 2)
    overlap = any(one & other for one, other in combinations(patients_in(rows).values(), 2))
    if overlap:
        with pytest.raises(DatalistError, match=r"patients? in two sections"):
            divide_by_patient(rows, val_fraction)
    divided = divide_by_patient(rows, val_fraction, drop_overlap=True)
    for one, other in combinations(patients_in(divided).values(), 2):
        assert not one & other
    assert (len(divided) < len(rows)) == overlap
    # the test section is never touched
    was_test = rows.index[rows["section"] == "test"]
    assert divided.index[divided["section"] == "test"].tolist() == was_test.tolist()


def test_fractions_are_met_by_choices_that_follow_from_seed_and_patient_alone() -> None:
    def divided(seed: int, patients: list[int]) -> dict[str, set[str]]:
        return patients_in(divide_by_patient(rows_of(patients), 0.25, 0.2, seed))

    everyone = list(range(4000))
    sections = divided(0, everyone)
    assert len(sections["test"]) == pytest.approx(800, abs=80)
    assert len(sections["validation"]) == pytest.approx(0.25 * 3200, abs=80)
    assert divided(0, everyone[::-1]) == sections != divided(1, everyone)
    # those who come later move nobody
    before = divided(0, everyone[:150])
    assert all(before[name] <= sections[name] for name in SECTIONS)


def test_official_validation_is_kept_and_a_missing_one_is_taken_from_training() -> None:
    patients, official = list(range(30)), ["training"] * 20 + ["test"] * 10
    complete = ["training"] * 10 + ["validation"] * 10 + ["test"] * 10
    kept = divide_by_patient(rows_of(patients, complete), 0.5)
    assert kept["section"].tolist() == complete
    taken = patients_in(divide_by_patient(rows_of(patients, official), 0.5))
    assert len(taken["test"]) == 10
    assert 0 < len(taken["validation"]) < 20
    kept = divide_by_patient(rows_of(patients, official), 0)
    assert kept["section"].tolist() == official


# ---- what the list says


def test_a_datalist_is_read_by_monai_and_by_this_package(root: Path, tmp_path: Path) -> None:
    output = tmp_path / "lists" / "new" / "list.json"
    write_datalist(SETS["table"], root, output)
    assert json.loads(output.read_text())["training"][1]["image"] == "../../images/sub/d.png"
    for section, names in (("training", ["a.png", "sub/d.png"]), ("test", ["sub/c.png"])):
        ours = load_radiograph_datalist(datalist=output, section=section)
        assert [item["image"] for item in ours] == [str(root / name) for name in names]
        assert ours == load_decathlon_datalist(output, is_segmentation=False, data_list_key=section)
        for item in ours:
            # MONAI takes "" for the folder of the list
            assert not any(value == "" for value in item.values())


@pytest.mark.parametrize("place", ["beside", "in it", "below it", "linked"])
def test_root_and_datalist_are_a_natural_pair(root: Path, tmp_path: Path, place: str) -> None:
    """The folder given as --root is the one that a run is given as --dataset_dir, wherever the list was written."""
    folder = {"in it": root, "below it": root / "lists"}.get(place, tmp_path / "lists")
    shown = root
    if place == "linked":
        shown = tmp_path / "link"
        shown.symlink_to(root)
    write_datalist(SETS["table"], shown, folder / "list.json")
    for dataset_dir in (str(shown), None):
        found = load_radiograph_datalist(dataset_dir, folder / "list.json")
        assert found
        assert all(Path(item["image"]).resolve().is_relative_to(root.resolve()) for item in found)


def test_absent_images(root: Path, build: Callable) -> None:
    (root / "b.png").unlink()
    (root / "sub" / "d.png").unlink()
    with pytest.raises(DatalistError, match=r"b\.png, sub/d\.png"):
        build()
    content = build(allow_missing=True, val_fraction=0)
    assert "b.png, sub/d.png" in content["report"]
    assert [item["image"] for item in content["training"]] == ["images/a.png"]
    for name in ("a.png", "sub/c.png"):
        (root / name).unlink()
    with pytest.raises(DatalistError, match=r"a\.png"):
        build(allow_missing=True)


def test_normal_only_keeps_the_sections_of_the_whole_list(root: Path, build: Callable) -> None:
    many(root, 60)
    whole, normal = (build(label_columns=["edema"], normal_only=only) for only in (False, True))
    for section in ("training", "validation"):
        assert normal[section] == [item for item in whole[section] if item["abnormal"] == 0]
    assert normal["test"] == whole["test"]


def test_the_report_counts_each_section(root: Path, build: Callable) -> None:
    many(root, 200)
    content = build(label_columns=["edema", "effusion"])
    lines = [line.split() for line in content["report"].splitlines()]
    counts = {line[0]: line[1:] for line in lines if len(line) == 4}
    for name in ("images", "patients"):
        assert counts[name] == [str(len(content[section])) for section in SECTIONS]
    for place, name in enumerate(("edema", "effusion")):
        positives = [sum(item["label"][place] for item in content[section]) for section in SECTIONS]
        assert counts[name] == list(map(str, positives))


def test_wrong_arguments_are_refused(root: Path, tmp_path: Path, build: Callable) -> None:
    for options, word in (
        ({"num_classes": 2, "findings": ["Edema"]}, "classes"),
        ({"num_classes": 1}, "num_classes"),
        ({"mask_dir": tmp_path}, "mask_dir"),
        ({"val_fraction": 1.0}, "val_fraction"),
        ({"split": "random", "test_fraction": float("nan")}, "test_fraction"),
    ):
        with pytest.raises(DatalistError, match=word):
            build(**options)
    with pytest.raises(DatalistError, match="nowhere"):
        write_datalist(SETS["table"], tmp_path / "nowhere", tmp_path / "x.json")
