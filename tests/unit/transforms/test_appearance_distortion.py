# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Each of the three distortions alone, all of them against a slow version, and the choice between two distortions."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from monai.transforms import Compose, CopyItemsd

from monai_afire.transforms import (
    RandAppearanceDistortion,
    RandAppearanceDistortiond,
    RandPatchShuffled,
)
from monai_afire.transforms.appearance_distortion import bezier_curve
from unit.transforms.images_and_lesions import random_image

NOTHING: dict[str, Any] = {"num_blocks": 0, "curve_prob": 0.0, "paint_prob": 0.0}


def box_of(mask: torch.Tensor) -> list[int]:
    """Sides of the box around the True pixels (*S) of a mask."""
    return [int(axis.max() - axis.min()) + 1 for axis in mask.nonzero(as_tuple=True)]


def test_curve_is_the_bezier_curve_and_monotone() -> None:
    generator = np.random.RandomState(0)
    extremes = [[[i, 0.0], [k, 1.0]] for i in (0, 1) for k in (0, 1)]
    for number, points in enumerate([*extremes, *generator.random_sample((300, 2, 2))]):
        first, second = (tuple(point) for point in points)
        curve = bezier_curve([first, second])
        assert (curve[0], curve[-1]) == (0, 1)
        assert (np.diff(curve) >= 0).all()
        # some of the extreme ones have vertical pieces, where y is not a function of x
        for t in (0.1, 0.35, 0.8) if number > 3 else ():  # de Casteljau: midpoints of midpoints
            corners = [np.zeros(2), np.asarray(first), np.asarray(second), np.ones(2)]
            while len(corners) > 1:
                corners = [(1 - t) * a + t * b for a, b in itertools.pairwise(corners)]
            x, y = corners[0]
            below, above = curve[int(x * 1023)], curve[math.ceil(x * 1023)]
            assert below - 1e-3 <= y <= above + 1e-3


@pytest.mark.parametrize("outside", [False, True])
def test_one_box_of_painting(outside: bool) -> None:
    shape = (60, 36)
    transform = RandAppearanceDistortion(
        num_blocks=0, curve_prob=0, paint_prob=1, outpaint_prob=outside, num_boxes=(1, 1)
    )
    transform.set_random_state(seed=0)
    image = random_image(2, *shape)
    fractions, noise = [], []
    for _ in range(60):
        result = transform(image)
        changed = (result != image).all(0)
        assert torch.equal(changed, (result != image).any(0))
        assert torch.equal(result[0][changed], result[1][changed])  # the channels share the noise
        box = ~changed if outside else changed
        sides = box_of(box)
        assert int(box.sum()) == math.prod(sides)
        fractions += [side / n for side, n in zip(sides, shape, strict=True)]
        noise.append(result[0][changed])
    low, high = (1 / 2, 3 / 4) if outside else (1 / 6, 1 / 3)
    assert low - 0.5 / 20 <= min(fractions) < low + 0.03
    assert high - 0.03 < max(fractions) <= high + 0.5 / 20
    values = torch.cat(noise)
    assert float(values.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(values.var()) == pytest.approx(1 / 12, abs=0.005)


def test_frequencies_of_curves_and_of_painting() -> None:
    transform = RandAppearanceDistortion(num_blocks=0, num_boxes=(1, 1)).set_random_state(seed=0)
    curves, painted = [], []
    for _ in range(1000):
        transform.randomize((24, 24))
        curves += [] if transform.curve is None else [transform.curve]
        painted += [] if transform.noise_mask is None else [transform.noise_mask.mean()]
    assert 860 < len(curves) < 940
    assert 860 < len(painted) < 940
    assert 0.44 < np.mean([curve[0] > curve[-1] for curve in curves]) < 0.56
    # outside of a box of at most three quarters of the sides, or inside of one of at most a third
    outside = np.array(painted) > 0.4
    assert 0.75 < outside.mean() < 0.85
    assert np.array(painted)[~outside].max() < 0.2


def test_pixels_of_small_blocks_change_places() -> None:
    """All others stay; the sides of a block go from 2 pixels to the largest."""
    one_block = {**NOTHING, "num_blocks": 1, "block_size": 0.2}
    transform = RandAppearanceDistortion(**one_block).set_random_state(seed=0)
    image = torch.arange(60.0 * 43).reshape(1, 60, 43) / (60 * 43)
    sides = []
    for _ in range(200):
        result = transform(image)
        assert torch.equal(result.flatten().sort().values, image.flatten())
        if (result != image).any():
            sides.append(box_of((result != image)[0]))
    assert np.max(sides, 0).tolist() == [12, 8]
    assert (np.min(sides, 0) <= 2).all()


def naive_distortion(image: np.ndarray, transform: RandAppearanceDistortion) -> np.ndarray:
    """Pixel by pixel, from what the transform drew."""
    result = np.empty_like(image)
    places = list(np.ndindex(*image.shape[1:]))
    for place in places:
        for channel in range(len(image)):
            value = image[channel][places[transform.pixel_order[place]]]
            if transform.curve is not None:
                value = np.interp(value, np.linspace(0, 1, len(transform.curve)), transform.curve)
            if transform.noise_mask is not None and transform.noise_mask[place]:
                value = transform.noise[place]
            result[channel][place] = value
    return result


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((1, 30, 24), torch.float64), ((3, 20, 20), torch.float16)],
)
def test_all_together(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    image = random_image(*shape).to(dtype)
    before = image.clone()
    transform = RandAppearanceDistortion().set_random_state(seed=1)
    for _ in range(6):
        result = transform(image)
        assert (result.shape, result.dtype) == (image.shape, dtype)
        assert 0 <= result.min() <= result.max() <= 1
        expected = torch.from_numpy(naive_distortion(image.double().numpy(), transform))
        atol = 1e-3 if dtype == torch.float16 else 1e-6
        torch.testing.assert_close(result.double(), expected, rtol=0, atol=atol)
        assert torch.equal(image, before)
        result.zero_()
        assert torch.equal(image, before)


def test_student_gets_one_of_two_distortions() -> None:
    """As PEAC wants it: patches shuffled or appearance distorted, half and half, and the original kept."""
    steps = [
        CopyItemsd("image", names="distorted"),
        RandPatchShuffled("distorted", patch_size=8, prob=0.5),
        RandAppearanceDistortiond("distorted", skip_key="shuffled"),
    ]
    transform = Compose(steps).set_random_state(seed=0)
    image = random_image(1, 32, 32)
    shuffled = 0
    for _ in range(400):
        output: Any = transform({"image": image})
        assert torch.equal(output["image"], image)
        assert not torch.equal(output["distorted"], image)
        pixels = [output[key].flatten().sort().values for key in ("image", "distorted")]
        assert torch.equal(*pixels) or not output["shuffled"]
        assert output["shuffled"] == (output["distorted_order"].tolist() != list(range(16)))
        shuffled += output["shuffled"]
    assert 160 < shuffled < 240


@pytest.mark.parametrize("name", ["num_boxes", "inpaint_size", "outpaint_size"])
def test_reversed_ranges_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        RandAppearanceDistortion(**{name: (0.9, 0.1)})  # type: ignore[arg-type]
