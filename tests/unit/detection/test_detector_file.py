# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A detector in one file: scores as before, and small."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from monai_afire.detection import AnomalyDetector, load_detector, save_detector
from monai_afire.networks import AFiRe
from unit.tiny_networks import tiny_vit


@pytest.fixture
def detector() -> AnomalyDetector:
    torch.manual_seed(0)
    network = AFiRe(tiny_vit(), 6, 12, 16, 1, 2)
    detector = AnomalyDetector(
        network, memory_size=40, score_fusion=["token_mean_density", "focal"]
    ).eval()
    with torch.no_grad():
        detector.network.bank.update(torch.rand(4, 16, 6).softmax(-1))
    for parameter in detector.network.parameters():
        parameter.data = parameter.data.half().float()
    detector.fit([torch.rand(30, 1, 32, 32)])
    detector.fit_thresholds(detector(torch.rand(20, 1, 32, 32))["scores"])
    return detector


def test_scores_maps_and_thresholds_come_back(detector: AnomalyDetector, tmp_path: Path) -> None:
    path = save_detector(detector, tmp_path / "detector.safetensors", notes={"license": "none"})
    loaded, images = load_detector(path), torch.rand(4, 1, 32, 32)
    assert not loaded.training
    torch.testing.assert_close(loaded.thresholds, detector.thresholds)
    torch.testing.assert_close(loaded(images), detector(images), rtol=1e-4, atol=1e-4)


def test_weights_are_halved_and_statistics_are_not(
    detector: AnomalyDetector, tmp_path: Path
) -> None:
    state = load_file(save_detector(detector, tmp_path / "detector.safetensors"))
    assert state["network.encoder.norm.weight"].dtype == torch.float16
    assert state["image_density.precision"].dtype == torch.float32
