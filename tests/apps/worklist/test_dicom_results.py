# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Secondary Captures and Structured Reports, of DICOM files that are written here."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
import torch
from apps.worklist.dicom_sources import (
    HEADERS,
    NAME,
    assert_valid,
    result,
    write_raw,
    write_source,
)
from apps.worklist.test_anomaly_writer import Radiographs, fitted_detector, judging, read_csv
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes

from monai_afire.apps.worklist import AnomalyWriter
from monai_afire.apps.worklist.anomaly_result import (
    AnomalyResult,
    save_overlay,
    save_report,
    save_secondary_capture,
    save_thumbnail,
)
from monai_afire.apps.worklist.dicom_results import NoStudyError, read_source
from monai_afire.networks import ModelFile, save_network
from monai_afire.networks.weights.description import Description
from monai_afire.transforms.radiograph import LoadRadiograph
from monai_afire.transforms.radiograph_files import RadiographError

pytest.importorskip("highdicom")

OF_THE_STUDY = (
    *("StudyInstanceUID", "StudyDate", "AccessionNumber"),
    *("PatientName", "PatientID", "PatientBirthDate"),
)
MODEL = Description("anomaly detector", digest=f"sha256:{64 * 'a'}", version="1.2.3")

# ---- Secondary Capture


def test_capture_lies_in_the_study_of_its_source(tmp_path: Path) -> None:
    source = write_source(tmp_path / "a.dcm")
    path = save_secondary_capture(result(source), tmp_path / "out")
    assert path == tmp_path / "out/a.dcm"
    capture, original = pydicom.dcmread(path), pydicom.dcmread(source)
    for keyword in (*OF_THE_STUDY, "PatientOrientation"):
        assert capture[keyword].value == original[keyword].value, keyword
    assert str(capture.PatientName) == "Müller^Jörg"
    assert capture.SeriesInstanceUID != original.SeriesInstanceUID
    assert capture.SOPInstanceUID == capture.file_meta.MediaStorageSOPInstanceUID
    assert capture.SOPInstanceUID != original.SOPInstanceUID
    [reference] = capture.SourceImageSequence
    assert reference.ReferencedSOPInstanceUID == original.SOPInstanceUID
    assert reference.ReferencedSOPClassUID == original.SOPClassUID
    assert list(capture.ImageType) == ["DERIVED", "SECONDARY"]
    assert capture.ConversionType == "WSD"
    assert capture.BurnedInAnnotation == "YES"
    assert "score 2.500, above the threshold of 2.000" in capture.DerivationDescription


def test_items_of_sequences_are_in_the_character_set_of_the_capture(tmp_path: Path) -> None:
    issuer = Dataset()
    issuer.LocalNamespaceEntityID = "Kölner Straße"
    source = write_source(tmp_path / "a.dcm", IssuerOfAccessionNumberSequence=[issuer])
    capture = pydicom.dcmread(save_secondary_capture(result(source), tmp_path / "out"))
    [found] = capture.IssuerOfAccessionNumberSequence
    assert found.LocalNamespaceEntityID == issuer.LocalNamespaceEntityID


def test_own_heat_maps_are_not_read_as_radiographs(tmp_path: Path) -> None:
    given = result(write_source(tmp_path / "a.dcm"))
    for save in (save_secondary_capture, save_overlay, save_thumbnail):
        with pytest.raises(RadiographError, match="heat map"):
            LoadRadiograph()(save(given, tmp_path / "out"))


def test_capture_shows_the_overlay_and_nothing_rescales_it(tmp_path: Path) -> None:
    given = result(write_source(tmp_path / "a.dcm"))
    capture = pydicom.dcmread(save_secondary_capture(given, tmp_path))
    np.testing.assert_array_equal(capture.pixel_array, given.picture_with_heat())
    assert (capture.PhotometricInterpretation, capture.BitsStored, capture.PixelRepresentation) == (
        "RGB",
        8,
        0,
    )
    rescaling = ("RescaleSlope", "RescaleIntercept", "WindowCenter", "VOILUTSequence")
    assert not set(rescaling) & set(capture.dir())


def test_uids_follow_from_source_and_picture(tmp_path: Path) -> None:
    first, second = write_source(tmp_path / "a.dcm", 1), write_source(tmp_path / "b.dcm", 2)
    made = {}
    for name, given in {
        "one": result(first),
        "score": result(first, score=2.6),
        "other": result(second),
    }.items():
        path = save_secondary_capture(given, tmp_path / name)
        made[name] = pydicom.dcmread(path)
        again = pydicom.dcmread(save_secondary_capture(given, tmp_path / name))
        assert again.SOPInstanceUID == made[name].SOPInstanceUID
        assert again.PixelData == made[name].PixelData
        assert made[name].SOPInstanceUID.is_valid
    assert len({capture.SOPInstanceUID for capture in made.values()}) == 3
    assert len({capture.SeriesInstanceUID for capture in made.values()}) == 1


@pytest.mark.parametrize("missing", ["StudyInstanceUID", "SeriesInstanceUID"])
def test_a_source_without_a_study_is_refused(tmp_path: Path, missing: str) -> None:
    source = write_source(tmp_path / "a.dcm", **{missing: None})
    with pytest.raises(NoStudyError, match=rf"a\.dcm has no {missing}"):
        save_secondary_capture(result(source), tmp_path / "out")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(NoStudyError, match="is no DICOM file"):
        read_source(tmp_path / "a.png")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_captures_of_any_header_are_valid(tmp_path: Path, name: str) -> None:
    path = save_secondary_capture(
        result(write_raw(tmp_path / "a.dcm", HEADERS[name])), tmp_path / "out"
    )
    capture = pydicom.dcmread(path)
    assert str(capture.PatientName) == NAME
    assert 1000 <= capture.SeriesNumber < 2**31
    assert_valid(path, "SCImage")


# ---- Structured Report


def reported(source: Path, **changes: Any) -> AnomalyResult:
    return result(
        source,
        **{"p_value": 0.0125, "lung_zone": "right lung, upper zone", "model": MODEL, **changes},
    )


def measurement_group(path: Path) -> Any:
    """Read by highdicom, which knows the template."""
    from highdicom.sr import srread

    [group] = srread(path).content.get_image_measurement_groups()
    return group


def numbers(path: Path) -> dict[str, float]:
    return {
        each.name.meaning: float(each.value) for each in measurement_group(path).get_measurements()
    }


def texts_of(path: Path) -> set[str]:
    return {
        element.value
        for element in pydicom.dcmread(path).iterall()
        if element.keyword == "TextValue"
    }


def test_report_says_what_was_found_by_which_model(tmp_path: Path) -> None:
    path = save_report(reported(write_source(tmp_path / "a.dcm")), tmp_path / "out")
    group = measurement_group(path)
    assert numbers(path) == {
        "Anomaly score": 2.5,
        "Threshold Value": 2.0,
        "Conformal p-value of the anomaly score": 0.0125,
    }
    [site] = group.finding_sites
    assert (site.value, site.laterality) == (codes.SCT.UpperZoneOfLung, codes.SCT.Right)
    [image] = group.source_images
    assert image.referenced_sop_instance_uid == "1.2.3.1"
    assert {"anomaly detector", "1.2.3", f"digest {MODEL.digest}"} <= texts_of(path)


def test_a_report_of_an_image_that_is_not_judged_says_why(tmp_path: Path) -> None:
    unknown = {"threshold": math.nan, "p_value": math.nan, "not_judged": "child (7 years)"}
    path = save_report(reported(write_source(tmp_path / "a.dcm"), **unknown), tmp_path / "out")
    assert numbers(path) == {"Anomaly score": 2.5}
    [reason] = measurement_group(path).get_qualitative_evaluations()
    assert reason.value.meaning == "child (7 years)"
    assert reason.name.meaning == "Not like the images that the detector knows"
    long = reported(write_source(tmp_path / "b.dcm", 2), not_judged="other view (" + "x" * 99 + ")")
    [reason] = measurement_group(save_report(long, tmp_path / "out")).get_qualitative_evaluations()
    assert len(reason.value.meaning) == 64


def test_report_lies_in_the_study_of_its_source(tmp_path: Path) -> None:
    source = write_source(tmp_path / "a.dcm", TimezoneOffsetFromUTC="+0530")
    report, original = (
        pydicom.dcmread(save_report(reported(source), tmp_path / "out")),
        pydicom.dcmread(source),
    )
    for keyword in OF_THE_STUDY:
        assert report[keyword].value == original[keyword].value, keyword
    assert report.SeriesInstanceUID != original.SeriesInstanceUID
    assert (report.Modality, report.VerificationFlag, report.PreliminaryFlag) == (
        "SR",
        "UNVERIFIED",
        "PRELIMINARY",
    )
    assert "not for clinical use" in report.SeriesDescription
    again = pydicom.dcmread(save_report(reported(source), tmp_path / "again"))
    other = pydicom.dcmread(save_report(reported(source, score=2.6), tmp_path / "other"))
    assert report.SOPInstanceUID == again.SOPInstanceUID != other.SOPInstanceUID
    assert report.SeriesInstanceUID == other.SeriesInstanceUID


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
def test_what_is_not_known_is_left_out(tmp_path: Path, place: str, expected: list) -> None:
    given = reported(
        write_source(tmp_path / "a.dcm"), p_value=math.nan, threshold=math.nan, lung_zone=place
    )
    path = save_report(given, tmp_path / "out")
    assert numbers(path) == {"Anomaly score": 2.5}
    assert [
        (site.value, site.laterality) for site in measurement_group(path).finding_sites
    ] == expected


def test_headers_that_break_the_rules_are_copied_or_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Invalid value"):
        source = write_source(
            tmp_path / "a.dcm", PatientSex="male", PatientBirthDate="unknown", SeriesNumber=0
        )
    report = pydicom.dcmread(save_report(reported(source), tmp_path / "out"))
    assert report.PatientSex == "male"
    for changes in ({"StudyInstanceUID": None}, {"SOPClassUID": "1.2.3.4"}):
        with pytest.raises(NoStudyError):
            save_report(reported(write_source(tmp_path / "a.dcm", **changes)), tmp_path / "out")


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_reports_of_any_header_are_valid(tmp_path: Path, name: str) -> None:
    path = save_report(reported(write_raw(tmp_path / "a.dcm", HEADERS[name])), tmp_path / "out")
    report = pydicom.dcmread(path)
    assert str(report.PatientName) == NAME
    assert 2000 <= report.SeriesNumber < 2**31
    assert_valid(path, "ComprehensiveSR")


def test_writer_reports_what_its_table_says(tmp_path: Path) -> None:
    items = [{"image": str(write_source(tmp_path / "a.dcm"))}]
    out, data = tmp_path / "out", Radiographs(tmp_path / "pictures", ["a.png"])
    detector = fitted_detector()
    file = ModelFile(save_network(detector, tmp_path / "model.pt"))
    engine = judging(detector)
    AnomalyWriter(detector, items, str(out), saved=("sr",), model_file=file).attach(engine)
    torch.manual_seed(0)
    engine.run(data.batches())
    [row] = read_csv(out / "worklist.csv")
    found = numbers(out / "sr/a.dcm")
    assert found["Anomaly score"] == pytest.approx(float(row["score"]), rel=1e-5)
    assert found["Threshold Value"] == pytest.approx(float(row["threshold"]), rel=1e-5)
    assert found["Conformal p-value of the anomaly score"] == pytest.approx(
        float(row["p_value"]), rel=1e-3
    )
    assert f"digest {file.description.digest}" in texts_of(out / "sr/a.dcm")
    assert bool(row.get("lung_zone")) == bool(measurement_group(out / "sr/a.dcm").finding_sites)


def test_without_highdicom_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highdicom", None)
    with pytest.raises(ImportError, match=r"monai-afire\[dicom\]"):
        AnomalyWriter(fitted_detector(), [], str(tmp_path), saved=("sr",))
