# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The work-list: its order, who is named, what it says of the folder as a whole."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pydicom
import pytest
from apps.worklist.makers import read_csv, result, write_source
from scipy.stats import ks_2samp

from monai_afire.apps.worklist.anomaly_result import save_result
from monai_afire.apps.worklist.batch_report import drift
from monai_afire.apps.worklist.normal_images import Judgment
from monai_afire.apps.worklist.worklist import (
    IDENTIFIERS,
    JUDGMENT_COLUMNS,
    UIDS,
    described_image,
    judgment_cells,
    summary,
    write_worklist,
)
from monai_afire.detection import conformal_p_values
from monai_afire.transforms.radiograph_header import header_of


def write_scores(
    path: Path, rows: list[tuple[str, str, str, str]], judged: Sequence[Judgment] = ()
) -> Path:
    """A table of scores, with judgments where they are given."""
    columns = ("image", "abnormal", "fused", "hottest", "lung_zone", *JUDGMENT_COLUMNS)
    cells = [judgment_cells(each) for each in judged or [Judgment()] * len(rows)]
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = [[*row, "", *more] for row, more in zip(rows, cells, strict=True)]
        csv.writer(file).writerows([columns, *lines])
    return path


def described(source: Path, patient_identifiers: bool = False) -> dict[str, dict[str, str]]:
    header = header_of(str(source), [*UIDS.values(), *IDENTIFIERS.values()])
    return {str(source): described_image(header, patient_identifiers)}


def test_the_most_suspicious_image_comes_first(tmp_path: Path) -> None:
    source = write_source(tmp_path / "b.dcm")
    rows = [
        ("a.png", "0", "-0.5", ""),
        (str(source), "1", "2.5", "upper left"),
        ("c, d.png", "0", "1e-3", "center"),
    ]
    judged = [Judgment(np.nan, 2.0, percentile) for percentile in (-5.0, 25.0, 0.01)]
    scores, path = write_scores(tmp_path / "scores.csv", rows, judged), tmp_path / "worklist.csv"
    assert summary(write_worklist(scores, path, described(source))) == "1 of 3 above the threshold"
    first, second, third = read_csv(path)
    shown = ("rank", "score", "threshold", "decision", "percentile", "hottest", "image")
    cells = ["1", "2.5", "2", "above", "25.0", "upper left", str(source)]
    assert [first[name] for name in shown] == cells
    assert [first[name] for name in UIDS] == ["1.2.1", "1.2.2", "1.2.3.1", "A-815"]
    assert [second[name] for name in UIDS] == [""] * 4
    names = [(row["image"], row["decision"]) for row in (second, third)]
    assert names == [("c, d.png", "below"), ("a.png", "below")]
    assert not {"p_value", "not_judged", "other_view", "age"} & set(first), "columns are not empty"


def test_images_of_two_views_are_ordered_by_their_own_normal_images(tmp_path: Path) -> None:
    """A score of 2.1 is below the threshold of AP images, one of 1.3 above that of PA images."""
    listed = [
        ("pa first.png", "1.9", Judgment(9.5e-05, 1.15, 99.99, True, "PA")),
        ("ap equal.png", "2.6", Judgment(0.03, 2.257, 97.0, True, "AP")),
        ("pa equal.png", "1.3", Judgment(0.03, 1.15, 97.0, True, "PA")),
        ("ap below.png", "2.1", Judgment(0.0697, 2.257, 93.0, False, "AP")),
        ("pa below.png", "-0.5", Judgment(0.6, 1.15, 40.0, False, "PA")),
        ("lateral.png", "9.5", Judgment(not_judged="lateral view")),
        ("child.png", "9", Judgment(not_judged="child (7 years)")),
    ]
    decided = {None: "", False: "0", True: "1"}
    rows = [(name, decided[each.above], score, "") for name, score, each in listed[::-1]]
    scores = write_scores(tmp_path / "scores.csv", rows, [each[2] for each in listed[::-1]])
    said = summary(write_worklist(scores, tmp_path / "worklist.csv", {}), "compared with 99")
    found = read_csv(tmp_path / "worklist.csv")
    assert [row["image"] for row in found] == [each[0] for each in listed]
    assert [row["rank"] for row in found] == list("1234567")
    for row in found[5:]:  # they are not judged, and move no other
        assert {row[name] for name in ("p_value", "decision", "threshold", "percentile")} == {""}
    assert [row["not_judged"] for row in found[4:]] == ["", "lateral view", "child (7 years)"]
    assert "3 of 5 above the threshold; 4 at a false discovery rate of 10 %" in said
    assert "2 not judged: lateral view (1), child (1); compared with 99" in said


def test_patients_are_named_only_when_asked_for(tmp_path: Path) -> None:
    source, path = write_source(tmp_path / "b.dcm"), tmp_path / "worklist.csv"
    scores = write_scores(tmp_path / "scores.csv", [(str(source), "", "2.5", "")])
    worklist = write_worklist(scores, path, described(source))
    assert summary(worklist) == "1 image by score, without a threshold"
    for private in ("Müller", "4711", "1950"):
        assert private not in path.read_text(encoding="utf-8")
    write_worklist(scores, path, described(source, True))
    [row] = read_csv(path)
    assert [row[name] for name in IDENTIFIERS] == ["4711", "Müller^Jörg", "19500101"]


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)"])
def test_no_spreadsheet_runs_what_a_header_says(tmp_path: Path, text: str) -> None:
    source = write_source(tmp_path / "b.dcm", PatientName=text, AccessionNumber=text)
    scores = write_scores(tmp_path / "scores.csv", [(str(source), "", "-2.5", "")])
    write_worklist(scores, tmp_path / "worklist.csv", described(source, True))
    [row] = read_csv(tmp_path / "worklist.csv")
    assert (row["patient_name"], row["accession_number"]) == ("'" + text, "'" + text)
    assert row["score"] == "-2.5"
    capture = pydicom.dcmread(save_result(result(source), "dicom", tmp_path))
    assert (str(capture.PatientName), capture.AccessionNumber) == (text, text)


def test_equal_scores_keep_their_order_and_an_empty_table_is_a_list(tmp_path: Path) -> None:
    path = tmp_path / "worklist.csv"
    scores = write_scores(tmp_path / "scores.csv", [(name, "0", "1", "") for name in "cab"])
    write_worklist(scores, path, {})
    assert [row["image"] for row in read_csv(path)] == ["c", "a", "b"]
    assert summary(write_worklist(write_scores(scores, []), path, {})).startswith("0 images")
    assert read_csv(path) == []


# ---- the folder as a whole


def folder(p_values: Any, scanners: Any = "") -> pd.DataFrame:
    return pd.DataFrame({"p_value": p_values, "view": "", "scanner": scanners})


def test_the_same_images_do_not_drift_and_a_shift_names_its_group() -> None:
    random = np.random.default_rng(0)
    assert drift(folder(random.uniform(size=200)), 1000) == ""
    values = np.concatenate([random.uniform(size=100), random.uniform(size=100) ** 4])
    values[3] = np.nan  # not judged
    said = drift(folder(values, ["A"] * 100 + ["B"] * 100), 1000)
    own = drift(folder(values, ["A"] * 100 + ["B"] * 100), 1000, own=True)
    assert ("--calibrate" in said, "--calibrate" in own) == (True, False)
    share = (values[np.isfinite(values)] <= 0.5).mean()
    assert "the 199 judged images" in said
    assert f"{100 * share:.0f} % of them" in said
    assert "largest for scanner B" in said


def test_too_few_images_are_not_tested() -> None:
    assert drift(folder([0.001] * 19 + [np.nan] * 50), 1000) == ""
    assert drift(folder([0.001] * 20), 1000) != ""


@pytest.mark.parametrize("shift", [0.0, 1.4, 3.0])
def test_the_difference_is_that_of_two_samples(shift: float) -> None:
    random = np.random.default_rng(0)
    normal, scores = random.normal(size=19), shift + random.normal(size=400)
    said = drift(folder(conformal_p_values(scores, normal)), 19)
    assert bool(said) == (ks_2samp(scores, normal).pvalue < 0.001)
