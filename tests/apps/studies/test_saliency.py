# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

import numpy as np
import pytest
import torch
from apps.studies.stub_encoders import tiny_vit
from monai.visualize import GradCAM
from torch import nn

from monai_afire.apps.studies import StudyImages, saliency_study
from monai_afire.apps.studies.saliency import (
    grad_cam,
    localization_scores,
)
from monai_afire.apps.studies.study import NothingToCompareError
from monai_afire.networks import TransferClassifier
from monai_afire.networks.blocks.patches import patchify
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder


class Maps(nn.Module):
    """Tokens on their grid, as MONAI's Grad-CAM wants them."""

    def __init__(self, encoder: RadiographEncoder) -> None:
        super().__init__()
        self.wrapped = encoder

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.wrapped(images).transpose(1, 2).unflatten(2, self.wrapped.grid_size)


class AsMaps(nn.Module):
    """A classifier whose encoder gives maps."""

    def __init__(self, network: TransferClassifier) -> None:
        super().__init__()
        self.encoder, self.network = Maps(network.encoder), network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.encoder(images).flatten(2).mean(-1)
        return self.network.classifier(self.network.standardize(features))


class BrightnessEncoder(RadiographEncoder):
    """Token = (mean, 1 - mean) of its patch."""

    def __init__(self, size: int = 32, patch: int = 8) -> None:
        super().__init__(1, (size, size), (patch, patch), 2, 0.0, 1.0)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mean = patchify(images, self.patch_size).mean(-1, keepdim=True)
        return torch.cat([mean, 1 - mean], dim=-1)


def brightness_classifier() -> TransferClassifier:
    """Class 0 is brightness, class 1 darkness, class 2 nothing at all."""
    network = TransferClassifier(BrightnessEncoder(), 3, standardize_features=False)
    with torch.no_grad():
        network.classifier.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    return network


def bright_spots(places: list[tuple[int, int]]) -> torch.Tensor:
    images = torch.full((len(places), 1, 32, 32), 0.25)
    for image, (row, column) in zip(images, places, strict=True):
        image[:, row : row + 8, column : column + 8] = 1.0
    return images


def test_grad_cam_is_that_of_monai() -> None:
    torch.manual_seed(0)
    network = TransferClassifier(tiny_vit(), 3).eval()
    network.classifier.weight.data.normal_()
    network.standardize.running_mean.normal_()
    images, classes = torch.rand(5, 1, 32, 32), [2, 0, 2, 1, 0]
    found = grad_cam(network, images, classes, batch_size=2)
    assert found.amax() > 0
    of_monai = GradCAM(AsMaps(network), "encoder", postprocessing=lambda maps: maps)
    for image, number, heat in zip(images, classes, found, strict=True):
        expected = of_monai(image[None].clone().requires_grad_(), class_idx=number)[0, 0]
        torch.testing.assert_close(heat, expected.detach(), atol=1e-6, rtol=1e-4)


def test_scores_by_hand() -> None:
    heat = torch.zeros(5, 4, 5)
    heat[0, 0, 0], heat[0, 1, 1] = 1.0, 0.9  # the hottest is not in the box
    heat[1, 1:3, 1:3] = 1.0  # four hottest, two of them in the box
    heat[2] = 0.3  # a flat map
    heat[3, 0, 0] = 1.0  # no box
    heat[4] = torch.arange(20.0).reshape(4, 5) - 7  # negative values are as good
    boxes = [[[1, 1, 1, 1]], [[0, 0, 2, 5]], [[0, 0, 4, 1], [0, 0, 2, 1]], [], [[3, 3, 1, 2]]]
    table = localization_scores(
        heat, [torch.tensor(one, dtype=torch.float32).reshape(-1, 4) for one in boxes], top=0.2
    )
    nan = np.nan
    np.testing.assert_allclose(table["pointing_game"], [0, 0.5, 0.2, nan, 1])
    np.testing.assert_allclose(table["pointing_game_chance"], [0.05, 0.5, 0.2, nan, 0.1], rtol=1e-6)
    np.testing.assert_allclose(table["iou_half"], [1 / 2, 2 / 12, 0, nan, 2 / 10], rtol=1e-6)
    np.testing.assert_allclose(table["iou_top"][[1, 2, 4]], [2 / 12, 0, 2 / 4], rtol=1e-6)
    np.testing.assert_allclose(table["iou_half_chance"][1], 0.1 / (0.2 + 0.5 - 0.1), rtol=1e-6)
    np.testing.assert_allclose(table["iou_top_chance"][4], 0.02 / (0.2 + 0.1 - 0.02), rtol=1e-6)


def test_study_finds_the_bright_lesion() -> None:
    network = brightness_classifier()
    places = [(8, 16), (0, 0), (24, 8), (16, 16)]
    images = bright_spots(places)
    boxes = [torch.tensor([[row, column, 8.0, 8.0]]) for row, column in places]
    boxes[3] = torch.empty(0, 4)
    group = ["bright", "dark", "unheard of", "bright"]
    known = StudyImages(images, group=group, boxes=boxes)
    result = saliency_study({}, known, {"net": network}, ["bright", "dark", "none"])
    assert result.table.index.tolist() == ["net: Grad-CAM"]
    (detail,) = result.details.values()
    assert detail["pointing_game"].to_dict() == {
        "bright": 1,
        "dark": 0,
        "unheard of": 0,
        "all": pytest.approx(1 / 3),
    }
    assert detail["images"].to_dict() == {"bright": 1, "dark": 1, "unheard of": 1, "all": 3}
    # the class of "unheard of" is the predicted one: these images are dark on average
    (figure,) = result.figures.values()
    assert len(figure.axes) == 3 * 2
    nowhere = StudyImages(images, boxes=[torch.empty(0, 4)] * 4)
    with pytest.raises(NothingToCompareError, match="box"):
        saliency_study({}, nowhere, {"net": network})
