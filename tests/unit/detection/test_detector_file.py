# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A detector in one file: scores as before, small, and damaged or foreign files refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from monai_afire.detection import AnomalyDetector, load_detector, save_detector
from monai_afire.detection.detector_file import with_student_as_teacher
from monai_afire.networks import AFiRe, ViTEncoder


@pytest.fixture
def detector() -> AnomalyDetector:
    torch.manual_seed(0)
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    network = AFiRe(
        encoder, num_clusters=6, head_dim=12, decoder_dim=16, decoder_layers=1, decoder_heads=2
    )
    detector = AnomalyDetector(
        network, memory_size=40, views=2, score_fusion=["token_mean_density", "focal"]
    ).eval()
    with torch.no_grad():
        detector.network.bank.update(torch.rand(4, 16, 6).softmax(-1))
    with_student_as_teacher(detector.network)
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
    for name, value in detector(images).items():
        torch.testing.assert_close(loaded(images)[name], value, rtol=1e-4, atol=1e-4)


def test_the_teacher_takes_no_room(detector: AnomalyDetector, tmp_path: Path) -> None:
    state = load_file(save_detector(detector, tmp_path / "detector.safetensors"))
    assert not any("teacher" in name for name in state)
    assert state["network.encoder.norm.weight"].dtype == torch.float16
    assert state["image_density.precision"].dtype == torch.float32


def test_what_is_no_detector_is_refused(detector: AnomalyDetector, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors"):
        load_detector(tmp_path / "none.safetensors")
    foreign = tmp_path / "foreign.safetensors"
    save_file({"weight": torch.zeros(2)}, foreign)
    with pytest.raises(ValueError, match="does not say how to build its network"):
        load_detector(foreign)
    path = save_detector(detector, tmp_path / "detector.safetensors")
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="complete"):
        load_detector(path)
