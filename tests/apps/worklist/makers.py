# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What tests of the work-list share: radiographs as files, a small detector that scores them, and a result of it."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
import torch
from ignite.engine import Engine
from PIL import Image
from pydicom.datadict import dictionary_VR
from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.tag import Tag
from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

from monai_afire.apps.worklist import AnomalyWriter
from monai_afire.apps.worklist.anomaly_result import AnomalyResult
from monai_afire.apps.worklist.normal_images import Judgment
from monai_afire.detection import AnomalyDetector
from monai_afire.networks import AFiRe, ViTEncoder

NAME = "Müller^Jörg"
_LATIN = NAME.encode("latin-1")
HEADERS: dict[str, dict[str, bytes | None]] = {
    "few elements": {"PatientID": None, "PatientSex": None, "StudyID": None, "SeriesNumber": None},
    "numbers out of range": {"SeriesNumber": b"99999999999", "InstanceNumber": b"2147483648"},
    "no number": {"SeriesNumber": b"CR 1", "InstanceNumber": b"1.5"},
    "no time zone": {"TimezoneOffsetFromUTC": b"CET"},
    "Latin-1 as Unicode": {"SpecificCharacterSet": b"ISO_IR 192", "PatientName": _LATIN},
    "Unicode as nothing": {"SpecificCharacterSet": b"", "PatientName": NAME.encode()},
    "Latin-1 misspelled": {"SpecificCharacterSet": b"ISO-IR 100", "PatientName": _LATIN},
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
    numbers = [each.value for each in elements if each.VR == "IS" and each.value is not None]
    assert all(abs(int(value)) < 2**31 for value in numbers)
    validator = shutil.which("dciodvfy")
    if validator is None:
        assert "MONAI_AFIRE_CI" not in os.environ, "CI needs dciodvfy: apt-get install dicom3tools"
        pytest.skip("dciodvfy (Debian package dicom3tools) is not installed")
    run = subprocess.run([validator, str(path)], capture_output=True, check=False)
    said = (run.stderr + run.stdout).decode(errors="replace")
    assert kind in said
    assert "Error" not in said


def result(source: str | Path, judgment: Judgment | None = None, **changes: Any) -> AnomalyResult:
    """Of a file of 60 rows and 90 columns that a network saw as 24 x 24, with one hot cell of 3 x 3."""
    heat = np.zeros((24, 24), np.float32)
    heat[3:6, 18:21] = 4.0
    facts: dict[str, Any] = {
        "source": str(source),
        "root": str(Path(source).parent),
        "heat": heat,
        "tokens": np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32),
        "picture": np.linspace(0, 255, 48 * 48).reshape(48, 48).astype(np.uint8),
        "spatial_shape": (60, 90),
        "affine": np.eye(4),
        "heat_range": (1.0, 3.0),
        "score": 2.5,
        "judgment": judgment or Judgment(threshold=2.0),
    }
    return AnomalyResult(**(facts | changes))


def make_detector() -> AnomalyDetector:
    torch.manual_seed(0)
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    return AnomalyDetector(AFiRe(encoder, 6, 12, 16, 1, 2)).eval()


def fitted_detector(normals: int = 20) -> AnomalyDetector:
    """A detector with so many normal validation images."""
    detector = make_detector()
    detector.fit([torch.rand(20, 1, 32, 32)])
    if normals:
        detector.fit_thresholds(detector(torch.rand(normals, 1, 32, 32))["scores"].detach())
    return detector


def judging(detector: AnomalyDetector) -> Engine:
    """An evaluator in miniature."""

    def judge(engine: Engine, batch: dict[str, Any]) -> dict[str, Any]:
        with torch.no_grad():
            return {"pred": detector(batch["image"]), "label": batch.get("label")}

    return Engine(judge)


def write_pictures(folder: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Items of pictures of noise."""
    rng = np.random.default_rng(0)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(rng.integers(0, 255, (60, 40), dtype=np.uint8))
        picture.save(folder / name, format="PNG")
    return [{"image": str(folder / name), "index": n} for n, name in enumerate(names)]


def batches_of(items: Sequence[dict[str, Any]], size: int = 2) -> list[dict[str, Any]]:
    """Batches as the inference bundle makes them; files that are called "bad" are rejected."""
    batches = []
    for start in range(0, len(items), size):
        own = items[start : start + size]
        count = len(own)
        batch = {
            "image": torch.rand(count, 1, 32, 32),
            "index": torch.arange(start, start + count),
            "rejected": ["broken" if "bad" in Path(item["image"]).name else "" for item in own],
            "spatial_shape": torch.tensor([[60, 40]] * count),
            "affine": torch.eye(4).repeat(count, 1, 1),
            "picture": torch.randint(0, 255, (count, 1, 48, 48), dtype=torch.uint8),
        }
        batches.append(batch)
    return batches


def write_results(
    detector: AnomalyDetector,
    items: Sequence[dict[str, Any]],
    out: Path,
    batches: Sequence[dict[str, Any]] | None = None,
    **options: Any,
) -> AnomalyWriter:
    """Score items, or these batches of them, and write their results."""
    writer = AnomalyWriter(detector, items, str(out), **{"saved": (), **options})
    engine = judging(detector)
    writer.attach(engine)
    engine.run(batches_of(items) if batches is None else batches)
    return writer


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
