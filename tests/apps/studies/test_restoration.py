# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

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
        if hidden is None:
            return tokens
        return torch.where(
            hidden.unsqueeze(-1), torch.as_tensor(self.gray, dtype=tokens.dtype), tokens
        )


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


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_like_one_image_at_a_time(batch_size: int) -> None:
    network, images = tiny_afire().train(), torch.rand(5, 1, 32, 32)
    found = restorations(network, images, {"num_lesions": (2, 2)}, 3, batch_size)
    assert network.training
    lesion, maps = synth_lesion_masks(images, 1, (2, 2), generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(found.lesion, lesion)
    assert torch.equal(found.hidden, patch_labels(maps, 8))
    network.eval()
    pairs = {
        "with_mask": (0, True),
        "without_mask": (0, False),
        "normal_with_mask": (1, True),
        "normal_without_mask": (1, False),
    }
    for row in range(5):
        for name, (source, masked) in pairs.items():
            picture = (lesion[row], images[row])[source][None]
            with torch.no_grad():
                patches = network.decoder(
                    network.encoder(picture), found.hidden[row : row + 1] if masked else None
                )
            expected = torch.zeros(32, 32)
            for place, patch in enumerate(patches[0]):
                top, left = 8 * (place // 4), 8 * (place % 4)
                expected[top : top + 8, left : left + 8] = patch.reshape(8, 8)
            expected = (expected * network.encoder.std[0, 0] + network.encoder.mean[0, 0]).clamp(
                0, 1
            )
            torch.testing.assert_close(
                getattr(found, name)[row, 0], expected[0] if expected.ndim > 2 else expected
            )
    torch.testing.assert_close(network(images), found.normal_without_mask)


def test_scores_are_those_of_the_pixels_inside() -> None:
    torch.manual_seed(0)
    found = restorations(tiny_afire(), torch.rand(3, 1, 32, 32))
    table = restoration_scores(found, PATCH)
    for row in range(3):
        inside = np.kron(found.hidden[row].reshape(4, 4).numpy(), np.ones(PATCH)) > 0
        normal, lesion = found.normal[row, 0].numpy(), found.lesion[row, 0].numpy()
        for name in (
            "with_mask",
            "without_mask",
            "normal_with_mask",
            "normal_without_mask",
            "lesion",
        ):
            picture = getattr(found, name)[row, 0].numpy()
            expected = peak_signal_noise_ratio(normal[inside], picture[inside], data_range=1)
            assert table[f"psnr_{name}"][row] == pytest.approx(expected, rel=1e-4)
        restored = found.with_mask[row, 0].numpy()
        gain = 1 - ((restored - normal)[inside] ** 2).sum() / ((lesion - normal)[inside] ** 2).sum()
        assert table["gain_with_mask"][row] == pytest.approx(gain, rel=1e-3)
        outside = peak_signal_noise_ratio(normal[~inside], restored[~inside], data_range=1)
        assert table["psnr_outside"][row] == pytest.approx(outside, rel=1e-4)


def test_lesions_that_change_nothing_do_not_count() -> None:
    # white on white: the lesion is there, but nobody can see it
    white = torch.ones(2, 1, 32, 32)
    found = restorations(tiny_afire(), white)
    assert found.hidden.any()
    table = restoration_scores(found, PATCH)
    assert table[["gain_with_mask", "psnr_lesion", "psnr_with_mask"]].isna().all().all()
    assert table["psnr_normal_with_mask"].notna().all()
    assert np.isnan(restoration_summary(found, PATCH)["gain_with_mask"])
    # black has no texture to make a lesion of
    black = restoration_scores(restorations(tiny_afire(), torch.zeros(1, 1, 32, 32)), PATCH)
    assert black.drop(columns="psnr_outside").isna().all().all()


def test_gains_are_pooled_over_images() -> None:
    normal = torch.zeros(2, 1, 16, 16)
    lesion, restored = normal.clone(), normal.clone()
    lesion[0], lesion[1], restored[:] = 0.4, 0.001, 0.1
    hidden = torch.ones(2, 4, dtype=torch.bool)
    found = Restorations(normal, lesion, hidden, restored, restored, normal, normal)
    assert restoration_scores(found, PATCH)["gain_with_mask"][1] < -9000
    summary = restoration_summary(found, PATCH)
    assert summary["gain_with_mask"] == pytest.approx(
        1 - 2 * 0.1**2 / (0.4**2 + 0.001**2), rel=1e-5
    )
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
    assert "4 images" in result.question
    assert len(result.figures) == 4
    assert [len(figure.axes) for figure in result.figures.values()] == [20, 16, 20, 16]
    known = StudyImages(images[[0]], group=["healthy"])  # no such group: all
    assert "1 images" in restoration_study({}, known, networks).question
