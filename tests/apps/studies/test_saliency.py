# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from apps.studies.stub_encoders import tiny_vit
from torch import nn

from monai_afire.apps.studies import StudyImages, saliency_study
from monai_afire.apps.studies.saliency import (
    grad_cam,
    localization_scores,
)
from monai_afire.networks import SwinEncoder, TransferClassifier
from monai_afire.networks.blocks.patches import patchify
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.visualize.figures import figure_to_array


class BrightnessEncoder(RadiographEncoder):
    """Token = (mean, 1 - mean) of its patch."""

    def __init__(self, size: int = 32, patch: int = 8) -> None:
        super().__init__(1, (size, size), (patch, patch), 2, 0.0, 1.0)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mean = patchify(images, self.patch_size).mean(-1, keepdim=True)
        return torch.cat([mean, 1 - mean], dim=-1)


def brightness_classifier(freeze: bool = False) -> TransferClassifier:
    """Class 0 is brightness, class 1 darkness, class 2 nothing at all."""
    network = TransferClassifier(BrightnessEncoder(), 3, freeze, standardize_features=False)
    with torch.no_grad():
        network.classifier.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    return network


def small_swin() -> SwinEncoder:
    torch.manual_seed(0)
    return SwinEncoder(
        img_size=32, patch_size=4, embed_dim=8, depths=(2, 2), num_heads=(2, 2), window_size=2
    )


def bright_spots(places: list[tuple[int, int]]) -> torch.Tensor:
    images = torch.full((len(places), 1, 32, 32), 0.25)
    for image, (row, column) in zip(images, places, strict=True):
        image[:, row : row + 8, column : column + 8] = 1.0
    return images


@pytest.mark.parametrize("freeze", [False, True])
def test_grad_cam_of_a_hand_made_classifier(freeze: bool) -> None:
    images = bright_spots([(8, 16), (0, 0), (24, 8)])
    maps = grad_cam(brightness_classifier(freeze), images, [0, 1, 2], batch_size=2)
    # the gradient of the logit is 1/16 for every token of the class's feature: the map is the feature over 16
    expected = F.interpolate(F.avg_pool2d(images, 8) / 16, size=(32, 32), mode="bilinear")[:, 0]
    torch.testing.assert_close(maps[0], expected[0])
    torch.testing.assert_close(maps[1], 1 / 16 - expected[1])
    assert maps[2].eq(0).all()


def naive_grad_cam(
    network: TransferClassifier, image: torch.Tensor, number: int, layer: str
) -> torch.Tensor:
    """One image, by autograd on a plain function of the layer's output."""
    kept: dict[str, torch.Tensor] = {}

    def keep(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        kept["activation"] = output
        output.retain_grad()

    handle = network.get_submodule(layer).register_forward_hook(keep)
    network.eval()
    network(image[None].clone().requires_grad_())[0, number].backward()
    handle.remove()
    activation, gradient = kept["activation"][0].detach(), kept["activation"].grad[0]
    if activation.ndim == 2:
        rows = [
            [
                sum(
                    gradient[:, d].mean() * activation[4 * r + c, d]
                    for d in range(activation.shape[1])
                )
                for c in range(4)
            ]
            for r in range(4)
        ]
        heat = torch.tensor([[float(value) for value in row] for row in rows])
    else:
        heat = sum(gradient[d].mean() * activation[d] for d in range(len(activation)))
    return F.interpolate(heat.clamp_min(0)[None, None], size=(32, 32), mode="bilinear")[0, 0]


@pytest.mark.parametrize(
    ("encoder", "layer"),
    [
        (tiny_vit, "encoder"),
        (tiny_vit, "encoder.blocks.0"),
        (tiny_vit, "encoder.patch_embedding.patch_embeddings"),
        (small_swin, "encoder"),
        (small_swin, "encoder.layers.0"),
        (small_swin, "encoder.layers.1"),
    ],
)
def test_grad_cam_like_one_image_at_a_time(
    encoder: Callable[[], RadiographEncoder], layer: str
) -> None:
    torch.manual_seed(0)
    network = TransferClassifier(encoder(), 3)
    network.classifier.weight.data.normal_()
    network.standardize.running_mean.normal_()
    images, classes = torch.rand(5, 1, 32, 32), [2, 0, 2, 1, 0]
    maps = grad_cam(network, images, classes, layer, batch_size=2)
    assert maps.amax() > 0
    for image, number, heat in zip(images, classes, maps, strict=True):
        torch.testing.assert_close(
            heat, naive_grad_cam(network, image, number, layer), atol=1e-6, rtol=1e-4
        )


def test_grad_cam_leaves_the_network_alone() -> None:
    network = TransferClassifier(tiny_vit(dropout_rate=0.5), 2, freeze_encoder=True).train()
    network.classifier(torch.rand(1, 24)).sum().backward()
    gradient = network.classifier.weight.grad.clone()
    modes = [module.training for module in network.modules()]
    images = torch.rand(2, 1, 32, 32)
    with torch.no_grad():
        first, second = (grad_cam(network, images, [0, 1]) for _ in range(2))
    torch.testing.assert_close(first, second)
    assert not images.requires_grad
    assert not first.requires_grad
    assert torch.equal(network.classifier.weight.grad, gradient)
    assert [module.training for module in network.modules()] == modes
    assert not any(module._forward_hooks or module._backward_hooks for module in network.modules())
    assert not any(parameter.requires_grad for parameter in network.encoder.parameters())


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


def test_noise_is_at_chance() -> None:
    generator = torch.Generator().manual_seed(0)
    heat = torch.rand(3000, 12, 12, generator=generator)
    boxes = [torch.tensor([[2.0, 3.0, 6.0, 5.0]])] * 3000
    means = localization_scores(heat, boxes).mean()
    for name in ("pointing_game", "iou_half", "iou_top"):
        assert means[name] == pytest.approx(
            means[f"{name}_chance"], abs=0.03 if name == "pointing_game" else 0.01
        )


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
    assert [axis.get_ylabel() for axis in figure.axes[::2]] == ["bright", "dark", "unheard of"]
    assert figure_to_array(figure).std() > 0


def test_kinds_of_boxes_are_cases_of_their_own() -> None:
    images = bright_spots([(8, 16)])
    boxes = [torch.tensor([[8.0, 16.0, 8.0, 8.0], [0.0, 0.0, 8.0, 8.0], [24.0, 24.0, 8.0, 8.0]])]
    known = StudyImages(images, group=["x"], boxes=boxes, box_kinds=[["bright", "dark", "dark"]])
    networks, names = {"net": brightness_classifier()}, ["bright", "dark", "none"]
    (detail,) = saliency_study({}, known, networks, names).details.values()
    assert detail["pointing_game"]["bright"] == 1
    assert 0 < detail["pointing_game"]["dark"] < 0.2  # all that is dark is equally dark
    assert detail["pointing_game_chance"].to_dict() == {
        "bright": 1 / 16,
        "dark": 2 / 16,
        "all": 1.5 / 16,
    }
