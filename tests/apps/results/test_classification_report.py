# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The report of a classifier: table, figures, curves and what is printed."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ignite.engine import Engine
from monai.data import DataLoader, Dataset
from monai.engines import SupervisedEvaluator
from monai.transforms import Compose, ToTensord
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


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


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


def test_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items, logits, labels = data_of()
    run(ClassificationReport(items, NAMES, str(tmp_path), num_bootstraps=10), logits, labels)
    summary, header, *lines, groups = capsys.readouterr().out.splitlines()
    assert groups == "not known of any image: sex, age, view, manufacturer"
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert summary.startswith(f"30 images; means of 2 of 3 classes: AUC {metrics['mean_auc']:.3f}")
    assert "95 % interval" in summary
    assert [line[:16].rstrip() for line in lines] == NAMES
    assert len({len(line) for line in (header, *lines)}) == 1
    assert lines[2].count("n/a") == 6
    assert f"{metrics['per_class']['Edema']['auc']:.3f}" in lines[0]
    assert "nan" not in "".join(lines)


@pytest.mark.parametrize("label", [math.nan, 0.0, 1.0])
def test_nothing_to_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str], label: float) -> None:
    items, logits, _ = data_of()
    run(ClassificationReport(items, NAMES, str(tmp_path)), logits, torch.full((30, 3), label))
    assert json.loads((tmp_path / "metrics.json").read_text())["mean_auc"] is None
    assert "means of 0 of 3 classes: AUC n/a, AP n/a, F1 n/a" in capsys.readouterr().out
    assert (tmp_path / "roc.png").is_file()


def test_second_run_starts_afresh(tmp_path: Path) -> None:
    items, logits, labels = data_of()
    report = ClassificationReport(items, NAMES, str(tmp_path))
    run(report, logits, labels)
    report.output_dir = str(tmp_path / "second")
    run(report, logits[:10], labels[:10])
    assert len(read_csv(tmp_path / "second/predictions.csv")) == 10


def test_large_logits_keep_their_order(tmp_path: Path) -> None:
    items = [{"image": f"{index}.png"} for index in range(4)]
    logits = torch.tensor([[20.0], [21.0], [22.0], [23.0]])  # 1.0 in float32 from 17 on
    run(
        ClassificationReport(items, ["a"], str(tmp_path)),
        logits,
        torch.tensor([[0.0], [0.0], [1.0], [1.0]]),
    )
    assert json.loads((tmp_path / "metrics.json").read_text())["mean_auc"] == 1.0


def test_with_monais_evaluator(tmp_path: Path) -> None:
    items, logits, labels = data_of()
    rows = zip(logits, labels, strict=True)
    data = [
        {"image": x[:, None], "label": y.numpy(), "index": index}
        for index, (x, y) in enumerate(rows)
    ]
    dataset = Dataset(data, Compose([ToTensord(keys="label")]))
    evaluator = SupervisedEvaluator(
        device=torch.device("cpu"),
        val_data_loader=DataLoader(dataset, batch_size=8),
        network=torch.nn.Flatten(),
        val_handlers=[ClassificationReport(items, NAMES, str(tmp_path))],
        decollate=False,
    )
    evaluator.run()
    expected = classification_metrics(labels, logits.double().sigmoid(), NAMES)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics | without_nan(expected) == metrics


@pytest.mark.parametrize(
    ("pred", "label", "message"),
    [
        (
            torch.zeros(2, 4),
            torch.zeros(2, 4),
            r"\(2, 4\) instead of \(B, 3\) logits for the classes \['Edema'",
        ),
        (torch.zeros(2, 3), torch.zeros(2, 4), r"labels have shape \(2, 4\).*list of 3 labels"),
        (torch.zeros(2, 3), torch.zeros(2), r"labels have shape \(2,\)"),
        (
            torch.tensor([[0.0] * 3, [0.0, math.nan, 0.0]]),
            torch.zeros(2, 3),
            "output for /data/1.png is NaN",
        ),
        (torch.zeros(2, 3), torch.tensor([[0.0, 1.0, 7.0]] * 2), r"7 at \(0, 2\)"),
    ],
)
def test_hostile_batches(
    tmp_path: Path, pred: torch.Tensor, label: torch.Tensor, message: str
) -> None:
    engine = Engine(lambda engine, batch: {"pred": pred, "label": label})
    ClassificationReport(data_of()[0], NAMES, str(tmp_path)).attach(engine)
    with pytest.raises(ValueError, match=message):
        engine.run([{"index": torch.tensor([0, 1])}])
    assert not (tmp_path / "metrics.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_names": ["a", "a"]}, "more than once"),
        ({"thresholds": [0.5]}, "not 3 numbers"),
        ({"uncertain": "maybe"}, "maybe"),
    ],
)
def test_hostile_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClassificationReport(
            **{"items": [], "class_names": NAMES, "output_dir": "unused", **options}
        )
