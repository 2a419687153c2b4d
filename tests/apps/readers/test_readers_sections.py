# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tests of the division by patient."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monai_afire.apps.readers import datalist_writing
from monai_afire.apps.readers.__main__ import main
from monai_afire.apps.readers.datalist_writing import Division
from monai_afire.apps.readers.label_reader import LabeledImage
from monai_afire.data.datalist.datalist_checks import SECTIONS
from monai_afire.data.datalist.loading import DatalistError


def images_of(patients: list[int], sections: list[str] | None = None) -> list[LabeledImage]:
    of_images: list[str | None] = [*sections] if sections else [None] * len(patients)
    return [
        LabeledImage(f"{n}.png", None, {"patient_id": str(patient)}, section)
        for n, (patient, section) in enumerate(zip(patients, of_images, strict=True))
    ]


def divide(images: list[LabeledImage], how: Division) -> tuple[dict[str, list[LabeledImage]], int]:
    """The images of each section, and how many are left out."""
    kept = datalist_writing.divide(images, how)
    return {name: [image for image in kept if image.section == name] for name in SECTIONS}, len(
        images
    ) - len(kept)


def patients_in(sections: dict[str, list[LabeledImage]]) -> dict[str, set[str]]:
    return {
        name: {image.item["patient_id"] for image in members} for name, members in sections.items()
    }


FRACTIONS = st.floats(0, 0.95)


@given(
    st.lists(st.integers(0, 12), min_size=3, max_size=40), FRACTIONS, FRACTIONS, st.integers(0, 9)
)
def test_no_patient_is_in_two_sections_and_no_image_is_lost(
    patients: list[int], val_fraction: float, test_fraction: float, seed: int
) -> None:
    images = images_of([*patients, 97, 98, 99])
    try:
        sections, dropped = divide(images, Division(val_fraction, test_fraction, seed))
    except DatalistError as error:
        # all patients but one are in test
        if "one patient" in str(error) and val_fraction > 0 and test_fraction > 0.2:
            return
        raise
    assert list(sections) == list(SECTIONS)
    for one, other in combinations(patients_in(sections).values(), 2):
        assert not one & other
    names = sorted(image.name for members in sections.values() for image in members)
    assert names == sorted(image.name for image in images)
    assert dropped == 0
    assert bool(sections["validation"]) == (val_fraction > 0)
    assert bool(sections["test"]) == (test_fraction > 0)
    assert sections["training"]


@given(
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from(SECTIONS)), min_size=1, max_size=30),
    st.sampled_from([0.0, 0.3]),
)
def test_official_sections_never_overlap(
    listed: list[tuple[int, str]], val_fraction: float
) -> None:
    images = images_of([p for p, _ in listed] + [98, 99], [s for _, s in listed] + ["training"] * 2)
    in_sections = {section: {p for p, s in listed if s == section} for section in SECTIONS}
    overlap = any(one & other for one, other in combinations(in_sections.values(), 2))
    if overlap:
        with pytest.raises(DatalistError, match=r"patients? in two sections"):
            divide(images, Division(val_fraction))
    sections, dropped = divide(images, Division(val_fraction, drop_overlap=True))
    for one, other in combinations(patients_in(sections).values(), 2):
        assert not one & other
    assert (dropped > 0) == overlap
    assert sum(map(len, sections.values())) == len(images) - dropped
    # the test section is never touched
    assert [i.name for i in sections["test"]] == [i.name for i in images if i.section == "test"]


def test_fractions_are_met_and_choices_are_independent() -> None:
    sections, _ = divide(
        images_of(list(range(4000))), Division(val_fraction=0.25, test_fraction=0.2)
    )
    assert len(sections["test"]) == pytest.approx(800, abs=80)
    assert len(sections["validation"]) == pytest.approx(0.25 * 3200, abs=80)


def test_division_is_reproducible_and_depends_on_the_seed() -> None:
    def divided(seed: int, patients: list[int]) -> dict[str, set[str]]:
        return patients_in(divide(images_of(patients), Division(0.3, 0.3, seed))[0])

    everyone = list(range(200))
    assert divided(0, everyone) == divided(0, everyone[::-1])
    assert divided(0, everyone) != divided(1, everyone)
    # those who come later move nobody
    before, after = divided(0, everyone[:150]), divided(0, everyone)
    assert all(before[name] <= after[name] for name in SECTIONS)


def test_official_validation_is_kept_and_missing_one_is_taken_from_training() -> None:
    patients = list(range(30))
    given_all = ["training"] * 10 + ["validation"] * 10 + ["test"] * 10
    sections, _ = divide(images_of(patients, given_all), Division(val_fraction=0.5))
    assert [len(sections[name]) for name in SECTIONS] == [10, 10, 10]
    sections, _ = divide(
        images_of(patients, ["training"] * 20 + ["test"] * 10), Division(val_fraction=0.5)
    )
    assert len(sections["test"]) == 10
    assert 0 < len(sections["validation"]) < 20
    sections, _ = divide(
        images_of(patients, ["training"] * 20 + ["test"] * 10), Division(val_fraction=0)
    )
    assert [len(sections[name]) for name in SECTIONS] == [20, 0, 10]


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
def test_fractions_out_of_range(value: float) -> None:
    with pytest.raises(DatalistError, match="val_fraction"):
        Division(val_fraction=value)
    with pytest.raises(DatalistError, match="test_fraction"):
        Division(test_fraction=value)


def test_too_few_patients() -> None:
    with pytest.raises(DatalistError, match="give --test_fraction 0"):
        divide(images_of([1, 1]), Division())
    with pytest.raises(DatalistError, match="give --val_fraction 0"):
        divide(images_of([1, 1]), Division(test_fraction=0))
    sections, _ = divide(images_of([1, 1]), Division(0, 0))
    assert len(sections["training"]) == 2


def test_validation_that_cannot_be_measured_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def report(number: int) -> str:
        names = [f"{each}.png" for each in range(number)]
        for name in names:
            (tmp_path / name).touch()
        rows = [f"{name},{place % 2},{int(place == 0)}" for place, name in enumerate(names)]
        (tmp_path / "labels.csv").write_text("\n".join(["image,edema,effusion", *rows]) + "\n")
        words = ["--label_columns", "edema", "effusion", "--output", str(tmp_path / "list.json")]
        assert main(["table", "--root", str(tmp_path), *words]) == 0
        return capsys.readouterr().out

    few = report(30)
    assert re.search(r"validation has only \d+ images?: .* --val_fraction", few)
    assert re.search(r"no two images differ in .*effusion: .* nan .* --val_fraction", few)
    many = report(800)
    assert "validation has only" not in many
    assert "differ in effusion" in many  # of one image alone
    assert "edema" not in many.split("differ in")[1].split(":")[0]
