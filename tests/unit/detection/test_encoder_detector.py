# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Anomaly detection with an encoder alone: its maps, its layers, and thresholds of another specificity."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from ignite.engine import Engine
from monai.networks.nets import ViT
from torch.nn import functional as F

from monai_afire.detection import AnomalyDetector, load_detector, save_detector
from monai_afire.detection.network_outputs import tokens_and_features
from monai_afire.detection.normal_statistics import MemoryBank, TokenDensity
from monai_afire.handlers import ThresholdsAt
from monai_afire.networks import MONAIEncoder, ViTEncoder
from unit.tiny_networks import tiny_swin, tiny_vit


def encoder() -> ViTEncoder:
    torch.manual_seed(0)
    return tiny_vit(num_layers=4)


def images(count: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, 1, 32, 32, generator=torch.Generator().manual_seed(seed))


def fitted(**settings: object) -> AnomalyDetector:
    detector = AnomalyDetector(encoder(), **{"memory_size": 16, **settings}).eval()  # type: ignore[arg-type]
    detector.fit([images(8), images(4, seed=1)])
    return detector


@pytest.mark.parametrize("layers", ["last", "all"])
def test_scores_are_those_of_the_definitions(layers: str) -> None:
    detector = fitted(layers=layers)
    normal, new = torch.cat([images(8), images(4, seed=1)]), images(3, seed=2)
    outputs = detector(new)
    assert outputs["scores"].shape == (3, len(detector.score_names)) == (3, 5)

    def described(batch: torch.Tensor) -> torch.Tensor:
        if layers == "last":
            return detector.network.encoder(batch)
        maps = detector.network.encoder.feature_maps(batch)
        return torch.cat([each.flatten(2).mT for each in maps], -1)

    references, features = described(normal), described(new)
    density = TokenDensity(16, features.shape[-1])
    memory = MemoryBank(16, features.shape[-1], min(32, features.shape[-1]), 16)
    for statistics in (density, memory):
        statistics.fit(references.detach())
    raw = outputs["maps"][:, :2] * detector.map_std + detector.map_mean
    torch.testing.assert_close(raw[:, 0], density(features), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(raw[:, 1], memory(features), rtol=1e-3, atol=1e-3)


def monai_vit(**settings: float) -> ViT:
    sizes = {"hidden_size": 24, "mlp_dim": 48, "num_layers": 2, "num_heads": 2, "spatial_dims": 2}
    return ViT(1, (32, 32), (8, 8), **sizes, **settings)


def test_an_encoder_is_frozen_and_one_of_monai_will_do() -> None:
    vit = monai_vit(dropout_rate=0.5)
    detector = AnomalyDetector(MONAIEncoder(vit), memory_size=16)
    assert not any(parameter.requires_grad for parameter in detector.parameters())
    detector.train()
    assert not vit.training
    detector.fit([images(8)])
    outputs = detector(images(2))
    assert outputs["scores"].isfinite().all()
    assert detector.heat_map(images(2), outputs["maps"][:, -1]).shape == (2, 1, 32, 32)
    # its state is read into a detector of the same encoder, without any fit
    other = AnomalyDetector(monai_vit(), memory_size=16).eval()
    other.load_state_dict(detector.state_dict())
    torch.testing.assert_close(other(images(2))["scores"], outputs["scores"])


def test_what_an_encoder_cannot_give_is_refused() -> None:
    with pytest.raises(ValueError, match="score_fusion"):
        AnomalyDetector(encoder(), score_fusion=["restoration"])


def test_finer_maps_are_averaged_over_the_patch_of_a_token() -> None:
    swin = tiny_swin().eval()
    images = torch.rand(2, 1, 16, 16)
    tokens, features = tokens_and_features(swin, images, "all")
    finer, last = swin.feature_maps(images)
    torch.testing.assert_close(features[..., :8], F.avg_pool2d(finer, 2).flatten(2).mT)
    torch.testing.assert_close(features[..., 8:], last.flatten(2).mT)
    torch.testing.assert_close(tokens, swin(images))


def test_the_specificity_of_a_fitted_detector_can_be_changed() -> None:
    detector = fitted()
    normal = torch.randn(401, 5, generator=torch.Generator().manual_seed(0))
    detector.fit_thresholds(normal, specificity=0.95)
    stored = detector.thresholds.clone()
    for specificity in (0.5, 0.99, 0.95):
        detector.set_specificity(specificity)
        torch.testing.assert_close(detector.thresholds, torch.quantile(normal, specificity, dim=0))
    torch.testing.assert_close(detector.thresholds, stored)
    detector.set_specificity(0.985)  # between two of the stored quantiles
    between = torch.quantile(normal, torch.tensor([0.98, 0.99]), dim=0)
    torch.testing.assert_close(detector.thresholds, between.mean(0))
    with pytest.raises(ValueError, match="specificity"):
        detector.set_specificity(1.0)
    with pytest.raises(RuntimeError, match="fit"):
        AnomalyDetector(encoder()).set_specificity(0.9)


def test_an_evaluator_sets_the_specificity_when_it_starts() -> None:
    detector = fitted()
    detector.fit_thresholds(torch.rand(100, 5), specificity=0.5)
    before = detector.thresholds.clone()
    engine = Engine(lambda engine, batch: None)
    ThresholdsAt(detector, None).attach(engine)
    engine.run([0])
    assert torch.equal(detector.thresholds, before)
    ThresholdsAt(detector, 0.9).attach(engine)
    engine.run([0])
    assert (detector.thresholds > before).all()


def test_a_detector_of_another_library_is_built_again_from_its_file(tmp_path: Path) -> None:
    detector = AnomalyDetector(monai_vit(), memory_size=16).eval()
    for parameter in detector.parameters():
        parameter.data = parameter.data.half().float()  # as the file holds them
    detector.fit([images(8), images(4, seed=1)])
    read = load_detector(save_detector(detector, tmp_path / "detector.safetensors"))
    torch.testing.assert_close(
        read(images(3, seed=2)), detector(images(3, seed=2)), rtol=1e-4, atol=1e-4
    )
