# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Distortion of the appearance of an image, which PEAC's student restores."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.config.type_definitions import NdarrayOrTensor
from monai.data.meta_obj import get_track_meta
from monai.utils import convert_to_dst_type, convert_to_tensor
from torch import Tensor

from monai_afire.transforms.base import (
    OccasionalTransform,
    RandomArrayTransformd,
    check_image_range,
    check_range,
    random_box,
)

CURVE_POINTS = 1024  # between them the curve is straight: no intensities are merged


def bezier_curve(control_points: Sequence[Sequence[float]]) -> np.ndarray:
    r"""
    Monotone intensity curve from (0, 0) to (1, 1), a cubic Bézier curve with two free control points.

    .. math:: (x, y)(t) = 3 (1 - t)^2 t P_1 + 3 (1 - t) t^2 P_2 + t^3 (1, 1), \quad t \in [0, 1]

    Args:
        control_points: :math:`P_1` and :math:`P_2`, each (x, y) in [0, 1], so that neither x nor y ever falls.

    Returns:
        y at ``CURVE_POINTS`` equally spaced x from 0 to 1, float64.
    """
    points = np.asarray(control_points, dtype=np.float64)
    t = np.linspace(0, 1, CURVE_POINTS)
    x, y = (
        3 * (1 - t) ** 2 * t * first + 3 * (1 - t) * t**2 * second + t**3
        for first, second in points.T
    )
    return np.interp(t, x, y)


class RandAppearanceDistortion(OccasionalTransform):
    """
    Distort the appearance of an image ``(C, H, W)`` in [0, 1] but not its anatomy (PEAC's appearance distortion).

    In this order:

    1. Local shuffling: in ``num_blocks`` small blocks at random places the pixels are put into random order.
    2. With ``curve_prob`` all intensities are mapped by a random monotone curve (:func:`bezier_curve`), which with
       ``invert_prob`` is turned upside down, so that dark becomes bright.
    3. With ``paint_prob`` a part of the image is replaced by noise, uniform in [0, 1) and independent per pixel: with
       ``outpaint_prob`` all *outside* of some large boxes (out-painting), else the *inside* of some small ones
       (in-painting). The boxes may overlap.

    All channels share places, order, curve and noise. Use it *before* intensity normalization.

    Args:
        num_blocks: number of blocks for local shuffling, 0 for none.
        block_size: largest side of a block as a fraction of the image side; from 2 pixels, uniform, per axis.
        curve_prob: probability of the intensity curve.
        invert_prob: probability that a curve falls.
        paint_prob: probability of in- or out-painting.
        outpaint_prob: probability of out-painting if there is any.
        num_boxes: smallest and largest number of boxes for painting.
        inpaint_size: range of the sides of the boxes for in-painting, as fractions of the image sides.
        outpaint_size: the same for out-painting, whose boxes stay visible.
        prob: probability of any distortion.

    Example:
        >>> transform = RandAppearanceDistortion().set_random_state(seed=0)
        >>> image = torch.rand(1, 64, 64)
        >>> distorted = transform(image)
        >>> distorted.shape, bool(0 <= distorted.min() <= distorted.max() <= 1), torch.equal(distorted, image)
        (torch.Size([1, 64, 64]), True, False)
    """

    # the last draw; None for no curve and no noise
    pixel_order: np.ndarray
    curve: np.ndarray | None
    noise_mask: np.ndarray | None
    noise: np.ndarray

    def __init__(
        self,
        num_blocks: int = 40,
        block_size: float = 0.1,
        curve_prob: float = 0.9,
        invert_prob: float = 0.5,
        paint_prob: float = 0.9,
        outpaint_prob: float = 0.8,
        num_boxes: Sequence[int] = (1, 5),
        inpaint_size: Sequence[float] = (1 / 6, 1 / 3),
        outpaint_size: Sequence[float] = (1 / 2, 3 / 4),
        prob: float = 1.0,
    ) -> None:
        super().__init__(prob)
        self.num_blocks, self.block_size = num_blocks, block_size
        self.curve_prob, self.invert_prob = curve_prob, invert_prob
        self.paint_prob, self.outpaint_prob = paint_prob, outpaint_prob
        self.num_boxes = check_range("num_boxes", num_boxes)
        self.inpaint_size = check_range("inpaint_size", inpaint_size, 1)
        self.outpaint_size = check_range("outpaint_size", outpaint_size, 1)

    def randomize(self, spatial_shape: Sequence[int]) -> None:
        """Draw the order of the pixels, the curve, and the noise, for an image of this shape."""
        size = tuple(int(n) for n in spatial_shape)
        self.draw_whether()
        order = np.arange(np.prod(size), dtype=np.int64).reshape(size)
        for _ in range(self.num_blocks):
            block = random_box(self.R, size, [self._block_side(side) for side in size])
            order[block] = self.R.permutation(order[block].ravel()).reshape(order[block].shape)
        self.pixel_order = order
        self.curve = self.noise_mask = None
        if self.R.random_sample() < self.curve_prob:
            curve = bezier_curve(self.R.random_sample((2, 2)).tolist())
            self.curve = 1 - curve if self.R.random_sample() < self.invert_prob else curve
        if self.R.random_sample() < self.paint_prob:
            outside = self.R.random_sample() < self.outpaint_prob
            boxes = self._random_boxes(size, self.outpaint_size if outside else self.inpaint_size)
            self.noise_mask = ~boxes if outside else boxes
            self.noise = self.R.random_sample(size).astype(np.float32)

    def __call__(self, img: NdarrayOrTensor, randomize: bool = True) -> Tensor:
        """Distort a copy of an image; ``randomize=False`` repeats the last draw, for an image of the same size."""
        image = convert_to_tensor(img, track_meta=get_track_meta())
        plain = convert_to_tensor(image, track_meta=False)
        check_image_range(plain)
        if randomize:
            self.randomize(plain.shape[1:])
        if not self._do_transform:
            return convert_to_dst_type(plain.clone(), image, dtype=plain.dtype)[0]
        order = torch.as_tensor(self.pixel_order, device=plain.device)
        result = plain.flatten(1)[:, order.flatten()].reshape(plain.shape)
        result = result.to(torch.promote_types(plain.dtype, torch.float32)).clamp(0, 1)
        if self.curve is not None:
            result = _look_up(result, torch.as_tensor(self.curve).to(result))
        if self.noise_mask is not None:
            mask = torch.as_tensor(self.noise_mask, device=plain.device)
            result = torch.where(mask, torch.as_tensor(self.noise).to(result), result)
        return convert_to_dst_type(result, image, dtype=plain.dtype)[0]

    def _block_side(self, side: int) -> int:
        """Random side of a block for local shuffling: a single pixel would not be shuffled."""
        shortest = min(2, side)
        return int(self.R.randint(shortest, max(shortest, int(side * self.block_size)) + 1))

    def _random_boxes(self, size: tuple[int, ...], fractions: tuple[float, float]) -> np.ndarray:
        """True inside some random boxes whose sides are a random part of those of the image."""
        inside = np.zeros(size, dtype=bool)
        for _ in range(self.R.randint(self.num_boxes[0], self.num_boxes[1] + 1)):
            sides = [max(1, round(side * self.R.uniform(*fractions))) for side in size]
            inside[random_box(self.R, size, sides)] = True
        return inside


class RandAppearanceDistortiond(RandomArrayTransformd):
    """
    Dictionary version of :class:`RandAppearanceDistortion`: replaces each key.

    All keys share one draw. The input tensors do not change: copy the key before (CopyItemsd) to keep both.
    PEAC's student gets one of two distortions, each with probability 0.5: patches shuffled, or else this one::

        CopyItemsd("image_1", names="distorted"),
        RandPatchShuffled("distorted", patch_size=32, prob=0.5),
        RandAppearanceDistortiond("distorted", skip_key="shuffled"),

    Args:
        keys: keys of the images ``(C, H, W)``, floating point in [0, 1], all of the same size.
        skip_key: key of a bool; where it is True the images are left alone. None distorts all.
        settings: of :class:`RandAppearanceDistortion`.

    Example:
        >>> transform = RandAppearanceDistortiond("image", skip_key="shuffled").set_random_state(seed=0)
        >>> image = torch.rand(1, 32, 32)
        >>> [transform({"image": image, "shuffled": flag})["image"] is image for flag in (True, False)]
        [True, False]
    """

    array = RandAppearanceDistortion

    def __init__(
        self,
        keys: KeysCollection,
        *settings: Any,
        skip_key: Hashable | None = None,
        **named_settings: Any,
    ) -> None:
        super().__init__(keys, *settings, **named_settings)
        self.skip_key = skip_key

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Distort the images in a copy of the data, unless the flag is True."""
        output = dict(data)
        if self.skip_key is None or not output[self.skip_key]:
            output.update(self.transformed(data))
        return output


RandAppearanceDistortionD = RandAppearanceDistortionDict = RandAppearanceDistortiond


def _look_up(values: Tensor, curve: Tensor) -> Tensor:
    """The curve, given at equally spaced points from 0 to 1, at ``values`` in [0, 1]."""
    position = values * (len(curve) - 1)
    lower = position.floor().clamp(max=len(curve) - 2)
    index = lower.long()
    return torch.lerp(curve[index], curve[index + 1], position - lower).clamp(0, 1)
