# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Work-list and Secondary Captures, of DICOM files that are written here."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pydicom
import pytest
from pydicom.datadict import dictionary_VR
from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.tag import Tag
from pydicom.uid import (
    CTImageStorage,
    DigitalXRayImageStorageForPresentation,
    ExplicitVRLittleEndian,
)

from monai_afire.apps.worklist.anomaly_result import (
    AnomalyResult,
    save_map,
    save_overlay,
    save_secondary_capture,
    save_thumbnail,
)
from monai_afire.apps.worklist.dicom_results import NoStudyError, read_source
from monai_afire.apps.worklist.heat_places import hottest_place
from monai_afire.apps.worklist.normal_images import Judgment
from monai_afire.apps.worklist.worklist import (
    JUDGMENT_COLUMNS,
    WorklistSummary,
    described_image,
    judgment_cells,
    write_worklist,
)
from monai_afire.transforms.radiograph import LoadRadiograph
from monai_afire.transforms.radiograph_files import RadiographError


def write_source(path: Path, number: int = 1, **changes: Any) -> Path:
    """A radiograph as an archive has it; None leaves an element out."""
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    facts: dict[str, Any] = {
        "SpecificCharacterSet": "ISO_IR 100",
        "SOPClassUID": DigitalXRayImageStorageForPresentation,
        "SOPInstanceUID": f"1.2.3.{number}",
        "StudyInstanceUID": "1.2.1",
        "SeriesInstanceUID": "1.2.2",
        "SeriesNumber": 2,
        "InstanceNumber": number,
        "PatientName": "Müller^Jörg",
        "PatientID": "4711",
        "PatientBirthDate": "19500101",
        "PatientSex": "M",
        "StudyDate": "20240102",
        "StudyTime": "120000",
        "ReferringPhysicianName": "",
        "StudyID": "7",
        "AccessionNumber": "A-815",
        "PatientOrientation": ["L", "F"],
        "BodyPartExamined": "CHEST",
        "Modality": "DX",
        "RescaleSlope": "1",
        "RescaleIntercept": "0",
        "WindowCenter": "2048",
        "WindowWidth": "4096",
        **changes,
    }
    for keyword, value in facts.items():
        if value is not None:
            setattr(dataset, keyword, value)
    dataset.set_pixel_data(np.arange(40 * 30, dtype=np.uint16).reshape(40, 30), "MONOCHROME2", 12)
    dataset.SOPInstanceUID = facts["SOPInstanceUID"] or "1.2.3"
    dataset.save_as(path, enforce_file_format=True)
    return path


def result(source: Path, **changes: Any) -> AnomalyResult:
    heat = np.zeros((24, 24), np.float32)
    heat[3:6, 18:21] = 4.0
    facts: dict[str, Any] = {
        "source": str(source),
        "root": str(source.parent),
        "heat": heat,
        "tokens": np.zeros((9, 5), np.float32),
        "picture": np.linspace(0, 255, 64 * 64).reshape(64, 64).astype(np.uint8),
        "spatial_shape": (40, 30),
        "affine": np.eye(4),
        "heat_range": (1.0, 3.0),
        "score": 2.5,
        "threshold": 2.0,
    }
    return AnomalyResult(**(facts | changes))


# ---- Secondary Capture


def test_capture_lies_in_the_study_of_its_source(tmp_path: Path) -> None:
    source = write_source(tmp_path / "a.dcm")
    path = save_secondary_capture(result(source), tmp_path / "out")
    assert path == tmp_path / "out/a.dcm"
    capture, original = pydicom.dcmread(path), pydicom.dcmread(source)
    for keyword in (
        "StudyInstanceUID",
        "PatientName",
        "PatientID",
        "AccessionNumber",
        "PatientOrientation",
    ):
        assert capture[keyword].value == original[keyword].value, keyword
    assert str(capture.PatientName) == "Müller^Jörg"
    assert capture.SeriesInstanceUID != original.SeriesInstanceUID
    assert (
        capture.SOPInstanceUID
        == capture.file_meta.MediaStorageSOPInstanceUID
        != original.SOPInstanceUID
    )
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
        with pytest.raises(
            RadiographError, match="is a heat map that monai_afire wrote, not a radiograph"
        ):
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
    for keyword in (
        "RescaleSlope",
        "RescaleIntercept",
        "WindowCenter",
        "WindowWidth",
        "VOILUTSequence",
    ):
        assert keyword not in capture, keyword
    del capture.SecondaryCaptureDeviceManufacturer  # with it, the picture is no radiograph to us
    capture.save_as(tmp_path / "a.dcm.dcm")
    with pytest.warns(UserWarning, match="is a color picture"):
        read = LoadRadiograph()(str(tmp_path / "a.dcm.dcm"))
    assert tuple(read.shape[1:]) == given.picture_with_heat().shape[:2]


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


@pytest.mark.parametrize("offset", [None, "+0545"])
def test_capture_says_when_it_was_made(tmp_path: Path, offset: str | None) -> None:
    zone = datetime.strptime(offset, "%z").tzinfo if offset else None
    source = write_source(
        tmp_path / "a.dcm", **({"TimezoneOffsetFromUTC": offset} if offset else {})
    )
    before = datetime.now(zone).replace(microsecond=0)
    capture = pydicom.dcmread(save_secondary_capture(result(source), tmp_path))
    made = datetime.strptime(capture.ContentDate + capture.ContentTime, "%Y%m%d%H%M%S").replace(
        tzinfo=zone
    )
    assert before <= made <= datetime.now(zone)


def test_what_was_lost_or_may_be_burned_in_is_not_forgotten(tmp_path: Path) -> None:
    facts = {
        "LossyImageCompression": "01",
        "LossyImageCompressionRatio": 10,
        "BurnedInAnnotation": "NO",
    }
    source = write_source(tmp_path / "a.dcm", LossyImageCompressionMethod="ISO_10918_1", **facts)
    capture = pydicom.dcmread(save_secondary_capture(result(source), tmp_path))
    assert (capture.LossyImageCompression, capture.LossyImageCompressionRatio) == ("01", 10)
    assert capture.BurnedInAnnotation == "NO"


@pytest.mark.parametrize("missing", ["StudyInstanceUID", "SeriesInstanceUID"])
def test_a_source_without_a_study_is_refused(tmp_path: Path, missing: str) -> None:
    source = write_source(tmp_path / "a.dcm", **{missing: None})
    with pytest.raises(NoStudyError, match=rf"a\.dcm has no {missing}"):
        save_secondary_capture(result(source), tmp_path / "out")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(NoStudyError, match="is no DICOM file"):
        read_source(tmp_path / "a.png")
    assert not (tmp_path / "out").exists()


NAME = "Müller^Jörg"
HEADERS: dict[str, dict[str, bytes | None]] = {
    "as it should be": {},
    "few elements": {"PatientID": None, "PatientSex": None, "StudyID": None, "SeriesNumber": None},
    "largest number": {"SeriesNumber": b"2147483647"},
    "numbers out of range": {"SeriesNumber": b"99999999999", "InstanceNumber": b"2147483648"},
    "negative number": {"SeriesNumber": b"-2147483648"},
    "no number": {"SeriesNumber": b"CR 1", "InstanceNumber": b"1.5"},
    "no time zone": {"TimezoneOffsetFromUTC": b"CET"},
    "Latin-1 as Unicode": {
        "SpecificCharacterSet": b"ISO_IR 192",
        "PatientName": NAME.encode("latin-1"),
    },
    "Unicode as nothing": {"SpecificCharacterSet": b"", "PatientName": NAME.encode()},
    "Latin-1 as ASCII": {
        "SpecificCharacterSet": b"ISO_IR 6",
        "PatientName": NAME.encode("latin-1"),
    },
    "Latin-1 as another word": {
        "SpecificCharacterSet": b"LATIN1",
        "PatientName": NAME.encode("latin-1"),
    },
    "Latin-1 misspelled": {
        "SpecificCharacterSet": b"ISO-IR 100",
        "PatientName": NAME.encode("latin-1"),
    },
    "other texts": {
        "SpecificCharacterSet": b"",
        "AccessionNumber": "Ö-815".encode(),
        "PatientName": NAME.encode(),
    },
}


def write_raw(path: Path, changes: dict[str, bytes | None]) -> Path:
    """A source whose elements have these bytes, valid or not; None leaves an element out."""
    dataset = pydicom.dcmread(write_source(path))
    for keyword, value in changes.items():
        tag = Tag(keyword)
        if value is None:
            del dataset[tag]
        else:
            even = value + b" " * (len(value) % 2)
            dataset[tag] = RawDataElement(tag, dictionary_VR(tag), len(even), even, 0, False, True)
    dataset.save_as(path)
    return path


def assert_valid(path: Path, kind: str) -> None:
    """Each value fits its VR and character set by pydicom, and dciodvfy finds no error; CI must have it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pydicom.config.settings, "reading_validation_mode", pydicom.config.RAISE)
        elements = list(pydicom.dcmread(path).iterall())
    numbers = [
        element.value for element in elements if element.VR == "IS" and element.value is not None
    ]
    assert all(abs(int(value)) < 2**31 for value in numbers)
    validator = shutil.which("dciodvfy")
    if validator is None:
        assert "MONAI_AFIRE_CI" not in os.environ, (
            "CI checks with dciodvfy: apt-get install dicom3tools"
        )
        pytest.skip("dciodvfy (Debian package dicom3tools) is not installed")
    said = subprocess.run(
        [validator, str(path)], capture_output=True, text=True, errors="replace", check=False
    )
    assert kind in said.stderr + said.stdout
    assert "Error" not in said.stderr + said.stdout


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


@pytest.mark.parametrize(
    "affine", [(-0.2, 0.3, 1), (0.2, 1, 0.3), (1, 0.2, -0.3)], ids=["axial", "coronal", "sagittal"]
)
def test_a_map_lies_on_its_file(tmp_path: Path, affine: tuple[float, ...]) -> None:
    """In nibabel's canonical orientation, the map of the picture itself is the picture."""
    values = np.random.default_rng(0).random((40, 50)).astype(np.float32)
    matrix = np.diag([*affine, 1.0])
    matrix[:3, 3] = 4, 5, 6
    nibabel.Nifti1Image(np.expand_dims(values, affine.index(1)), matrix).to_filename(
        tmp_path / "a.nii"
    )
    image = LoadRadiograph()(tmp_path / "a.nii")
    facts = {
        "heat": np.asarray(image[0]),
        "spatial_shape": image.shape[1:],
        "affine": np.asarray(image.affine),
    }
    path = save_map(result(tmp_path / "a.nii", **facts), tmp_path / "out")
    saved = nibabel.load(path)
    saved = nibabel.Nifti1Image(saved.get_fdata()[..., None], saved.affine)
    there, back = (
        nibabel.as_closest_canonical(image) for image in (nibabel.load(tmp_path / "a.nii"), saved)
    )
    np.testing.assert_allclose(back.affine, there.affine, atol=1e-5)
    np.testing.assert_allclose(back.get_fdata(), there.get_fdata(), atol=1e-5)


# ---- work-list


def write_scores(
    path: Path, rows: list[tuple[str, str, str, str]], judged: Sequence[Judgment] = ()
) -> Path:
    """A table of scores, with judgments where they are given."""
    columns = ("image", "abnormal", "fused", "hottest", *(JUDGMENT_COLUMNS if judged else ()))
    cells = [judgment_cells(each) for each in judged] or [[]] * len(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = [[*row, *more] for row, more in zip(rows, cells, strict=True)]
        csv.writer(file).writerows([columns, *lines])
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_most_suspicious_image_comes_first(tmp_path: Path) -> None:
    source = write_source(tmp_path / "b.dcm")
    rows = [
        ("a.png", "0", "-0.5", ""),
        (str(source), "1", "2.5", "upper left"),
        ("c, d.png", "0", "1e-3", "center"),
    ]
    judged = [Judgment(np.nan, 2.0, percentile) for percentile in (-5.0, 25.0, 0.01)]
    scores = write_scores(tmp_path / "scores.csv", rows, judged)
    path = tmp_path / "worklist.csv"
    summary = write_worklist(scores, path, {str(source): described_image(str(source))})
    assert summary == WorklistSummary(3, 1)
    assert str(summary) == "1 of 3 above the threshold"
    first, second, third = read_csv(path)
    assert (first["rank"], first["score"], first["threshold"], first["decision"]) == (
        "1",
        "2.5",
        "2",
        "above",
    )
    assert (first["percentile"], first["hottest"], first["image"]) == (
        "25.0",
        "upper left",
        str(source),
    )
    uids = ["study_instance_uid", "series_instance_uid", "sop_instance_uid", "accession_number"]
    assert [first[name] for name in uids] == ["1.2.1", "1.2.2", "1.2.3.1", "A-815"]
    assert [second[name] for name in uids] == [""] * 4
    assert [(row["image"], row["decision"]) for row in (second, third)] == [
        ("c, d.png", "below"),
        ("a.png", "below"),
    ]


def test_images_of_two_views_are_ordered_by_their_own_normal_images(tmp_path: Path) -> None:
    """A score of 2.1 is below the threshold of AP images, one of 1.3 above that of PA images."""
    listed = [
        ("ap below.png", "2.1", Judgment(0.0697, 2.257, 93.0, False, "AP")),
        ("child.png", "9", Judgment(not_judged="child (7 years)")),
        ("pa below.png", "-0.5", Judgment(0.6, 1.15, 40.0, False, "PA")),
        ("ap equal.png", "2.6", Judgment(0.03, 2.257, 97.0, True, "AP")),
        ("pa equal.png", "1.3", Judgment(0.03, 1.15, 97.0, True, "PA")),
        ("pa first.png", "1.9", Judgment(9.5e-05, 1.15, 99.99, True, "PA")),
        ("lateral.png", "9.5", Judgment(not_judged="lateral view")),
    ]
    rows = [
        (name, "1" if judgment.above else "0", score, "")
        for name, score, judgment in reversed(listed)
    ]
    scores = write_scores(tmp_path / "scores.csv", rows, [each[2] for each in reversed(listed)])
    write_worklist(scores, tmp_path / "worklist.csv", {})
    found = read_csv(tmp_path / "worklist.csv")
    assert [row["image"] for row in found] == [
        "pa first.png",
        "ap equal.png",
        "pa equal.png",
        "ap below.png",
        "pa below.png",
        "lateral.png",
        "child.png",
    ]
    assert [row["rank"] for row in found] == list("1234567")
    assert [row["score"] for row in found] == ["1.9", "2.6", "1.3", "2.1", "-0.5", "9.5", "9"]


def test_images_that_are_not_judged_come_last_and_move_no_other(tmp_path: Path) -> None:
    rows = [("low.png", "0", "1", ""), ("child.png", "", "9", ""), ("high.png", "1", "5", "")]
    rows.append(("lateral.png", "", "3", ""))
    low, high = Judgment(0.5, 2.0, 50.0, False), Judgment(0.01, 2.0, 99.0, True)
    left = [Judgment(not_judged=reason) for reason in ("child (7 years)", "lungs not found")]
    scores = write_scores(tmp_path / "scores.csv", rows, [low, left[0], high, left[1]])
    summary = write_worklist(
        scores, tmp_path / "worklist.csv", {}, comparison="compared with 99 normal images"
    )
    found = read_csv(tmp_path / "worklist.csv")
    assert [row["image"] for row in found] == ["high.png", "low.png", "child.png", "lateral.png"]
    assert [row["not_judged"] for row in found] == ["", "", "child (7 years)", "lungs not found"]
    for row in found[2:]:
        assert (row["p_value"], row["decision"], row["threshold"], row["percentile"]) == ("",) * 4
        assert row["score"] in ("9", "3")
    assert (summary.above, summary.not_judged) == (1, {"child (7 years)": 1, "lungs not found": 1})
    assert "1 of 2 above the threshold" in str(summary)
    assert "compared with 99 normal images" in str(summary)


def test_patients_are_named_only_when_asked_for(tmp_path: Path) -> None:
    source = write_source(tmp_path / "b.dcm")
    scores = write_scores(tmp_path / "scores.csv", [("as written", "", "2.5", "")])
    path = tmp_path / "worklist.csv"
    summary = write_worklist(scores, path, {"as written": described_image(str(source))})
    assert str(summary) == "1 image by score, without a threshold"
    for private in ("Müller", "4711", "1950"):
        assert private not in path.read_text(encoding="utf-8")
    write_worklist(scores, path, {"as written": described_image(str(source), True)})
    [row] = read_csv(path)
    assert (row["patient_id"], row["patient_name"], row["patient_birth_date"]) == (
        "4711",
        "Müller^Jörg",
        "19500101",
    )
    assert (row["threshold"], row["decision"], row["percentile"]) == ("", "", "")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_no_spreadsheet_runs_what_a_header_says(tmp_path: Path, text: str) -> None:
    source = write_source(tmp_path / "b.dcm", PatientName=text, AccessionNumber=text)
    scores, path = (
        write_scores(tmp_path / "scores.csv", [(str(source), "", "-2.5", "")]),
        tmp_path / "worklist.csv",
    )
    write_worklist(scores, path, {str(source): described_image(str(source), True)})
    [row] = read_csv(path)
    assert (row["patient_name"], row["accession_number"]) == ("'" + text, "'" + text)
    assert row["score"] == "-2.5"
    capture = pydicom.dcmread(save_secondary_capture(result(source), tmp_path))
    assert (str(capture.PatientName), capture.AccessionNumber) == (text, text)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"ViewPosition": "PA", "BodyPartExamined": "PORT CHEST"}, ""),
        ({"ViewPosition": None, "BodyPartExamined": None, "PatientOrientation": None}, ""),
        ({"ViewPosition": "LL"}, "ViewPosition LL"),
        ({"BodyPartExamined": "HAND"}, "BodyPartExamined HAND"),
        ({"SOPClassUID": CTImageStorage}, "CT Image Storage"),
        ({"PatientOrientation": ["R", "F"]}, "PatientOrientation R/F"),
        ({"PatientOrientation": ["P", "F"]}, "PatientOrientation P/F"),
    ],
)
def test_headers_of_another_view_are_named(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    source = write_source(tmp_path / "b.dcm", **changes)
    scores, path = (
        write_scores(tmp_path / "scores.csv", [(str(source), "1", "2.5", "")]),
        tmp_path / "worklist.csv",
    )
    summary = write_worklist(scores, path, {str(source): described_image(str(source))})
    assert read_csv(path)[0]["other_view"] == words
    assert ("1 is no frontal chest radiograph by" in str(summary)) == bool(words)


def test_equal_scores_keep_their_order_and_an_empty_table_is_a_list(tmp_path: Path) -> None:
    path = tmp_path / "worklist.csv"
    scores = write_scores(tmp_path / "scores.csv", [(name, "0", "1", "") for name in "cab"])
    write_worklist(scores, path, {})
    assert [row["image"] for row in read_csv(path)] == ["c", "a", "b"]
    assert write_worklist(write_scores(scores, []), path, {}) == WorklistSummary(0, None)
    assert read_csv(path) == []


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ((0, 0), "upper left"),
        ((0, 8), "upper right"),
        ((7, 4), "lower center"),
        ((4, 0), "middle left"),
        ((4, 4), "center"),
    ],
)
def test_hottest_place_is_that_of_the_picture(place: tuple[int, int], words: str) -> None:
    heat = np.random.default_rng(0).random((9, 9))
    heat[place] = 5
    assert hottest_place(heat, 1.0) == words
    assert hottest_place(heat, 5.0) == ""
