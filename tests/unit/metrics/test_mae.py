# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The masked autoencoder's validation metrics, against loops and for what they are to alarm of."""

from __future__ import annotations

import pytest
import torch

from monai_afire.metrics import reconstruction_gain, reconstruction_variety


def case(images: int = 5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(images, 6, 4, generator=generator, dtype=torch.float64) + 1
    reconstructed = target + 0.3 * torch.randn(
        target.shape, generator=generator, dtype=torch.float64
    )
    hidden = torch.zeros(images, 6, dtype=torch.bool)
    for row in range(images):
        hidden[row, torch.randperm(6, generator=generator)[:4]] = True
    return reconstructed, target, hidden


def test_gain_equals_a_loop() -> None:
    reconstructed, target, hidden = case()
    error = baseline = 0.0
    for b in range(5):
        gray = sum(float(target[b, j].sum()) for j in range(6) if not hidden[b, j]) / (2 * 4)
        for j in range(6):
            if hidden[b, j]:
                error += float(((reconstructed[b, j] - target[b, j]) ** 2).sum())
                baseline += float(((gray - target[b, j]) ** 2).sum())
    assert float(reconstruction_gain(reconstructed, target, hidden)) == pytest.approx(
        1 - error / baseline
    )


def test_variety_equals_a_loop() -> None:
    reconstructed, target, hidden = case()

    def scatter(patches: torch.Tensor) -> float:
        total = 0.0
        for j in range(6):
            shown = [patches[b, j] for b in range(5) if hidden[b, j]]
            for patch in shown:
                total += float(((patch - sum(shown) / len(shown)) ** 2).sum())
        return total

    expected = scatter(reconstructed) / scatter(target)
    assert float(reconstruction_variety(reconstructed, target, hidden)) == pytest.approx(expected)


def test_one_image_has_no_variety_to_speak_of() -> None:
    assert reconstruction_variety(*case(1)).isnan()
