# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Other fields of view against moving by hand; the square around the lungs against pictures that were cut before."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.detection import AnomalyDetector, load_detector, save_detector
from monai_afire.detection.field_of_view import LungView, moved
from monai_afire.networks import AFiRe
from unit.tiny_networks import tiny_vit


def smooth(*shape: int) -> torch.Tensor:
    """An image that resampling hardly blurs: a blob off the center."""
    axes = torch.meshgrid(*(torch.linspace(-1, 1, side) for side in shape), indexing="ij")
    distance = sum((axis - 0.2 * number) ** 2 for number, axis in enumerate(axes))
    return torch.exp(-4 * distance)[None, None]


def test_a_whole_shift_equals_indexing() -> None:
    image = torch.rand(2, 1, 16, 16)
    shift = torch.tensor([[2 / 16, -3 / 16]]).expand(2, -1)
    result = moved(image, torch.ones(2, 2), torch.zeros(2), shift)
    torch.testing.assert_close(result[:, :, 2:12, 5:14], image[:, :, 4:14, 2:11], atol=1e-5, rtol=0)


def test_a_quarter_turn_of_a_square_equals_rot90() -> None:
    image = torch.rand(1, 1, 16, 16)
    turned = moved(image, torch.ones(1, 2), torch.tensor([math.pi / 2]), torch.zeros(1, 2))
    torch.testing.assert_close(turned, image.rot90(1, (2, 3)), atol=1e-5, rtol=0)


def test_a_turn_keeps_what_is_round_in_oblong_images() -> None:
    rows, columns = torch.meshgrid(torch.arange(32) - 15.5, torch.arange(64) - 31.5, indexing="ij")
    image = torch.exp(-(rows**2 + columns**2) / 50)[None, None]
    turned = moved(image, torch.ones(1, 2), torch.tensor([math.radians(20)]), torch.zeros(1, 2))
    torch.testing.assert_close(turned, image, rtol=0, atol=0.01)


def test_half_the_field_of_view_shows_the_middle_twice_as_large() -> None:
    image = smooth(32, 32)
    closer = moved(image, torch.full((1, 2), 0.5), torch.zeros(1), torch.zeros(1, 2))
    middle = torch.nn.functional.interpolate(
        image[:, :, 8:24, 8:24], size=(32, 32), mode="bilinear"
    )
    assert float((closer - middle)[:, :, 2:-2, 2:-2].abs().max()) < 0.02


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    """Twelve phantoms, the last four placed differently."""
    drawn = torch.stack(
        [torch.as_tensor(draw_chest_phantom(8000 + seed, 64).image) for seed in range(12)]
    )
    shift = torch.tensor([[0.0, 0.0]] * 8 + [[0.08, -0.06]] * 4)
    zoom = torch.tensor([[1.0, 1.0]] * 8 + [[1.15, 1.15]] * 4)
    return moved(drawn, zoom, torch.zeros(12), shift)


def twins() -> tuple[AnomalyDetector, AnomalyDetector]:
    """One network in two detectors: of the lungs, and of the picture."""
    network = AFiRe(tiny_vit(img_size=64), 8, 16, 16, 1, 2)
    of_lungs, of_picture = (
        AnomalyDetector(network, memory_size=32, field_of_view=field).eval()
        for field in ("lungs", "image")
    )
    return of_lungs, of_picture


def test_scores_are_those_of_pictures_cut_before(images: torch.Tensor) -> None:
    of_lungs, of_picture = twins()
    view = LungView()
    cut, field = view(images)
    of_lungs.fit([images[:8]])
    of_picture.fit([cut[:8]])
    found, expected = of_lungs(images[8:]), of_picture(cut[8:])
    torch.testing.assert_close(found["scores"], expected["scores"])
    torch.testing.assert_close(found["tokens"], expected["tokens"])
    place = tuple(part[8:] for part in field)
    torch.testing.assert_close(found["maps"], view.to_picture(expected["maps"], (8, 8), place))
    assert not torch.allclose(found["maps"], expected["maps"])


def test_maps_are_put_back_where_they_came_from() -> None:
    view = LungView()
    half = (torch.full((1, 2), 0.5), torch.tensor([[0.25, -0.25]]))  # the lower left quarter
    back = view.to_picture(torch.ones(1, 1, 64), (8, 8), half).reshape(8, 8)
    assert torch.equal(back[4:, :4], torch.ones(4, 4))
    assert back[:3].abs().sum() == 0
    assert back[:, 5:].abs().sum() == 0
    whole = (torch.ones(1, 2), torch.zeros(1, 2))
    maps = torch.randn(1, 3, 64)
    torch.testing.assert_close(view.to_picture(maps, (8, 8), whole), maps)


def test_tokens_count_where_scores_look(images: torch.Tensor) -> None:
    of_lungs, of_picture = twins()
    ring = torch.zeros(8, 8)
    ring[1:-1, 1:-1] = 1
    assert torch.equal(of_picture.judged_tokens(images[:2]).reshape(2, 8, 8), ring.expand(2, 8, 8))
    view = LungView()
    _, field = view(images[:2])
    expected = view.to_picture(ring.expand(2, 1, 8, 8).flatten(2), (8, 8), field)[:, 0]
    torch.testing.assert_close(of_lungs.judged_tokens(images[:2]), expected)


def test_finder_stays_as_it_is_in_training() -> None:
    detector = twins()[0].train()
    assert not detector.field_of_view.finder.training
    assert not any(parameter.requires_grad for parameter in detector.field_of_view.parameters())


def test_a_file_keeps_the_field_of_view(images: torch.Tensor, tmp_path: Path) -> None:
    detector = twins()[0]
    detector.fit([images[:8]])
    read = load_detector(save_detector(detector, tmp_path / "detector.safetensors"))
    assert isinstance(read.field_of_view, LungView)
    found, expected = read(images[8:])["scores"], detector(images[8:])["scores"]
    # half precision, in deviations of 8 images
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.2)
