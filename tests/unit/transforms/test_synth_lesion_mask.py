# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The array and dictionary transforms around lesion synthesis, and the comparators AnatPaste and CutPaste."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from monai_afire.transforms import (
    AnatPaste,
    CutPaste,
    SynthLesionMask,
    SynthLesionMaskd,
)
from monai_afire.transforms.lesion_synthesis.lung_mask import segment_lungs
from monai_afire.transforms.lesion_synthesis.parameters import draw_lesion_parameters
from monai_afire.transforms.lesion_synthesis.synth_lesion_mask import render_lesion_maps
from unit.transforms.images_and_lesions import chest, random_image

ARRAY = [SynthLesionMask, AnatPaste, CutPaste]


@pytest.mark.parametrize("transform_type", ARRAY)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((1, 64, 64), torch.float16), ((3, 40, 56), torch.float32), ((1, 9, 5), torch.float64)],
)
def test_shapes_range_and_untouched_input(
    transform_type: type, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    image = random_image(*shape).to(dtype)
    before = image.clone()
    for seed in range(5):
        lesion_images, maps = transform_type(num_masks=3).set_random_state(seed)(image)
        assert torch.equal(image, before)
        assert (lesion_images.shape, maps.shape) == ((3, *shape), (3, 1, *shape[1:]))
        assert (lesion_images.dtype, maps.dtype) == (dtype, dtype)
        assert 0 <= float(lesion_images.min()) <= float(lesion_images.max()) <= 1
        assert float(maps.min()) >= 0
        assert torch.all(maps.flatten(1).amax(1) > 0)
        unchanged = (maps == 0).expand_as(lesion_images)
        assert torch.equal(lesion_images[unchanged], image.expand_as(lesion_images)[unchanged])
        assert not torch.equal(maps[0], maps[1])


@pytest.mark.parametrize(
    ("transform_type", "settings"),
    [
        (SynthLesionMask, {"num_lesions": (3, 2)}),
        (SynthLesionMask, {"lesion_size": (0.1, 16)}),
        (SynthLesionMask, {"gamma": 0.0}),
        (SynthLesionMask, {"amplitude": (0.0, 1.0)}),
        (AnatPaste, {"strength": (0.5, 1.3)}),
        (CutPaste, {"area": (0.2, 0.1)}),
    ],
)
def test_ranges_are_checked(transform_type: type, settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        transform_type(**settings)


def test_transform_equals_batched_function() -> None:
    image = random_image(1, 64, 64)
    transform = SynthLesionMask(num_masks=3)
    maps = transform(image)[1]
    parameters = draw_lesion_parameters(
        image[None], transform.settings, torch.as_tensor(transform.uniforms)[None]
    )
    torch.testing.assert_close(
        maps, render_lesion_maps(image[None], parameters, "dense")[0], rtol=0, atol=1e-5
    )


def test_cut_paste_is_a_rectangle_of_the_image() -> None:
    shape = (50, 80)
    image = random_image(1, *shape)
    shares, ratios = [], []
    transform = CutPaste(num_masks=60, jitter=0.0).set_random_state(0)
    for lesion_image, mask in zip(*transform(image), strict=True):
        sides = [len(axis.unique()) for axis in mask[0].nonzero(as_tuple=True)]
        assert int(mask.sum()) == np.prod(sides)
        pasted = lesion_image[0][mask[0] == 1].reshape(sides)
        sources = image[0].unfold(0, sides[0], 1).unfold(1, sides[1], 1)
        assert (sources == pasted).all((-1, -2)).any()
        shares.append(float(mask.mean()))
        ratios.append(sides[1] / shape[1] / (sides[0] / shape[0]))
    assert 0.015 < min(shares) < 0.04
    assert 0.12 < max(shares) < 0.17
    assert 0.25 < min(ratios) < 0.5
    assert 2 < max(ratios) < 4
    gray = torch.full((1, 32, 32), 0.5)
    lesion_images, maps = CutPaste(num_masks=50, jitter=0.2).set_random_state(0)(gray)
    values = lesion_images[maps == 1].unique()
    assert 0.4 <= float(values.min()) < 0.42
    assert 0.58 < float(values.max()) <= 0.6


def test_keys_share_one_draw() -> None:
    image = random_image(1, 32, 32)
    names: dict[str, Any] = {"lesion_key": ["la", "lb"], "mask_key": ["ma", "mb"]}
    transform = SynthLesionMaskd(["a", "b"], **names).set_random_state(seed=1)
    output = transform({"a": image, "b": image.clone()})
    assert torch.equal(output["la"], output["lb"])
    assert torch.equal(output["ma"], output["mb"])


def test_anat_paste_stays_in_the_lungs_and_is_soft() -> None:
    image = chest()
    lungs, truth = segment_lungs(image[0]), image[0] < 0.3
    truth[:, :10] = truth[:, -10:] = False
    assert int((lungs ^ truth).sum()) < 0.15 * int(truth.sum())
    lesion_images, maps = AnatPaste(num_masks=40).set_random_state(0)(image)
    assert torch.all(maps[:, 0][:, ~lungs] == 0)
    assert torch.equal(lesion_images != image, (lesion_images != image) & (maps > 0))
    for axis in (-1, -2):
        assert float(maps.diff(dim=axis).abs().max()) < 0.4  # 0.8 in one step without blending
    left = maps[..., :48].flatten(1).amax(1) > 0
    assert 5 < int(left.sum()) < 35
    brighter = (lesion_images - image).flatten(1).mean(1) > 0
    assert int(brighter.sum()) >= 38
