# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Random appearances of two crops of one image, whose geometry stays (ACE, BYOL, DINO)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from monai.transforms import (
    Compose,
    OneOf,
    RandGaussianSmoothd,
    RandLambdad,
    RandomOrder,
    RandScaleIntensityd,
    RandScaleIntensityFixedMeand,
    ScaleIntensityRanged,
)
from monai.utils import ensure_tuple

_JITTER_PROB = 0.8
_BLUR_PROBS = (1.0, 0.1)
_SOLARIZE_PROBS = (0.0, 0.2)


def solarized(image: torch.Tensor, threshold: float = 0.5) -> torch.Tensor:
    """Invert what is as bright as a threshold, or brighter: x in [0, 1] becomes 1 - x."""
    return torch.where(image >= threshold, 1 - image, image)


def byol_augmentation(
    keys: Sequence[Hashable] = ("image_1", "image_2"),
    prob: float = 1.0,
    strength: float = 0.4,
    blur_sigma: Sequence[float] = (0.1, 2.0),
) -> Compose:
    r"""
    Change the appearance of two crops by independent draws: :math:`T_1(C_1)` and :math:`T_2(C_2)` of ACE, 3.2.

    The paper names two transformations and does not describe them. These are those of BYOL and DINO, whose global
    consistency it takes over, without what moves pixels (mirroring) or needs colors (saturation, hue, gray):

    * brightness and contrast, times 1 - strength to 1 + strength each, in random order: 0.8 of the crops;
    * Gaussian blur: all of the first, 0.1 of the second crops;
    * solarization, see :func:`solarized`: 0.2 of the second crops.

    All parts are MONAI's random transforms. Its blur draws a width for each axis.

    Args:
        keys: of the first and the second crop, ``(C, H, W)`` in [0, 1].
        prob: share of the crops that are changed at all; 0 leaves all as they are.
        strength: of brightness and contrast, in [0, 1).
        blur_sigma: narrowest and widest blur, in pixels.

    Returns:
        A dictionary transform; values stay in [0, 1].

    Example:
        >>> crops = {"image_1": torch.rand(1, 32, 32), "image_2": torch.rand(1, 32, 32)}
        >>> views = byol_augmentation().set_random_state(seed=0)(crops)
        >>> tuple(views["image_2"].shape), bool(torch.equal(views["image_1"], crops["image_1"]))
        ((1, 32, 32), False)
    """
    probs = zip(ensure_tuple(keys), _BLUR_PROBS, _SOLARIZE_PROBS, strict=True)
    sigma = (blur_sigma[0], blur_sigma[1])
    views = [_appearance(key, strength, sigma, blur, solarize) for key, blur, solarize in probs]
    return Compose([_sometimes(view, prob) for view in views])


def _appearance(
    key: Hashable, strength: float, sigma: tuple[float, float], blur: float, solarize: float
) -> list[Any]:
    jitter = RandomOrder(
        [
            RandScaleIntensityd(key, factors=strength, prob=1.0),
            RandScaleIntensityFixedMeand(key, factors=strength, prob=1.0),
        ]
    )
    in_range = ScaleIntensityRanged(key, a_min=0.0, a_max=1.0, b_min=0.0, b_max=1.0, clip=True)
    return [
        _sometimes([jitter, in_range], _JITTER_PROB),
        RandGaussianSmoothd(key, sigma_x=sigma, sigma_y=sigma, prob=blur),
        RandLambdad(key, solarized, prob=solarize),
    ]


def _sometimes(transforms: Sequence[Any], prob: float) -> OneOf:
    """All of the transforms, or none of them."""
    return OneOf([Compose(transforms), Compose([])], weights=[prob, 1 - prob])
