# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The report of a classifier: table, figures, groups of patients."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pydicom
import pytest
import torch
from apps.results.test_result_tables import read_csv
from ignite.engine import Engine
from pydicom import uid

from monai_afire.apps.evaluation import (
    classification_metrics,
    multiclass_metrics,
    subgroup_metrics,
)
from monai_afire.apps.results import ClassificationReport
from monai_afire.apps.results.patient_groups import item_groups, reported_patients
from monai_afire.handlers import ThresholdFit
from monai_afire.networks import TransferClassifier, ViTEncoder
from monai_afire.utils.formatting import json_safe
from monai_afire.utils.uncertain_labels import class_probabilities, resolve_uncertain

NAMES = ["Edema", "Pleural Effusion", "Fracture"]


def data_of(size: int = 120) -> tuple[list[dict[str, Any]], torch.Tensor, torch.Tensor]:
    """Two images of each patient; a finding that nobody has; what is not known of some."""
    rng = np.random.default_rng(0)
    labels = rng.choice([0.0, 1.0, -1.0, math.nan], (size, 3), p=[0.5, 0.3, 0.1, 0.1])
    labels[:, 2] = np.where(rng.random(size) < 0.5, 0.0, math.nan)
    logits = rng.normal(size=(size, 3)) + np.nan_to_num(labels)
    items = [
        {
            "image": f"/data/{number // 2:08d}_{number:03d}.png",
            "sex": "F" if number % 4 < 2 else "M",
            "age": "" if number < 5 else 30,
            "view": "PA" if number < size - 12 else "AP",
        }
        for number in range(size)
    ]
    return items, torch.from_numpy(logits).float(), torch.from_numpy(labels).float()


def run(report: ClassificationReport, logits: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
    engine = Engine(lambda engine, batch: {"pred": batch["pred"], "label": batch["label"]})
    report.attach(engine)
    parts = torch.arange(len(logits)).split(32)
    engine.run([{"index": part, "pred": logits[part], "label": labels[part]} for part in parts])
    return json.loads((report.folder / "metrics.json").read_text())


def as_json(values: Any) -> Any:
    return json.loads(json.dumps(json_safe(values)))


@pytest.mark.parametrize("policy", ["ignore", "ones"])
def test_files_of_a_report(tmp_path: Path, policy: str) -> None:
    items, logits, labels = data_of()
    limits = [0.6, 0.7, math.nan]
    report = ClassificationReport(items, NAMES, str(tmp_path), "multilabel", limits, policy, 10)
    metrics = run(report, logits, labels)
    patients, values = [number // 2 for number in range(120)], logits.double().sigmoid().numpy()
    truth = resolve_uncertain(labels, policy).double().numpy()
    table = pd.DataFrame(items).assign(patient_id=patients).astype(str)
    subgroups = subgroup_metrics(table, truth, values, limits, NAMES, 10)
    expected = classification_metrics(labels, values, NAMES, limits, policy, 10, patients)
    assert metrics == as_json(expected | {"num_patients": 60, "subgroups": subgroups})
    assert metrics["subgroups"]["age"]["unknown"] == {"images": 5}
    assert metrics["per_class"]["Fracture"]["auc"] is None
    rows = read_csv(tmp_path / "predictions.csv")
    assert [row["image"] for row in rows] == [item["image"] for item in items]
    for row, known, probabilities in zip(rows, labels.tolist(), values, strict=True):
        for name, label, probability in zip(NAMES, known, probabilities, strict=True):
            assert row[f"label_{name}"] == ("" if math.isnan(label) else str(label))
            assert float(row[f"probability_{name}"]) == pytest.approx(probability)
    assert (tmp_path / "roc.png").is_file()


def test_exclusive_classes(tmp_path: Path) -> None:
    items, logits, _ = data_of()
    grades = np.random.default_rng(0).integers(0, 3, 120)
    labels = torch.eye(3)[grades]
    labels[0], grades[0] = torch.nan, -1
    report = ClassificationReport(items, NAMES, str(tmp_path), "multiclass", num_bootstraps=10)
    metrics = run(report, logits, labels)
    patients, values = [number // 2 for number in range(120)], logits.double().softmax(1).numpy()
    expected = as_json(multiclass_metrics(grades, values, NAMES, 10, patients))
    assert {name: metrics[name] for name in expected} == expected
    group = metrics["subgroups"]["view"]["PA"]
    assert group["images"] == 108
    assert group["sensitivity"] is None
    assert group["per_class"]["Fracture"]["num_positive"] == (grades[:108] == 2).sum()
    rows = read_csv(tmp_path / "predictions.csv")
    assert [row["label"] for row in rows] == ["", *(NAMES[grade] for grade in grades[1:])]
    assert [row["decision"] for row in rows] == [NAMES[grade] for grade in values.argmax(1)]
    assert (tmp_path / "confusion.png").is_file()


def test_large_logits_keep_their_order(tmp_path: Path) -> None:
    items = [{"image": f"{index}.png"} for index in range(4)]
    logits = torch.tensor([[20.0], [21.0], [22.0], [23.0]])  # 1.0 in float32 from 17 on
    labels = torch.tensor([[0.0], [0.0], [1.0], [1.0]])
    report = ClassificationReport(items, ["a"], str(tmp_path))
    assert run(report, logits, labels)["mean_auc"] == 1.0


@pytest.mark.parametrize("logit", [17.5, 2.0, -40.0])
def test_the_image_that_gave_a_threshold_is_found_at_it(logit: float) -> None:
    """In single precision the sigmoid of 17.5 is 1; decisions are made in double precision."""
    encoder = ViTEncoder(img_size=16, patch_size=8, hidden_size=12, num_layers=1, num_heads=2)
    network = TransferClassifier(encoder, 1)
    logits, labels = torch.tensor([[logit - 1], [logit]]), torch.tensor([[0.0], [1.0]])
    engine = Engine(lambda engine, batch: {"pred": logits, "label": labels})
    ThresholdFit(network).attach(engine)
    engine.run([0])
    decisions = class_probabilities(logits) >= network.thresholds
    assert decisions.flatten().tolist() == [False, True]


@pytest.mark.parametrize(
    ("pred", "label", "name"),
    [
        (torch.zeros(2, 4), torch.zeros(2, 4), "Edema"),
        (torch.zeros(2, 3), torch.zeros(2, 4), "labels"),
        (torch.tensor([[0.0] * 3, [0.0, math.nan, 0.0]]), torch.zeros(2, 3), "_001.png"),
        (torch.zeros(2, 3), torch.tensor([[0.0, 1.0, 7.0]] * 2), "7"),
    ],
)
def test_wrong_batches_are_refused(
    tmp_path: Path, pred: torch.Tensor, label: torch.Tensor, name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        run(ClassificationReport(data_of()[0], NAMES, str(tmp_path)), pred, label)
    assert not (tmp_path / "metrics.json").exists()


def write_header(path: Path, **elements: str) -> str:
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
    dataset.SOPClassUID = uid.ComputedRadiographyImageStorage
    dataset.SOPInstanceUID = uid.generate_uid()
    for name, value in elements.items():
        setattr(dataset, name, value)
    dataset.save_as(path, enforce_file_format=True)
    return str(path)


def test_the_list_comes_before_the_header(tmp_path: Path) -> None:
    elements = {"PatientSex": "F", "PatientAge": "057Y", "ViewPosition": "pa"}
    path = write_header(tmp_path / "a.dcm", **elements, Manufacturer="=ACME", PatientID="secret")
    expected = {"sex": "F", "age": "57", "view": "PA", "manufacturer": "'=ACME"}
    assert item_groups({"image": path}) == expected
    told = {"image": path, "sex": "Male", "age": "003Y", "view": "AP", "manufacturer": "B"}
    assert item_groups(told) == {"sex": "M", "age": "3", "view": "AP", "manufacturer": "B"}
    gaps = {"image": path, "sex": None, "age": float("nan"), "view": "unknown"}
    assert item_groups(gaps) == expected
    path = write_header(tmp_path / "b.dcm", PatientSex="U", PatientAge="006M")
    unknown = {"sex": "", "age": "", "view": "", "manufacturer": ""}
    assert item_groups({"image": path}) == unknown
    assert item_groups({"image": "gone.png", "age": 0}) == {**unknown, "age": "0"}


def test_patients_are_those_of_splits_without_identities(tmp_path: Path) -> None:
    x, y, z = (write_header(tmp_path / f"{n}.dcm", PatientID=who) for n, who in enumerate("xyx"))
    names = [x, y, z, "gone.png", "00000013_004.png", "00000013_005.png"]
    items = [{"image": name} for name in names] + [{"image": "z.png", "patient_id": 7.0}]
    patients = [x, y, x, "gone.png", "00000013_004.png", "00000013_004.png", "7"]
    assert reported_patients(items) == patients
