# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Local brightness and contrast, against a loop over the window and by properties."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monai_afire.transforms import StandardizeContrast, StandardizeContrastd
from unit.transforms.images_and_lesions import random_image


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


@pytest.mark.parametrize(
    ("shape", "window"),
    [
        ((1, 24, 36), 0.03),
        ((1, 24, 36), 0.25),
        ((2, 16, 16), 0.125),
        ((1, 5, 3), 0.25),
        ((1, 2, 2), 0.03),
    ],
)
def test_equals_a_loop(shape: tuple[int, ...], window: float) -> None:
    image = random_image(*shape)
    found = StandardizeContrast(window, contrast=0.3, floor=0.05)(image)
    expected = [naive_standardized(plane, window, 0.3, 0.05) for plane in image.double().numpy()]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@settings(max_examples=40)
@given(
    st.integers(0, 1000), st.sampled_from([0.03, 0.25]), st.floats(0.2, 4.0), st.floats(-2.0, 2.0)
)
def test_exposure_changes_nothing(seed: int, window: float, a: float, b: float) -> None:
    image = random_image(1, 24, 36, seed=seed).double()
    standardize = StandardizeContrast(window, floor=1e-9)
    torch.testing.assert_close(standardize(a * image + b), standardize(image), rtol=0, atol=1e-6)


def test_floor_keeps_noise_of_flat_areas_small() -> None:
    noise = 0.5 + 1e-4 * random_image(1, 64, 64)
    assert float(torch.as_tensor(StandardizeContrast(floor=0.01)(noise)).std()) < 0.002
    assert float(torch.as_tensor(StandardizeContrast(floor=1e-6)(noise)).std()) > 0.15


def test_switched_off_it_leaves_the_image_as_it_is() -> None:
    item = {"image": random_image(1, 16, 16).half(), "file": "a.png"}
    found = StandardizeContrastd("image")(item)["image"]
    assert found.dtype == torch.float16
    assert not torch.equal(found, item["image"])
    assert StandardizeContrastd("image", enabled=False)(item) == item
