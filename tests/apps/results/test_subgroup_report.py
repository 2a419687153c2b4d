# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Groups of patients in evaluations: what the list and DICOM headers say, files, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pydicom
import pytest
import torch
from ignite.engine import Engine
from pydicom import uid

from monai_afire.apps.evaluation.metrics import subgroup_metrics
from monai_afire.apps.results.classification_report import ClassificationReport
from monai_afire.apps.results.patient_groups import item_groups, reported_patients


def write_header(path: Path, **elements: str) -> str:
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
    dataset.SOPClassUID, dataset.SOPInstanceUID = (
        uid.ComputedRadiographyImageStorage,
        uid.generate_uid(),
    )
    for name, value in elements.items():
        setattr(dataset, name, value)
    dataset.save_as(path, enforce_file_format=True)
    return str(path)


def test_the_list_comes_before_the_header(tmp_path: Path) -> None:
    path = write_header(
        tmp_path / "a.dcm",
        PatientSex="F",
        PatientAge="057Y",
        ViewPosition="pa",
        Manufacturer="=ACME",
        PatientID="secret",
    )
    expected = {"sex": "F", "age": "57", "view": "PA", "manufacturer": "'=ACME"}
    assert item_groups({"image": path}) == expected
    told = {
        "image": path,
        "sex": "Male",
        "age": "003Y",
        "view": "AP",
        "patient_id": 7.0,
        "manufacturer": "B",
    }
    assert item_groups(told) == {"sex": "M", "age": "3", "view": "AP", "manufacturer": "B"}
    gaps = {"image": path, "sex": None, "age": float("nan"), "view": "unknown"}
    assert item_groups(gaps) == expected


def test_nothing_is_known(tmp_path: Path) -> None:
    path = write_header(tmp_path / "a.dcm", PatientSex="U", PatientAge="006M")
    unknown = {"sex": "", "age": "", "view": "", "manufacturer": ""}
    assert item_groups({"image": path}) == unknown
    assert item_groups({"image": "gone.png", "age": 0}) == {**unknown, "age": "0"}


def test_patients_are_those_of_splits_without_identities(tmp_path: Path) -> None:
    paths = [
        write_header(tmp_path / f"{number}.dcm", PatientID=who) for number, who in enumerate("xyx")
    ]
    items = [
        *({"image": path} for path in paths),
        {"image": "z.png", "patient_id": 7.0},
        {"image": "gone.png"},
    ]
    items += [{"image": "00000013_004.png"}, {"image": "00000013_005.png"}]
    expected = [
        paths[0],
        paths[1],
        paths[0],
        "7",
        "gone.png",
        "00000013_004.png",
        "00000013_004.png",
    ]
    assert reported_patients(items) == expected


def test_intervals_of_a_report_know_patients_by_their_names(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    items = [{"image": f"{number // 6:08d}_{number:03d}.png"} for number in range(120)]
    labels = torch.from_numpy(rng.integers(0, 2, 120)).float()[:, None]
    logits = torch.from_numpy(rng.normal(size=(120, 1))).float() + labels
    run(ClassificationReport(items, ["a"], str(tmp_path), num_bootstraps=20), logits, labels)
    assert pd.read_csv(tmp_path / "predictions.csv")["patient_id"].nunique() == 20


def items_of(count: int) -> list[dict[str, Any]]:
    return [
        {
            "image": f"{number}.png",
            "patient_id": f"p{number // 2}",
            "sex": "F" if number % 4 < 2 else "M",
            "age": "" if number < 5 else 30,
            "view": "PA" if number < count - 12 else "AP",
        }
        for number in range(count)
    ]


def run(report: Any, logits: torch.Tensor, labels: torch.Tensor) -> None:
    engine = Engine(lambda engine, batch: {"pred": logits, "label": labels})
    report.attach(engine)
    engine.run([{"index": torch.arange(len(logits))}])


def test_a_classifier_is_evaluated_by_group(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = torch.from_numpy(rng.choice([0.0, 1.0, -1.0], (120, 2), p=[0.6, 0.3, 0.1])).float()
    logits = torch.from_numpy(rng.normal(size=(120, 2))).float() + labels.clamp(min=0)
    run(
        ClassificationReport(
            items_of(120), ["a", "b"], str(tmp_path), thresholds=[0.6, 0.7], num_bootstraps=20
        ),
        logits,
        labels,
    )
    table = pd.read_csv(tmp_path / "predictions.csv", dtype={"age": str}, keep_default_na=False)
    assert table["patient_id"].nunique() == 60
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    truth = labels.double().where(labels >= 0, torch.nan).numpy()  # uncertain labels do not count
    expected = subgroup_metrics(
        table, truth, logits.sigmoid().double().numpy(), [0.6, 0.7], ["a", "b"], 20
    )
    for name in ("F", "M"):
        entry, by_hand = metrics["subgroups"]["sex"][name], expected["sex"][name]
        assert entry["per_class"]["b"]["specificity"] == pytest.approx(
            by_hand["per_class"]["b"]["specificity"]
        )
        assert entry["auc_interval"] == pytest.approx(by_hand["auc_interval"])
    assert metrics["subgroups"]["age"]["unknown"] == {"images": 5}
    assert metrics["subgroups"]["view"]["AP"]["auc"] is None


def test_exclusive_classes_have_an_auc_by_group(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    grades = rng.integers(0, 3, 120)
    labels = torch.eye(3)[grades]
    labels[0] = torch.nan
    logits = torch.from_numpy(rng.normal(size=(120, 3))).float() + labels.nan_to_num()
    names = ["none", "mild", "severe"]
    run(ClassificationReport(items_of(120), names, str(tmp_path), "multiclass"), logits, labels)
    found = json.loads((tmp_path / "metrics.json").read_text())["subgroups"]["view"]["PA"]
    assert found["images"] == 108
    chosen = slice(1, 108)
    expected = subgroup_metrics(
        pd.DataFrame({"view": ["PA"] * 107}),
        labels[chosen].numpy(),
        logits.softmax(1)[chosen].numpy(),
        [np.nan] * 3,
        ["none", "mild", "severe"],
        0,
    )["view"]["PA"]
    assert found["per_class"]["mild"]["auc"] == pytest.approx(expected["per_class"]["mild"]["auc"])
    assert found["per_class"]["mild"]["num_positive"] == int((grades[chosen] == 1).sum())
    assert found["sensitivity"] is None
