# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A finding without positives in validation has no threshold, and no decision is written for it."""

from __future__ import annotations

import csv
from pathlib import Path

import torch
from ignite.engine import Engine

from monai_afire.apps.results.prediction_writer import PredictionWriter
from monai_afire.handlers import ThresholdFit
from monai_afire.networks import TransferClassifier, ViTEncoder


def test_a_finding_without_positives_has_no_threshold_and_no_decision(tmp_path: Path) -> None:
    encoder = ViTEncoder(img_size=16, patch_size=8, hidden_size=12, num_layers=1, num_heads=2)
    network = TransferClassifier(encoder, num_classes=2)
    logits = torch.tensor([[-2.0, 3.0], [1.0, 3.0]])
    labels = torch.tensor([[0.0, 0.0], [1.0, -1.0]])
    validation = Engine(lambda engine, batch: {"pred": logits, "label": labels})
    ThresholdFit(network).attach(validation)
    validation.run([0])
    assert network.thresholds.isnan().tolist() == [False, True]
    items = [{"image": "a.png"}, {"image": "b.png"}]
    inference = Engine(lambda engine, batch: {"pred": logits})
    names = ["edema", "effusion"]
    PredictionWriter(items, names, str(tmp_path), network.thresholds).attach(inference)
    inference.run([{"index": torch.tensor([0, 1])}])
    with next(tmp_path.rglob("predictions.csv")).open() as file:
        rows = list(csv.DictReader(file))
    decisions = [[row[f"decision_{name}"] for name in names] for row in rows]
    assert decisions == [["0", ""], ["1", ""]]
