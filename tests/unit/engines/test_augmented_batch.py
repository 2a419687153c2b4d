# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A batch is augmented as MONAI's transforms of single images would do it."""

from __future__ import annotations

import pytest
import torch
from monai.transforms import AdjustContrast, Affine, Flip

from monai_afire.engines import PrepareBatchAugmented


def _smooth(number: int, rows: int, columns: int) -> torch.Tensor:
    """Images without edges, which every interpolation shows alike."""
    image = torch.rand(number, 1, 4, 5)
    return torch.nn.functional.interpolate(image, size=(rows, columns), mode="bicubic").clamp(0, 1)


@pytest.mark.parametrize("flip_prob", [0.0, 1.0])
def test_geometry_is_that_of_monais_affine(flip_prob: float) -> None:
    torch.manual_seed(0)
    prepare_batch = PrepareBatchAugmented(flip_prob=flip_prob, gamma_prob=0.0)
    images, label = _smooth(4, 24, 30), torch.zeros(4, 2)
    torch.manual_seed(3)
    result, kept = prepare_batch({"image": images, "label": label}, "cpu")
    torch.manual_seed(3)
    matrices = prepare_batch.affine_matrices(4, (24, 30))
    for image, matrix, own in zip(images, matrices, result, strict=True):
        affine = Affine(affine=matrix, padding_mode="border", image_only=True)
        torch.testing.assert_close(own, affine(image).as_tensor(), rtol=0, atol=1e-4)
    assert torch.equal(kept, label)


def test_without_ranges_only_mirroring_is_left() -> None:
    images = torch.rand(3, 1, 9, 12)
    batch = {"image": images, "label": (images > 0.5).float()}
    still = {"rotate": 0.0, "scale": 0.0, "shift": 0.0, "gamma_prob": 0.0, "moves_label": True}
    for flip_prob, expected in (
        (0.0, images),
        (1.0, Flip(-1)(images[:, 0]).unsqueeze(1).as_tensor()),
    ):
        image, label = PrepareBatchAugmented(flip_prob=flip_prob, **still)(batch, "cpu")
        torch.testing.assert_close(image, expected, rtol=0, atol=1e-5)
        assert torch.equal(label, (expected > 0.5).float())


def test_a_map_moves_with_its_image_and_keeps_its_values() -> None:
    torch.manual_seed(1)
    images = _smooth(6, 40, 40)
    label = torch.cat([images > 0.5, images > 0.7], dim=1).to(torch.uint8)
    image, moved = PrepareBatchAugmented(gamma_prob=0.0, moves_label=True)(
        {"image": images, "label": label}, "cpu"
    )
    assert moved.dtype == torch.uint8
    agreement = (moved == torch.cat([image > 0.5, image > 0.7], dim=1)).float().mean()
    assert agreement > 0.97
    assert not torch.equal(moved, label)


def test_draws_fill_their_ranges() -> None:
    torch.manual_seed(2)
    prepare_batch = PrepareBatchAugmented(flip_prob=0.25)
    matrices = prepare_batch.affine_matrices(2000, (64, 128))
    lengths = matrices[:, :2, :2].norm(dim=1)
    angles = torch.atan2(matrices[:, 1, 0], matrices[:, 0, 0])
    assert 0.85 - 1e-6 <= lengths.min() < 0.86 < 1.14 < lengths.max() <= 1.15 + 1e-6
    assert 0.145 < angles.abs().max() <= 0.15 + 1e-6
    upright = PrepareBatchAugmented(rotate=0.0).affine_matrices(2000, (64, 128))
    assert upright[:, :2, 2].abs().amax(0).tolist() == pytest.approx([4, 8], rel=0.01)
    assert (torch.linalg.det(matrices) < 0).double().mean().item() == pytest.approx(0.25, abs=0.03)
    gammas = prepare_batch.gammas(2000)
    assert (gammas == 1).double().mean().item() == pytest.approx(0.5, abs=0.04)
    assert 0.7 <= gammas.min() < 0.72 < 1.48 < gammas.max() <= 1.5


@pytest.mark.parametrize("gamma", [0.7, 1.5])
def test_contrast_is_that_of_monai(gamma: float) -> None:
    batch = {"image": torch.rand(3, 1, 8, 8), "label": torch.zeros(3, 2)}
    still = {"rotate": 0.0, "scale": 0.0, "shift": 0.0}
    prepare_batch = PrepareBatchAugmented(gamma=(gamma, gamma), gamma_prob=1.0, **still)
    for image, own in zip(batch["image"], prepare_batch(batch, "cpu")[0], strict=True):
        torch.testing.assert_close(own, AdjustContrast(gamma)(image).as_tensor(), rtol=0, atol=1e-4)
