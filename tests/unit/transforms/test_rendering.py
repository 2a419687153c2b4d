# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The batched lesion synthesis against loops over pixels, and its properties."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from naive.lesions import naive_lesion_map, naive_profile

from monai_afire.transforms.lesion_synthesis.parameters import (
    UNIFORMS_PER_LESION,
    LesionParameters,
    LesionSettings,
    draw_lesion_parameters,
    half_extents,
)
from monai_afire.transforms.lesion_synthesis.rendering import lesion_profile
from monai_afire.transforms.lesion_synthesis.synth_lesion_mask import (
    add_lesion_maps,
    render_lesion_maps,
    synth_lesion_masks,
)

BACKENDS = ("boxes", "dense")


def make_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(
    images: torch.Tensor, settings: LesionSettings | None = None, num_masks: int = 2, seed: int = 0
) -> LesionParameters:
    settings = settings or LesionSettings()
    shape = (len(images), num_masks, int(settings.num_lesions[1]), UNIFORMS_PER_LESION)
    uniforms = torch.rand(shape, generator=make_generator(seed))
    return draw_lesion_parameters(images, settings, uniforms)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("spatial_shape", "settings"),
    [
        ((20, 26), LesionSettings()),
        ((26, 20), LesionSettings(irregularity=0.0, rotate=False)),
        ((24, 24), LesionSettings(irregularity=0.5, gamma=0.1, lesion_size=(0.3, 0.9))),
        (
            (9, 40),
            LesionSettings(lesion_size=(0.5, 0.99), gamma=5.0),
        ),  # longer than the image is high, once turned
        ((3, 12), LesionSettings(irregularity=0.0, lesion_size=(0.3, 0.9), num_lesions=(2, 3))),
    ],
)
def test_both_backends_equal_loops_over_pixels(
    backend: str, spatial_shape: tuple[int, ...], settings: LesionSettings
) -> None:
    for seed in range(3):
        images = torch.rand(
            (2, 1, *spatial_shape), dtype=torch.float64, generator=make_generator(seed + 100)
        )
        parameters = draw(images, settings, seed=seed)
        maps = render_lesion_maps(images, parameters, backend)
        assert maps.shape == (2, 2, 1, *spatial_shape)
        for b in range(2):
            for n in range(2):
                expected = naive_lesion_map(images[b, 0].numpy(), parameters, b, n)
                assert expected.max() > 0
                # 1e-7: the tiny constant that avoids 0 / 0 at the very center of a lesion
                np.testing.assert_allclose(maps[b, n, 0].numpy(), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("spatial_shape", [(224, 224), (100, 37)])
def test_backends_agree_in_single_precision(spatial_shape: tuple[int, ...]) -> None:
    images = torch.rand((3, 2, *spatial_shape), generator=make_generator())
    for seed in range(5):
        outputs = [
            synth_lesion_masks(images, 4, generator=make_generator(seed), backend=backend)
            for backend in BACKENDS
        ]
        torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_hand_computed_lesion(backend: str) -> None:
    """A circle of radius 4 around the center of pixel (8, 8), texture constant 0.5, strength 0.8."""
    images = torch.full((1, 1, 17, 17), 0.5)
    settings = LesionSettings(
        num_lesions=(1, 1), lesion_size=(0.4, 0.5), rotate=False, irregularity=0.0
    )
    parameters = draw(images, settings, num_masks=1)
    parameters.center.fill_(8.5)
    parameters.size.fill_(8.0)
    parameters.amplitude.fill_(0.8)
    lesion_map = render_lesion_maps(images, parameters, backend)[0, 0, 0]
    assert lesion_map[8, 8] == pytest.approx(0.4)
    half_way = (math.exp(-0.25 / 0.5) - math.exp(-2)) / (1 - math.exp(-2))
    assert lesion_map[8, 10] == pytest.approx(0.4 * half_way)
    assert lesion_map[6, 8] == pytest.approx(0.4 * half_way)
    assert lesion_map[8, 12] == lesion_map[4, 8] == lesion_map[5, 5] == 0  # rho = 1, 1 and 1.06
    assert lesion_map[8, 11] > 0
    assert int((lesion_map > 0).sum()) == sum(
        (i - 8) ** 2 + (j - 8) ** 2 < 16 for i in range(17) for j in range(17)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gamma", [0.02, 0.5, 100.0])
def test_profile(gamma: float, dtype: torch.dtype) -> None:
    rho = torch.linspace(0, 1.5, 3001, dtype=dtype)
    profile = lesion_profile(rho.square(), gamma)
    assert profile[0] == pytest.approx(1.0, abs=1e-6)
    assert torch.all(profile[rho >= 1] == 0)
    assert lesion_profile(torch.ones(7, dtype=dtype), gamma).eq(0).all()
    assert torch.all(profile.diff() <= 0)
    expected = [naive_profile(float(r), gamma) for r in rho]
    np.testing.assert_allclose(profile, expected, atol=1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_edges(backend: str) -> None:
    """On a constant image no two neighboring pixels differ by more than the slope of the profile allows."""
    images = torch.full((4, 1, 112, 112), 0.6)
    settings = LesionSettings(num_lesions=(1, 1), lesion_size=(20, 64), irregularity=0.0)
    parameters = draw(images, settings, num_masks=8)
    maps = render_lesion_maps(images, parameters, backend)
    slopes = (
        torch.tensor([naive_profile(i / 1000, 0.5) for i in range(1001)]).diff().abs().max() * 1000
    )
    steepest = (
        0.6 * parameters.amplitude.squeeze(-1) * slopes * 2 / parameters.size.squeeze(2).amin(-1)
    )
    for axis in (-1, -2):
        jumps = maps.diff(dim=axis).abs().amax((-3, -2, -1))
        assert torch.all(jumps <= steepest * 1.01)
    border = torch.cat(
        [maps[..., 0, :], maps[..., -1, :], maps[..., :, 0], maps[..., :, -1]], dim=-1
    )
    assert border.max() <= steepest.max()  # lesions are not cut by the border of the image


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("spatial_shape", [(64, 80)])
def test_lesions_stay_inside_their_ellipse_and_boxes_inside_the_image(
    backend: str, spatial_shape: tuple[int, ...]
) -> None:
    images = 0.1 + 0.9 * torch.rand((4, 1, *spatial_shape), generator=make_generator())
    parameters = draw(images, LesionSettings(num_lesions=(1, 1), irregularity=0.5), num_masks=16)
    extent = half_extents(parameters.size, parameters.rotation)
    side = torch.tensor(spatial_shape)
    fits = 2 * extent <= side
    assert torch.all((parameters.center - extent >= -1e-4) | ~fits)
    assert torch.all((parameters.center + extent <= side + 1e-4) | ~fits)
    maps = render_lesion_maps(images, parameters, backend)[:, :, 0]
    pixels = torch.stack(
        torch.meshgrid(*[torch.arange(s) + 0.5 for s in spatial_shape], indexing="ij"), dim=-1
    )
    offsets = pixels.flatten(0, -2) - parameters.center.squeeze(2)[..., None, :]
    local = (
        2 * (offsets @ parameters.rotation.squeeze(2)) / parameters.size.squeeze(2)[..., None, :]
    )
    outside = (local.square().sum(-1) > 1 + 1e-4).unflatten(-1, spatial_shape)
    assert torch.all(maps[outside] == 0)
    assert torch.all(maps.flatten(2).amax(-1) > 0)


def test_parameters_in_range_and_distribution() -> None:
    images = torch.rand((8, 1, 112, 224), generator=make_generator())
    parameters = draw(images, num_masks=100)
    numbers = parameters.active.sum(-1)
    # over 5 sd
    assert [int((numbers == k).sum()) for k in range(1, 5)] == pytest.approx([200] * 4, abs=60)
    for lengths in (parameters.size, parameters.texture_size):
        low, high = lengths.flatten(0, 2).amin(0), lengths.flatten(0, 2).amax(0)
        assert low.tolist() == pytest.approx([8, 16], rel=0.05)
        assert high.tolist() == pytest.approx([32, 64], rel=0.05)
        correlation = torch.corrcoef(lengths.flatten(0, 2).T)[0, 1]
        assert abs(float(correlation)) < 0.1
    assert (
        abs(
            float(
                torch.corrcoef(torch.stack([parameters.size, parameters.texture_size]).flatten(1))[
                    0, 1
                ]
            )
        )
        < 0.8
    )
    assert 0.15 <= float(parameters.amplitude.min()) < 0.16
    assert 0.49 < float(parameters.amplitude.max()) <= 0.5
    half = parameters.texture_size / 2
    assert torch.all(parameters.texture_center - half >= -1e-4)
    assert torch.all(parameters.texture_center + half <= torch.tensor([112, 224]) + 1e-4)
    spread = parameters.center.flatten(0, 2).std(0) / torch.tensor([112, 224])
    assert torch.all(spread > 0.15)


@pytest.mark.parametrize("side", [56, 112, 448])
def test_lesions_scale_with_the_image(side: int) -> None:
    """The same random numbers give the same lesions at every image size, up to interpolation."""
    small = torch.rand((1, 1, 14, 14), generator=make_generator())
    images = [
        torch.nn.functional.interpolate(small, (s, s), mode="bilinear", align_corners=False)
        for s in (224, side)
    ]
    maps = [
        synth_lesion_masks(
            x, 4, generator=make_generator(3), irregularity=0.0, lesion_size=(32, 64)
        )[1]
        for x in images
    ]
    covered = [float((m > 0).double().mean()) for m in maps]
    assert covered[0] == pytest.approx(covered[1], rel=0.1)
    pixels = synth_lesion_masks(images[1], 4, generator=make_generator(3), lesion_size=(32, 64))[1]
    fractions = synth_lesion_masks(
        images[1], 4, generator=make_generator(3), lesion_size=(32 / 224, 64 / 224)
    )[1]
    assert torch.equal(pixels, fractions)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_output_is_image_plus_map(dtype: torch.dtype) -> None:
    images = torch.rand((2, 3, 40, 40), generator=make_generator()).to(dtype)
    before = images.clone()
    lesion_images, maps = synth_lesion_masks(images, 3, generator=make_generator())
    assert torch.equal(images, before)
    assert (lesion_images.dtype, maps.dtype) == (dtype, dtype)
    assert (lesion_images.shape, maps.shape) == ((2, 3, 3, 40, 40), (2, 3, 1, 40, 40))
    assert float(lesion_images.min()) >= 0
    assert float(lesion_images.max()) <= 1
    assert float(maps.min()) >= 0
    tolerance = torch.finfo(dtype).eps * 2
    torch.testing.assert_close(lesion_images, add_lesion_maps(images, maps), rtol=0, atol=tolerance)
    unchanged = (maps == 0).expand_as(lesion_images)
    assert torch.equal(
        lesion_images[unchanged], images.unsqueeze(1).expand_as(lesion_images)[unchanged]
    )
    if dtype == torch.float64:
        changed = lesion_images != images.unsqueeze(1)
        room = images.unsqueeze(1) < 1
        assert torch.equal(changed, (maps > 1e-15).expand_as(changed) & room)


@pytest.mark.parametrize("spatial_shape", [(1, 1), (2, 3), (4, 224)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_tiny_images_get_a_lesion_too(backend: str, spatial_shape: tuple[int, ...]) -> None:
    images = torch.full((1, 1, *spatial_shape), 0.5)
    for seed in range(20):
        maps = synth_lesion_masks(images, 3, generator=make_generator(seed), backend=backend)[1]
        assert torch.all(maps.flatten(2).amax(-1) > 0)


def test_dense_backend_never_reads_a_tensor_on_the_host() -> None:
    """The meta device has no data, so that any step that needs some (and would wait for a GPU) raises an error."""
    lesion_images, maps = synth_lesion_masks(torch.rand((2, 1, 64, 64), device="meta"), 3)
    assert lesion_images.device.type == "meta"
    assert maps.shape == (2, 3, 1, 64, 64)


@pytest.mark.parametrize(
    "images",
    [
        torch.rand(2, 16, 16),
        torch.rand(1, 1, 4, 4, 4),
        torch.zeros(1, 1, 8, 8, dtype=torch.uint8),
        torch.full((1, 1, 8, 8), -0.5),
        torch.full((1, 1, 8, 8), float("nan")),
        torch.tensor([0.5] * 63 + [float("nan")]).reshape(1, 1, 8, 8),
        torch.tensor([0.5] * 63 + [1.1]).reshape(1, 1, 8, 8),
    ],
)
def test_images_of_other_shapes_and_ranges_are_refused(images: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="image must be"):
        synth_lesion_masks(images)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_lesions": (3, 2)},
        {"lesion_size": (64, 16)},
        {"lesion_size": (0.1, 16)},
        {"lesion_size": (16, 300)},
        {"gamma": 0.0},
        {"amplitude": (0.0, 1.0)},
        {"irregularity": 0.6},
        {"irregularity": -0.1},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        synth_lesion_masks(torch.rand(1, 1, 8, 8), **settings)


def test_rotations_are_proper_and_vary() -> None:
    images = torch.rand((1, 1, 16, 16), dtype=torch.float64)
    rotation = draw(images, num_masks=50).rotation
    identity = torch.eye(2, dtype=torch.float64).expand_as(rotation)
    torch.testing.assert_close(rotation @ rotation.mT, identity)
    assert torch.linalg.det(rotation).min() > 0
    assert rotation.mean((0, 1, 2)).abs().max() < 0.2
    still = draw(images, LesionSettings(rotate=False)).rotation
    assert torch.equal(still, identity[:, :2, :].expand_as(still))
