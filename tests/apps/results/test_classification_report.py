# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The report of a classifier: table, figures, curves and what is printed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from apps.results.test_result_tables import read_csv
from ignite.engine import Engine
from PIL import Image

from monai_afire.apps.evaluation.metrics import classification_metrics
from monai_afire.apps.results.classification_report import ClassificationReport
from monai_afire.handlers import ThresholdFit
from monai_afire.metrics.multilabel import best_thresholds
from monai_afire.networks import TransferClassifier, ViTEncoder
from monai_afire.utils.uncertain_labels import class_probabilities

NAMES = ["Edema", "Pleural Effusion", "Fracture"]


def data_of(
    seed: int = 0, size: int = 30
) -> tuple[list[dict[str, str]], torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    labels = rng.choice([0.0, 1.0, -1.0, math.nan], (size, 3), p=[0.5, 0.3, 0.1, 0.1])
    labels[:, 2] = np.where(rng.random(size) < 0.5, 0.0, math.nan)  # a finding that nobody has
    logits = rng.normal(size=(size, 3)) + np.nan_to_num(labels)
    items = [{"image": f"/data/{index}.png"} for index in range(size)]
    return (
        items,
        torch.tensor(logits, dtype=torch.float32),
        torch.tensor(labels, dtype=torch.float32),
    )


def run(
    report: ClassificationReport, logits: torch.Tensor, labels: torch.Tensor, size: int = 8
) -> None:
    engine = Engine(lambda engine, batch: {"pred": batch["pred"], "label": batch["label"]})
    report.attach(engine)
    parts = torch.randperm(len(logits), generator=torch.Generator().manual_seed(0)).split(size)
    engine.run([{"index": part, "pred": logits[part], "label": labels[part]} for part in parts])


def without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nan(entry) for name, entry in value.items()}
    if isinstance(value, tuple):
        return [without_nan(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize("logit", [17.5, 2.0, -3.3, -40.0])
def test_the_image_that_gave_a_threshold_is_found_at_it(logit: float) -> None:
    """In single precision the sigmoid of 17.5 is 1; decisions are made in double precision."""
    network = TransferClassifier(
        ViTEncoder(img_size=16, patch_size=8, hidden_size=12, num_layers=1, num_heads=2), 1
    )
    logits, labels = torch.tensor([[logit - 1], [logit]]), torch.tensor([[0.0], [1.0]])
    fit, engine = (
        ThresholdFit(network),
        Engine(lambda engine, batch: {"pred": logits, "label": labels}),
    )
    fit.attach(engine)
    engine.run([0])
    decisions = class_probabilities(logits) >= network.thresholds
    assert decisions.flatten().tolist() == [False, True]


@pytest.mark.parametrize("policy", ["ignore", "ones"])
def test_files_of_a_report(tmp_path: Path, policy: str) -> None:
    items, logits, labels = data_of()
    thresholds = best_thresholds(labels, logits.sigmoid(), policy)
    run(
        ClassificationReport(items, NAMES, str(tmp_path), "multilabel", thresholds, policy, 10),
        logits,
        labels,
    )
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    order = [int(Path(row["image"]).stem) for row in read_csv(tmp_path / "predictions.csv")]
    assert sorted(order) == [*range(30)]
    expected = classification_metrics(
        labels[order],
        logits[order].double().sigmoid(),
        NAMES,
        thresholds,
        policy,
        num_bootstraps=10,
    )
    groups = metrics.pop("subgroups")
    assert metrics.pop("num_patients") == 30
    assert groups == {
        name: {"unknown": {"images": 30}} for name in ("sex", "age", "view", "manufacturer")
    }
    assert metrics == without_nan(expected)
    assert metrics["per_class"]["Fracture"]["auc"] is None
    assert len(metrics["mean_auc_interval"]) == 2
    for row, index in zip(read_csv(tmp_path / "predictions.csv"), order, strict=True):
        for column, name in enumerate(NAMES):
            label = float(labels[index, column])
            assert row[f"label_{name}"] == ("" if math.isnan(label) else str(label))
            assert float(row[f"probability_{name}"]) == pytest.approx(
                float(logits[index, column].sigmoid()), rel=1e-6
            )
    with Image.open(tmp_path / "roc.png") as picture:
        assert min(picture.size) > 400


@pytest.mark.parametrize("label", [math.nan, 0.0, 1.0])
def test_nothing_to_judge(tmp_path: Path, label: float) -> None:
    items, logits, _ = data_of()
    run(ClassificationReport(items, NAMES, str(tmp_path)), logits, torch.full((30, 3), label))
    assert json.loads((tmp_path / "metrics.json").read_text())["mean_auc"] is None
    assert (tmp_path / "roc.png").is_file()


def test_large_logits_keep_their_order(tmp_path: Path) -> None:
    items = [{"image": f"{index}.png"} for index in range(4)]
    logits = torch.tensor([[20.0], [21.0], [22.0], [23.0]])  # 1.0 in float32 from 17 on
    run(
        ClassificationReport(items, ["a"], str(tmp_path)),
        logits,
        torch.tensor([[0.0], [0.0], [1.0], [1.0]]),
    )
    assert json.loads((tmp_path / "metrics.json").read_text())["mean_auc"] == 1.0


@pytest.mark.parametrize(
    ("pred", "label", "name"),
    [
        (torch.zeros(2, 4), torch.zeros(2, 4), "Edema"),
        (torch.zeros(2, 3), torch.zeros(2, 4), "labels"),
        (torch.tensor([[0.0] * 3, [0.0, math.nan, 0.0]]), torch.zeros(2, 3), "/data/1.png"),
        (torch.zeros(2, 3), torch.tensor([[0.0, 1.0, 7.0]] * 2), "7"),
    ],
)
def test_wrong_batches_are_refused(
    tmp_path: Path, pred: torch.Tensor, label: torch.Tensor, name: str
) -> None:
    engine = Engine(lambda engine, batch: {"pred": pred, "label": label})
    ClassificationReport(data_of()[0], NAMES, str(tmp_path)).attach(engine)
    with pytest.raises(ValueError, match=name):
        engine.run([{"index": torch.tensor([0, 1])}])
    assert not (tmp_path / "metrics.json").exists()
