# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""DICOM files as archives and other writers leave them, a result of one, and what says whether a file is valid."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom.datadict import dictionary_VR
from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.tag import Tag
from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

from monai_afire.apps.worklist.anomaly_result import AnomalyResult
from monai_afire.apps.worklist.normal_images import Judgment

__all__ = ["HEADERS", "NAME", "assert_valid", "result", "write_raw", "write_source"]

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


def result(
    source: Path,
    threshold: float = 2.0,
    p_value: float = np.nan,
    not_judged: str = "",
    **changes: Any,
) -> AnomalyResult:
    """What a detector might have found in a file."""
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
        "judgment": Judgment(p_value, threshold, not_judged=not_judged),
    }
    return AnomalyResult(**(facts | changes))
