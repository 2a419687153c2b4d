# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The batched lesion synthesis against loops over pixels, its properties, and Otsu's threshold against scikit-image."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from naive.lesions import naive_lesion_map
from skimage.filters import threshold_otsu

from monai_afire.transforms.lesion_synthesis.parameters import (
    UNIFORMS_PER_LESION,
    LesionParameters,
    LesionSettings,
    draw_lesion_parameters,
    half_extents,
    otsu_threshold,
    random_foreground_points,
)
from monai_afire.transforms.lesion_synthesis.synth_lesion_mask import (
    render_lesion_maps,
    synth_lesion_masks,
)


def make_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(
    images: torch.Tensor, settings: LesionSettings | None = None, num_masks: int = 2, seed: int = 0
) -> LesionParameters:
    settings = settings or LesionSettings()
    shape = (len(images), num_masks, int(settings.num_lesions[1]), UNIFORMS_PER_LESION)
    uniforms = torch.rand(shape, generator=make_generator(seed))
    return draw_lesion_parameters(images, settings, uniforms)


@pytest.mark.parametrize("backend", ["boxes", "dense"])
@pytest.mark.parametrize(
    ("spatial_shape", "settings"),
    [
        ((20, 26), LesionSettings()),
        ((26, 20), LesionSettings(irregularity=0.0, rotate=False)),
        ((24, 24), LesionSettings(irregularity=0.5, gamma=0.02, lesion_size=(0.3, 0.9))),
        # longer than the image is high, once turned
        ((9, 40), LesionSettings(lesion_size=(0.5, 0.99), gamma=100.0)),
        ((3, 12), LesionSettings(irregularity=0.0, lesion_size=(0.3, 0.9), num_lesions=(2, 3))),
    ],
)
def test_both_backends_equal_loops_over_pixels(
    backend: str, spatial_shape: tuple[int, ...], settings: LesionSettings
) -> None:
    for seed in range(2):
        images = torch.rand(
            (2, 1, *spatial_shape), dtype=torch.float64, generator=make_generator(seed + 100)
        )
        parameters = draw(images, settings, seed=seed)
        maps = render_lesion_maps(images, parameters, backend)
        assert maps.shape == (2, 2, 1, *spatial_shape)
        for b, n in np.ndindex(2, 2):
            expected = naive_lesion_map(images[b, 0].numpy(), parameters, b, n)
            assert expected.max() > 0
            # 1e-7: the tiny constant that avoids 0 / 0 at the very center of a lesion
            np.testing.assert_allclose(maps[b, n, 0].numpy(), expected, rtol=0, atol=1e-7)


def test_backends_agree_in_single_precision() -> None:
    images = torch.rand((3, 2, 100, 37), generator=make_generator())
    for seed in range(5):
        boxes, dense = (
            synth_lesion_masks(images, 4, generator=make_generator(seed), backend=backend)
            for backend in ("boxes", "dense")
        )
        torch.testing.assert_close(boxes, dense, rtol=0, atol=1e-5)


@pytest.mark.parametrize("backend", ["boxes", "dense"])
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


def test_parameters_in_range_and_distribution() -> None:
    images = torch.rand((8, 1, 112, 224), generator=make_generator())
    side = torch.tensor([112, 224])
    parameters = draw(images, num_masks=100)
    numbers = parameters.active.sum(-1)
    # over 5 sd
    assert [int((numbers == k).sum()) for k in range(1, 5)] == pytest.approx([200] * 4, abs=60)
    for lengths in (parameters.size, parameters.texture_size):
        rows, columns = lengths.flatten(0, 2).T
        assert (float(rows.min()), float(rows.max())) == pytest.approx((8, 32), rel=0.05)
        assert (float(columns.min()), float(columns.max())) == pytest.approx((16, 64), rel=0.05)
        assert abs(float(torch.corrcoef(torch.stack([rows, columns]))[0, 1])) < 0.1
    assert not torch.equal(parameters.size, parameters.texture_size)
    assert 0.15 <= float(parameters.amplitude.min()) < 0.16
    assert 0.49 < float(parameters.amplitude.max()) <= 0.5
    half = parameters.texture_size / 2
    assert torch.all(parameters.texture_center - half >= -1e-4)
    assert torch.all(parameters.texture_center + half <= side + 1e-4)
    extent = half_extents(parameters.size, parameters.rotation)
    fits = 2 * extent <= side
    assert torch.all((parameters.center - extent >= -1e-4) | ~fits)
    assert torch.all((parameters.center + extent <= side + 1e-4) | ~fits)
    assert torch.all(parameters.center.flatten(0, 2).std(0) / side > 0.15)
    identity = torch.eye(2).expand_as(parameters.rotation)
    torch.testing.assert_close(parameters.rotation @ parameters.rotation.mT, identity)
    assert parameters.rotation.mean((0, 1, 2)).abs().max() < 0.1


def test_lesions_scale_with_the_image() -> None:
    """The same random numbers give the same lesions at every image size, up to interpolation."""
    small = torch.rand((1, 1, 14, 14), generator=make_generator())
    covered = []
    for side in (56, 224):
        image = torch.nn.functional.interpolate(small, (side, side), mode="bilinear")
        settings = {"num_lesions": (2, 3), "gamma": 0.5}
        of_224_pixels, of_the_image = (
            synth_lesion_masks(image, 4, lesion_size=size, generator=make_generator(3), **settings)[
                1
            ]
            for size in ((32, 64), (32 / 224, 64 / 224))
        )
        assert torch.equal(of_224_pixels, of_the_image)
        covered.append(float((of_224_pixels > 0).double().mean()))
    assert covered[0] == pytest.approx(covered[1], rel=0.1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_output_is_image_plus_map(dtype: torch.dtype) -> None:
    images = torch.rand((2, 3, 40, 40), generator=make_generator()).to(dtype)
    lesion_images, maps = synth_lesion_masks(images, 3, generator=make_generator())
    assert (lesion_images.dtype, maps.dtype) == (dtype, dtype)
    assert (lesion_images.shape, maps.shape) == ((2, 3, 3, 40, 40), (2, 3, 1, 40, 40))
    expected = (images.unsqueeze(1) + maps).clamp(0, 1)
    tolerance = torch.finfo(dtype).eps * 2
    torch.testing.assert_close(lesion_images, expected, rtol=0, atol=tolerance)


def test_dense_backend_never_reads_a_tensor_on_the_host() -> None:
    """The meta device has no data, so that any step that needs some (and would wait for a GPU) raises an error."""
    lesion_images, maps = synth_lesion_masks(torch.rand((2, 1, 64, 64), device="meta"), 3)
    assert lesion_images.device.type == "meta"
    assert maps.shape == (2, 3, 1, 64, 64)


def test_otsu_equals_scikit_image() -> None:
    uniform = torch.rand((5, 40, 30), generator=make_generator(4))
    noise = 0.05 * torch.randn(uniform.shape, generator=make_generator(5))
    two_classes = 0.2 + noise + 0.5 * (uniform > 0.7)
    far_apart = 0.1 * uniform + 0.8 * (uniform > 0.4)
    for images in (uniform, two_classes, far_apart, 0.5 + 1e-3 * uniform):
        for image, threshold in zip(images, otsu_threshold(images), strict=True):
            bin_width = float(image.max() - image.min()) / 256
            expected = threshold_otsu(image.numpy())
            assert float(threshold) == pytest.approx(expected, abs=1.01 * bin_width)
    assert otsu_threshold(torch.full((2, 5, 5), 0.3)).tolist() == pytest.approx([0.3, 0.3])


def test_foreground_points_are_uniform_over_the_foreground() -> None:
    images = torch.rand((3, 12, 9), generator=make_generator()).pow(3)
    points = random_foreground_points(images, torch.linspace(0, 1, 20001).expand(3, -1))
    for image, own in zip(images, points, strict=True):
        foreground = (image > threshold_otsu(image.numpy())).nonzero()
        index, counts = (own - 0.5).long().unique(dim=0, return_counts=True)
        assert torch.equal(own, own.floor() + 0.5)
        assert torch.equal(index, foreground)
        assert counts.max() - counts.min() <= 2
    anywhere = random_foreground_points(torch.zeros(1, 3, 4), torch.linspace(0, 1, 1000)[None])
    assert len(anywhere[0].unique(dim=0)) == 12
