# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from apps.studies.stub_encoders import tiny_afire
from skimage.metrics import peak_signal_noise_ratio
from torch import nn

from monai_afire.apps.studies import StudyImages, restoration_study
from monai_afire.apps.studies.restoration import (
    Restorations,
    restoration_scores,
    restoration_summary,
    restorations,
)
from monai_afire.networks import AFiRe, ViTEncoder
from monai_afire.networks.blocks.patches import patch_labels, patchify
from monai_afire.transforms import synth_lesion_masks

PATCH = (8, 8)


class CopyingEncoder(ViTEncoder):
    """Tokens are the normalized pixels themselves."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return patchify(self.normalize(images), self.patch_size)


class CopyingDecoder(nn.Module):
    """Gives tokens back, hidden ones as a gray of 0.5."""

    def __init__(self, gray: float) -> None:
        super().__init__()
        self.gray = gray

    def forward(self, tokens: torch.Tensor, hidden: torch.Tensor | None = None) -> torch.Tensor:
        return tokens if hidden is None else tokens.masked_fill(hidden.unsqueeze(-1), self.gray)


def copying_network() -> AFiRe:
    """Copies what it sees and knows that a hidden patch of a gray image is gray."""
    encoder = CopyingEncoder(img_size=32, patch_size=8, hidden_size=64, num_layers=1, num_heads=2)
    network = tiny_afire(encoder)
    network.decoder = CopyingDecoder(float((0.5 - encoder.mean) / encoder.std))
    return network


def test_mask_tokens_take_lesions_out_of_what_else_is_copied() -> None:
    images = torch.full((6, 1, 32, 32), 0.5)
    found = restorations(copying_network(), images, {"amplitude": (0.5, 0.5)}, batch_size=4)
    assert (found.lesion != images).flatten(1).any(1).all()
    torch.testing.assert_close(found.without_mask, found.lesion, atol=1e-6, rtol=0)
    torch.testing.assert_close(found.normal_with_mask, images, atol=1e-6, rtol=0)
    summary = restoration_summary(found, PATCH)
    assert summary["gain_with_mask"] == pytest.approx(1, abs=1e-5)
    assert summary["gain_without_mask"] == pytest.approx(0, abs=1e-5)
    assert summary["psnr_without_mask"] == pytest.approx(summary["psnr_lesion"], abs=1e-3)
    assert summary["psnr_with_mask"] > 100


def test_like_one_image_at_a_time() -> None:
    network, images = tiny_afire().train(), torch.rand(5, 1, 32, 32)
    found = restorations(network, images, {"num_lesions": (2, 2)}, seed=3, batch_size=2)
    assert network.training
    lesion, maps = synth_lesion_masks(images, 1, (2, 2), generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(found.lesion, lesion)
    assert torch.equal(found.hidden, patch_labels(maps, 8))
    network.eval()
    pairs = {
        "with_mask": (lesion, True),
        "without_mask": (lesion, False),
        "normal_with_mask": (images, True),
        "normal_without_mask": (images, False),
    }
    for row, name in product(range(5), pairs):
        pictures, is_masked = pairs[name]
        hidden = found.hidden[row : row + 1] if is_masked else None
        with torch.no_grad():
            patches = network.decoder(network.encoder(pictures[row : row + 1]), hidden)
        expected = torch.zeros(32, 32)
        for place, patch in enumerate(patches[0]):
            top, left = 8 * (place // 4), 8 * (place % 4)
            expected[top : top + 8, left : left + 8] = patch.reshape(8, 8)
        expected = expected * network.encoder.std.flatten() + network.encoder.mean.flatten()
        torch.testing.assert_close(getattr(found, name)[row, 0], expected.clamp(0, 1))


def test_scores_are_those_of_the_pixels_inside() -> None:
    torch.manual_seed(0)
    found = restorations(tiny_afire(), torch.rand(3, 1, 32, 32))
    table = restoration_scores(found, PATCH)
    for row in range(3):
        inside = np.kron(found.hidden[row].reshape(4, 4).numpy(), np.ones(PATCH)) > 0
        normal = found.normal[row, 0].numpy()
        for name in {*found._fields} - {"normal", "hidden"}:
            picture = getattr(found, name)[row, 0].numpy()
            expected = peak_signal_noise_ratio(normal[inside], picture[inside], data_range=1)
            assert table[f"psnr_{name}"][row] == pytest.approx(expected, rel=1e-4)
        restored = found.with_mask[row, 0].numpy()
        outside = peak_signal_noise_ratio(normal[~inside], restored[~inside], data_range=1)
        assert table["psnr_outside"][row] == pytest.approx(outside, rel=1e-4)


def test_lesions_that_change_nothing_do_not_count() -> None:
    # white on white: the lesion is there, but nobody can see it
    found = restorations(tiny_afire(), torch.ones(2, 1, 32, 32))
    assert found.hidden.any()
    summary = restoration_summary(found, PATCH)
    assert np.isnan([summary[name] for name in ("gain_with_mask", "psnr_with_mask")]).all()
    assert np.isfinite(summary["psnr_normal_with_mask"])


def test_gains_are_pooled_over_images() -> None:
    normal = torch.zeros(2, 1, 16, 16)
    lesion, restored = normal.clone(), normal.clone()
    lesion[0], lesion[1], restored[:] = 0.4, 0.001, 0.1
    hidden = torch.ones(2, 4, dtype=torch.bool)
    found = Restorations(normal, lesion, hidden, restored, restored, normal, normal)
    summary = restoration_summary(found, PATCH)
    pooled = 1 - 2 * 0.1**2 / (0.4**2 + 0.001**2)
    assert summary["gain_with_mask"] == pytest.approx(pooled, rel=1e-5)
    assert summary["psnr_with_mask"] == pytest.approx(20)


def test_study_takes_the_normal_images_of_every_network() -> None:
    torch.manual_seed(0)
    images = torch.rand(5, 1, 32, 32)
    images[1] = torch.nan  # not normal: it must not be looked at
    networks = {"a": tiny_afire(), "b": copying_network()}
    group = ["normal", "nodule", "normal", "normal", "normal"]
    result = restoration_study({}, StudyImages(images, group=group), networks)
    assert result.table.index.tolist() == ["a", "b"]
    assert np.isfinite(result.table.loc["a"]).all()
    assert len(result.figures) == 4
