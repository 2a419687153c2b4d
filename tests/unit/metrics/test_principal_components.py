# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Principal components of pixels, as features."""

from __future__ import annotations

import numpy as np

from monai_afire.metrics.principal_components import pixel_components


def test_components_are_those_of_the_training_rows() -> None:
    pixels = np.zeros((30, 8))
    pixels[:20, 2] = np.linspace(-1, 1, 20)  # what varies in training
    pixels[20:, 5] = np.linspace(-9, 9, 10)  # what varies elsewhere
    found = pixel_components(pixels, np.arange(20))
    assert found.shape == (30, 8)
    np.testing.assert_allclose(np.abs(found[:20, 0]), np.abs(pixels[:20, 2]), atol=1e-6)
    np.testing.assert_allclose(found[20:, 0], 0, atol=1e-6)


def test_few_images_have_no_component_of_rounding() -> None:
    pixels = np.random.default_rng(0).normal(size=(7, 40)).astype(np.float32)
    found = pixel_components(pixels, np.arange(5))  # five centered rows span four axes
    assert found.shape == (7, 4)
    assert found[:5].std(axis=0).min() > 0.1
    assert pixel_components(pixels[:1], np.arange(1)).shape == (1, 1)
