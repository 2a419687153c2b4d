# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Local brightness and contrast, against a loop over the window and by properties."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monai_afire.transforms import StandardizeContrast, StandardizeContrastd
from unit.transforms.images_and_lesions import random_image

SHAPES = [(1, 24, 36), (2, 16, 16), (1, 5, 3), (1, 2, 2)]
WINDOWS = [0.03, 0.125, 0.25]


# ---- against a loop


def naive_weights(size: int, window: float) -> np.ndarray:
    """Share of each pixel in the mean around each other, with the row mirrored at its ends."""

    def below(x: float) -> float:
        return math.erf(x / (window * size) / math.sqrt(2)) / 2

    reach = min(int(max(4 * window * size, 0.5) + 0.5), size - 1)
    weights = np.zeros((size, size))
    for place, step in itertools.product(range(size), range(-reach, reach + 1)):
        pixel = abs(place + step)  # mirrored at the first pixel ...
        if pixel > size - 1:  # ... or at the last
            pixel = 2 * (size - 1) - pixel
        weights[place, pixel] += below(step + 0.5) - below(step - 0.5)
    return weights / weights.sum(axis=1, keepdims=True)


def naive_standardized(
    plane: np.ndarray, window: float, contrast: float, floor: float
) -> np.ndarray:
    """Pixel by pixel, one channel."""
    weights = [naive_weights(size, window) for size in plane.shape]

    def local_mean(values: np.ndarray) -> np.ndarray:
        means = np.zeros(plane.shape)
        for place in np.ndindex(*plane.shape):
            share = np.ones(())
            for matrix, index in zip(weights, place, strict=True):
                share = np.multiply.outer(share, matrix[index])
            means[place] = (share * values).sum()
        return means

    deviation = plane - local_mean(plane)
    spread = np.maximum(np.sqrt(local_mean(deviation**2)), floor)
    return np.clip(0.5 + contrast * deviation / spread, 0, 1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("window", WINDOWS)
def test_equals_a_loop(shape: tuple[int, ...], window: float) -> None:
    image = random_image(*shape)
    found = StandardizeContrast(window, contrast=0.3, floor=0.05)(image)
    assert tuple(found.shape) == shape
    for channel, expected in zip(found, image.double().numpy(), strict=True):
        np.testing.assert_allclose(
            channel, naive_standardized(expected, window, 0.3, 0.05), atol=1e-5
        )


# ---- properties


@settings(max_examples=40)
@given(
    st.integers(0, 1000),
    st.sampled_from(SHAPES[:2]),
    st.sampled_from(WINDOWS),
    st.floats(0.2, 4.0),
    st.floats(-2.0, 2.0),
)
def test_exposure_changes_nothing(
    seed: int, shape: tuple[int, ...], window: float, a: float, b: float
) -> None:
    image = random_image(*shape, seed=seed).double()
    standardize = StandardizeContrast(window, floor=1e-9)
    torch.testing.assert_close(standardize(a * image + b), standardize(image), rtol=0, atol=1e-6)


def test_neighborhoods_of_different_exposure_become_alike() -> None:
    texture = random_image(1, 128, 128)
    shade = torch.linspace(0, 1, 128).expand(1, 128, 128)
    image = 0.7 * shade + (0.05 + 0.2 * shade) * texture
    found = torch.as_tensor(StandardizeContrast(0.05)(image))
    halves = [(picture[..., :64], picture[..., 64:]) for picture in (image, found)]
    brightness = [abs(float(left.mean() - right.mean())) for left, right in halves]
    assert brightness[0] > 0.3
    assert brightness[1] < 0.05
    contrast = [(left - left.mean(-2, keepdim=True)).std() for pair in halves for left in pair]
    assert contrast[1] > 1.5 * contrast[0]
    assert contrast[3] == pytest.approx(float(contrast[2]), rel=0.1)


@pytest.mark.parametrize("contrast", [0.05, 0.18])
def test_contrast_is_the_standard_deviation(contrast: float) -> None:
    found = torch.as_tensor(StandardizeContrast(contrast=contrast)(random_image(1, 96, 96)))
    assert float(found.std()) == pytest.approx(contrast, rel=0.05)
    assert float(found.mean()) == pytest.approx(0.5, abs=0.01)


def test_floor_keeps_noise_of_flat_areas_small() -> None:
    noise = 0.5 + 1e-4 * random_image(1, 64, 64)
    assert float(torch.as_tensor(StandardizeContrast(floor=0.01)(noise)).std()) < 0.002
    assert float(torch.as_tensor(StandardizeContrast(floor=1e-6)(noise)).std()) > 0.15


def test_output_is_clipped() -> None:
    image = torch.full((1, 64, 64), 0.5)
    image[0, 20, 20], image[0, 40, 40] = 1.0, 0.0
    found = torch.as_tensor(StandardizeContrast()(image))
    assert float(found.min()) == 0.0
    assert float(found.max()) == 1.0


# ---- types


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floating_point_types_are_kept(dtype: torch.dtype) -> None:
    image = random_image(1, 24, 24).to(dtype)
    found = StandardizeContrast()(image)
    assert found.dtype == dtype
    torch.testing.assert_close(
        torch.as_tensor(found).float(),
        torch.as_tensor(StandardizeContrast()(image.float())),
        rtol=0,
        atol=5e-3,
    )


# ---- the dictionary version, and settings


def test_switched_off_it_leaves_the_image_as_it_is() -> None:
    item = {"image": random_image(1, 16, 16), "file": "a.png"}
    same = StandardizeContrastd("image", enabled=False)(item)
    assert same == item
    assert same is not item
    assert not torch.equal(StandardizeContrastd("image")(item)["image"], item["image"])


def test_dictionary_version_does_the_same() -> None:
    item: dict[Any, Any] = {
        "image": random_image(1, 24, 24),
        "other": random_image(1, 12, 12, seed=1),
        "label": 1,
    }
    before = {"image": item["image"].clone(), "other": item["other"].clone()}
    settings_used: dict[str, Any] = {"window": 0.2, "contrast": 0.1, "floor": 0.02}
    found = StandardizeContrastd(["image", "other"], **settings_used)(item)
    for key, image in before.items():
        assert torch.equal(item[key], image)
        assert torch.equal(
            torch.as_tensor(found[key]),
            torch.as_tensor(StandardizeContrast(**settings_used)(image)),
        )
    assert found["label"] == 1
