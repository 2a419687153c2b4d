# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Secondary Captures and Structured Reports, of DICOM files that are written here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from apps.worklist.makers import (
    HEADERS,
    NAME,
    assert_valid,
    fitted_detector,
    read_csv,
    result,
    write_raw,
    write_results,
    write_source,
)
from pydicom.sr.codedict import codes

from monai_afire.apps.worklist import AnomalyWriter
from monai_afire.apps.worklist.anomaly_result import save_result
from monai_afire.apps.worklist.dicom_results import NoStudyError
from monai_afire.apps.worklist.normal_images import Judgment
from monai_afire.networks import ModelFile, save_network
from monai_afire.networks.weights.description import Description
from monai_afire.transforms import LoadRadiograph
from monai_afire.transforms.radiograph_files import RadiographError

pytest.importorskip("highdicom")

MODEL = Description("anomaly detector", digest=f"sha256:{64 * 'a'}", version="1.2.3")
JUDGED = Judgment(0.0125, 2.0)
NUMBERS = {
    "Anomaly score": 2.5,
    "Threshold Value": 2.0,
    "Conformal p-value of the anomaly score": 0.0125,
}


def saved(source: Path, kind: str, out: Path, judgment: Judgment = JUDGED, **changes: Any) -> Path:
    """A result of a file, as a file."""
    facts = {"lung_zone": "right lung, upper zone", "model": MODEL, **changes}
    return save_result(result(source, judgment, **facts), kind, out)


def measurement_group(path: Path) -> Any:
    """Read by highdicom, which knows the template."""
    from highdicom.sr import srread

    [group] = srread(path).content.get_image_measurement_groups()
    return group


def numbers(path: Path) -> dict[str, float]:
    measured = measurement_group(path).get_measurements()
    return {each.name.meaning: float(each.value) for each in measured}


def texts_of(path: Path) -> set[str]:
    elements = pydicom.dcmread(path).iterall()
    return {element.value for element in elements if element.keyword == "TextValue"}


# ---- both


@pytest.mark.parametrize("kind", ["dicom", "sr"])
def test_a_result_lies_in_the_study_of_its_source(tmp_path: Path, kind: str) -> None:
    source = write_source(tmp_path / "a.dcm", TimezoneOffsetFromUTC="+0530")
    path = saved(source, kind, tmp_path / "out")
    made, original = pydicom.dcmread(path), pydicom.dcmread(source)
    assert path == tmp_path / "out/a.dcm"
    of_the_study = ("StudyInstanceUID", "StudyDate", "AccessionNumber")
    for keyword in (*of_the_study, "PatientName", "PatientID", "PatientBirthDate"):
        assert made[keyword].value == original[keyword].value, keyword
    assert str(made.PatientName) == NAME
    assert made.SeriesInstanceUID != original.SeriesInstanceUID
    assert made.SOPInstanceUID == made.file_meta.MediaStorageSOPInstanceUID
    assert made.SOPInstanceUID != original.SOPInstanceUID
    assert "not for clinical use" in made.SeriesDescription


@pytest.mark.parametrize("kind", ["dicom", "sr"])
def test_uids_follow_from_source_and_content(tmp_path: Path, kind: str) -> None:
    first, second = write_source(tmp_path / "a.dcm", 1), write_source(tmp_path / "b.dcm", 2)
    given = {"one": (first, 2.5), "again": (first, 2.5), "score": (first, 2.6)}
    given["other"] = (second, 2.5)
    made = {
        name: pydicom.dcmread(saved(source, kind, tmp_path / name, score=score))
        for name, (source, score) in given.items()
    }
    assert made["one"].SOPInstanceUID == made["again"].SOPInstanceUID
    assert len({each.SOPInstanceUID for each in made.values()}) == 3
    assert len({each.SeriesInstanceUID for each in made.values()}) == 1


@pytest.mark.parametrize(
    ("kind", "offset", "validated"), [("dicom", 1000, "SCImage"), ("sr", 2000, "ComprehensiveSR")]
)
@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_results_of_any_header_are_valid(
    tmp_path: Path, name: str, kind: str, offset: int, validated: str
) -> None:
    path = saved(write_raw(tmp_path / "a.dcm", HEADERS[name]), kind, tmp_path / "out")
    made = pydicom.dcmread(path)
    assert str(made.PatientName) == NAME
    assert offset <= made.SeriesNumber < 2**31
    assert_valid(path, validated)


def test_a_source_without_a_study_is_refused(tmp_path: Path) -> None:
    png = tmp_path / "a.png"
    png.write_bytes(b"\x89PNG\r\n\x1a\n")
    source = write_source(tmp_path / "a.dcm", StudyInstanceUID=None)
    for path, kind in [(png, "dicom"), (source, "dicom"), (source, "sr")]:
        with pytest.raises(NoStudyError, match=path.name):
            saved(path, kind, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---- Secondary Capture


def test_capture_shows_the_overlay_and_nothing_rescales_it(tmp_path: Path) -> None:
    source = write_source(tmp_path / "a.dcm")
    capture = pydicom.dcmread(saved(source, "dicom", tmp_path / "out"))
    np.testing.assert_array_equal(capture.pixel_array, result(source).picture_with_heat())
    assert (capture.PhotometricInterpretation, capture.BitsStored) == ("RGB", 8)
    assert not {"RescaleSlope", "WindowCenter", "VOILUTSequence"} & set(capture.dir())
    [reference] = capture.SourceImageSequence
    original = pydicom.dcmread(source)
    assert reference.ReferencedSOPInstanceUID == original.SOPInstanceUID
    assert capture.PatientOrientation == original.PatientOrientation
    assert list(capture.ImageType) == ["DERIVED", "SECONDARY"]
    assert capture.BurnedInAnnotation == "YES"
    assert "score 2.500, above the threshold of 2.000" in capture.DerivationDescription


@pytest.mark.parametrize("kind", ["dicom", "overlays", "thumbnails"])
def test_own_heat_maps_are_not_read_as_radiographs(tmp_path: Path, kind: str) -> None:
    path = saved(write_source(tmp_path / "a.dcm"), kind, tmp_path / "out")
    with pytest.raises(RadiographError, match="heat map"):
        LoadRadiograph()(path)


# ---- Structured Report


def test_report_says_what_was_found_by_which_model(tmp_path: Path) -> None:
    path = saved(write_source(tmp_path / "a.dcm"), "sr", tmp_path / "out")
    group, report = measurement_group(path), pydicom.dcmread(path)
    assert numbers(path) == NUMBERS
    [image] = group.source_images
    assert image.referenced_sop_instance_uid == "1.2.3.1"
    assert {"anomaly detector", "1.2.3", f"digest {MODEL.digest}"} <= texts_of(path)
    flags = (report.Modality, report.VerificationFlag, report.PreliminaryFlag)
    assert flags == ("SR", "UNVERIFIED", "PRELIMINARY")


def test_a_report_of_an_image_that_is_not_judged_says_why(tmp_path: Path) -> None:
    judgment = Judgment(not_judged="other view (" + "x" * 99 + ")")
    path = saved(write_source(tmp_path / "a.dcm"), "sr", tmp_path / "out", judgment)
    assert numbers(path) == {"Anomaly score": 2.5}
    [reason] = measurement_group(path).get_qualitative_evaluations()
    assert reason.value.meaning == judgment.not_judged[:64]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("", []),
        ("left lung, lower zone", [(codes.SCT.LowerZoneOfLung, codes.SCT.Left)]),
        ("right lung, middle zone", [(codes.SCT.MiddleZoneOfLung, codes.SCT.Right)]),
        ("between the lungs", [(codes.SCT.Mediastinum, None)]),
        ("outside the lungs", [(codes.SCT.Chest, None)]),
    ],
)
def test_the_place_is_a_finding_site(tmp_path: Path, place: str, expected: list) -> None:
    path = saved(write_source(tmp_path / "a.dcm"), "sr", tmp_path / "out", lung_zone=place)
    sites = measurement_group(path).finding_sites
    assert [(site.value, site.laterality) for site in sites] == expected


def test_a_report_agrees_with_the_table(tmp_path: Path) -> None:
    items, out = [{"image": str(write_source(tmp_path / "a.dcm"))}], tmp_path / "out"
    detector = fitted_detector()
    file = ModelFile(save_network(detector, tmp_path / "model.pt"))
    write_results(detector, items, out, saved=("sr",), model_file=file)
    [row] = read_csv(out / "worklist.csv")
    found = numbers(out / "sr/a.dcm")
    for name, column in zip(NUMBERS, ("score", "threshold", "p_value"), strict=True):
        assert found[name] == pytest.approx(float(row[column]), rel=1e-3)
    assert f"digest {file.description.digest}" in texts_of(out / "sr/a.dcm")


def test_without_highdicom_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highdicom", None)
    with pytest.raises(ImportError, match=r"monai-afire\[dicom\]"):
        AnomalyWriter(fitted_detector(), [], str(tmp_path), saved=("sr",))
