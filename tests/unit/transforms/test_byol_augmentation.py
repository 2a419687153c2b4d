# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Appearances of two crops: what changes, how often, that pixels stay where they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from monai_afire.transforms import byol_augmentation

_DRAWS = 200


def _views(crop: torch.Tensor, **settings: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Views (draws, *S) of the first and of the second crop, both of the same pixels."""
    transform = byol_augmentation(**settings).set_random_state(seed=0)
    items = [transform({"image_1": crop, "image_2": crop}) for _ in range(_DRAWS)]
    first, second = (
        torch.stack([item[f"image_{number}"].as_tensor()[0] for item in items]) for number in (1, 2)
    )
    return first, second


def _ramp(side: int = 16) -> torch.Tensor:
    return torch.linspace(0.05, 0.95, side).repeat(side, 1).unsqueeze(0)


def test_how_often_each_part_acts() -> None:
    """A blur flattens the ramp's ends, solarization turns its right half around, jitter moves its values."""
    first, second = _views(_ramp(), strength=0.0, blur_sigma=(1.0, 1.0))
    ramp = _ramp()[0]
    blurred = [(view[:, :, :8] - ramp[:, :8]).abs().amax((1, 2)) > 1e-3 for view in (first, second)]
    assert blurred[0].all()
    assert 0.05 < blurred[1].float().mean() < 0.16
    solarized_share = [(view[:, 8, 14] < 0.5).float().mean() for view in (first, second)]
    assert solarized_share[0] == 0
    assert 0.13 < solarized_share[1] < 0.27
    first, second = _views(_ramp(), blur_sigma=(1e-4, 1e-4))
    for view in (first, second):
        jittered = (view[:, :, 2] - ramp[:, 2]).abs().amax(1) > 1e-4
        assert 0.72 < jittered.float().mean() < 0.88


def test_brightness_and_contrast_have_the_stated_strength() -> None:
    """Values in the middle stay in range, so that a view is factor_1 * factor_2 * x + shift there."""
    crop = 0.3 + 0.1 * _ramp()
    first, _ = _views(crop, strength=0.4, blur_sigma=(1e-4, 1e-4))
    slope = (first[:, 0, 12] - first[:, 0, 4]) / (crop[0, 0, 12] - crop[0, 0, 4])
    mean = first.mean((1, 2)) / crop.mean()
    assert 0.36 <= slope.min() < 0.6
    assert 1.4 < slope.max() <= 1.96
    assert mean.min() == pytest.approx(0.6, abs=0.03)
    assert mean.max() == pytest.approx(1.4, abs=0.03)


def test_pixels_stay_in_place_and_in_range() -> None:
    crop = torch.full((1, 17, 17), 0.05)
    crop[0, 4, 11] = 0.25  # never as bright as solarization begins
    for view in _views(crop, blur_sigma=(0.1, 0.8)):  # wider ones darken the border
        assert ((view >= 0) & (view <= 1)).all()
        assert (view.flatten(1).argmax(1) == 4 * 17 + 11).all()
