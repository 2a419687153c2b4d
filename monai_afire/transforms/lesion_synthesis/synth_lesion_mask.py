# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Synthetic Lesion Masks (AFiRe, Eq. 2-5): of a whole batch on any device, and as a transform of one image."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.config.type_definitions import NdarrayOrTensor
from monai.data.meta_obj import get_track_meta
from monai.utils import convert_to_dst_type, convert_to_tensor, ensure_tuple
from torch import Tensor

from monai_afire.transforms.base import (
    OccasionalTransform,
    RandomArrayTransformd,
    check_image_range,
)
from monai_afire.transforms.lesion_synthesis.parameters import (
    UNIFORMS_PER_LESION,
    LesionParameters,
    LesionSettings,
    draw_lesion_parameters,
)
from monai_afire.transforms.lesion_synthesis.rendering import render_boxes, render_dense


def render_lesion_maps(
    images: Tensor, parameters: LesionParameters, backend: str = "auto"
) -> Tensor:
    """
    The additive map ``M = sum_r amplitude_r * eta_r * delta_r`` of each lesion variant (Eq. 4).

    Args:
        images: ``(B, C, H, W)``, floating point in [0, 1]; the texture comes from the mean of the channels.
        parameters: the lesions.
        backend: "boxes" (lesion by lesion, only the pixels near it), "dense" (the whole batch at once, no host
            synchronization) or "auto": "boxes" on a CPU, "dense" elsewhere. Both give the same maps up to rounding.

    Returns:
        M ``(B, N, 1, H, W)`` >= 0, in float32 or the wider type of ``images``.
    """
    if backend == "auto":
        backend = "boxes" if images.device.type == "cpu" else "dense"
    render = {"boxes": render_boxes, "dense": render_dense}[backend]
    gray = images.to(parameters.center.dtype).mean(1, keepdim=True)
    return render(gray, parameters).unsqueeze(2)


def _lesions(
    images: Tensor, settings: LesionSettings, uniforms: Tensor, backend: str = "auto"
) -> tuple[Tensor, Tensor]:
    """Lesion images ``clip(x + M)`` (B, N, C, H, W) and maps M (B, N, 1, H, W) of images x (B, C, H, W) (Eq. 5)."""
    parameters = draw_lesion_parameters(images, settings, uniforms)
    maps = render_lesion_maps(images, parameters, backend)
    lesion_images = (images.unsqueeze(1) + maps).clamp_(0, 1)
    return lesion_images.to(images.dtype), maps.to(images.dtype)


@torch.no_grad()
def synth_lesion_masks(
    images: Tensor,
    num_masks: int = 1,
    *settings: Any,
    generator: torch.Generator | None = None,
    backend: str = "auto",
    **named_settings: Any,
) -> tuple[Tensor, Tensor]:
    r"""
    Add synthetic lesions to a batch of normal images, and map them (AFiRe, Eq. 2-5).

    .. math::
        M_i^n = \sum_{r=1}^{R} a_r\, \eta_r \cdot \delta_r, \qquad x_i'^n = \mathrm{clip}_{[0,1]}(x_i \oplus M_i^n)

    :math:`\eta` is a texture cut out of the image itself around a random bright (Otsu-foreground) pixel and resized to
    the lesion, :math:`\delta` a profile that falls from 1 at the center to exactly 0 on an ellipse
    (``lesion_profile``), :math:`a` a random strength. Lesions lie anywhere in the image, as wholes.

    The returned map is M itself, before clipping: where it is 0 the image is unchanged; where the image is already 1,
    M may be positive without visible change. Its mean over a patch against its mean over the image separates abnormal
    from normal tokens. In an all-black image M is 0.

    Args:
        images: ``(B, C, H, W)``, floating point in [0, 1] (*before* normalization), on any device. All channels get
            the same map; its texture comes from their mean.
        num_masks: number N of lesion variants per image.
        settings: as for :class:`SynthLesionMask`, from ``num_lesions`` to ``irregularity``.
        generator: source of random numbers, on the device of ``images``; the default generator if None.
        backend: "auto", "boxes" or "dense", see ``render_lesion_maps``.

    Returns:
        Lesion images ``(B, C, H, W)`` in [0, 1] and lesion maps M ``(B, 1, H, W)`` >= 0, in the dtype of ``images`` and
        without metadata. With ``num_masks`` above 1 they are ``(B, N, C, H, W)`` and ``(B, N, 1, H, W)``.

    Example:
        >>> images = torch.rand(2, 1, 64, 64) * 0.5
        >>> lesion_images, maps = synth_lesion_masks(images, generator=torch.Generator().manual_seed(0))
        >>> lesion_images.shape, torch.equal(lesion_images, (images + maps).clamp(0, 1))
        (torch.Size([2, 1, 64, 64]), True)
    """
    lesions = LesionSettings(*settings, **named_settings)
    # a batch's metadata does not fit its variants
    images = convert_to_tensor(images, track_meta=False)
    check_image_range(images, batched=True)
    shape = (len(images), num_masks, lesions.num_lesions[1], UNIFORMS_PER_LESION)
    uniforms = torch.rand(shape, generator=generator, device=images.device)
    lesion_images, maps = _lesions(images, lesions, uniforms, backend)
    return (lesion_images[:, 0], maps[:, 0]) if num_masks == 1 else (lesion_images, maps)


class LesionVariants(OccasionalTransform, ABC):
    """
    Base of the transforms that make lesion images of one normal image ``(C, H, W)`` in [0, 1], with their lesion maps.

    A subclass says how many uniform random numbers one image needs, and makes images and maps from them.
    """

    uniforms: np.ndarray  # of the last draw

    def __init__(self, num_masks: int = 1, prob: float = 1.0) -> None:
        super().__init__(prob)
        self.num_masks = num_masks

    @property
    @abstractmethod
    def num_uniforms(self) -> tuple[int, ...]:
        """Shape of the random numbers that an image needs."""

    @abstractmethod
    def synthesize(self, image: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Lesion images (N, C, H, W) and maps (N, 1, H, W) of an image (C, H, W), from numbers in [0, 1)."""

    def without_lesions(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of an image (C, H, W) and empty maps: (N, C, H, W) and (N, 1, H, W)."""
        copies = image.repeat(self.num_masks, 1, 1, 1)
        return copies, torch.zeros_like(copies[:, :1])

    def randomize(self, data: Any = None) -> None:
        """Draw the random numbers of one image."""
        self.draw_whether()
        self.uniforms = self.R.random_sample(self.num_uniforms).astype(np.float32)

    def __call__(self, img: NdarrayOrTensor, randomize: bool = True) -> tuple[Tensor, Tensor]:
        """
        Add lesions to copies of an image ``(C, H, W)`` in [0, 1]; ``randomize=False`` repeats those of the last call.

        Returns:
            Lesion image ``(C, H, W)`` and lesion map ``(1, H, W)``, with the metadata of ``img``; ``(N, C, H, W)`` and
            ``(N, 1, H, W)`` with ``num_masks`` above 1.
        """
        image = convert_to_tensor(img, track_meta=get_track_meta())
        plain = convert_to_tensor(image, track_meta=False)
        check_image_range(plain)
        if randomize:
            self.randomize()
        if self._do_transform:
            uniforms = torch.as_tensor(self.uniforms, device=plain.device)
            lesion_images, maps = self.synthesize(plain, uniforms)
        else:
            lesion_images, maps = self.without_lesions(plain)
        if self.num_masks == 1:
            lesion_images, maps = lesion_images[0], maps[0]
        return convert_to_dst_type(lesion_images, image)[0], convert_to_dst_type(maps, image)[0]


class LesionVariantsd(RandomArrayTransformd):
    """
    Base of the dictionary transforms around :class:`LesionVariants`: adds a lesion image and its map for each key.

    All keys share one random draw; the images do not change. Since the texture of a lesion comes from its own image,
    lesions of two different images share place, size and shape, but not texture.

    Args:
        keys: keys of the normal images ``(C, H, W)``, floating point in [0, 1].
        settings: of the array transform.
        lesion_key: new key of the lesion image ``(C, H, W)``, or ``(N, C, H, W)`` with several masks; one per key.
        mask_key: new key of the lesion map ``(1, H, W)``, or ``(N, 1, H, W)``; one per key.
        named_settings: of the array transform, and ``allow_missing_keys``.
    """

    def __init__(
        self,
        keys: KeysCollection,
        *settings: Any,
        lesion_key: KeysCollection = "lesion_image",
        mask_key: KeysCollection = "lesion_mask",
        **named_settings: Any,
    ) -> None:
        super().__init__(keys, *settings, **named_settings)
        names = zip(ensure_tuple(lesion_key), ensure_tuple(mask_key), strict=True)
        self.new_keys = dict(zip(self.keys, names, strict=True))

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Add the lesion image and the lesion map of each key to a copy of the data."""
        output = dict(data)
        for key, lesion_image_and_map in self.transformed(data):
            output.update(zip(self.new_keys[key], lesion_image_and_map, strict=True))
        return output


class SynthLesionMask(LesionVariants):
    """
    Synthetic Lesion Masks (AFiRe, Eq. 2-5): add random oval lesions, with a texture cut out of the image itself.

    See :func:`synth_lesion_masks` for the equations and for what the map means. Use it *before* intensity
    normalization.

    Args:
        num_masks: number N of lesion variants of the image (paper: 9). One has the image's own shape.
        num_lesions: smallest and largest number R of lesions per variant, both included (paper: [1, 4]).
        lesion_size: range of a lesion's full axis lengths, drawn independently per axis and uniformly. Numbers >= 1
            are pixels for an image of side 224 and scale with the image: (16, 64) means 1/14 ... 2/7 of each side at
            every image size. Numbers in (0, 1) are these fractions themselves. Never less than 3 pixels.
        gamma: width of the profile ``exp(-rho ** 2 / gamma)``; small: a sharp peak, large: a parabola. At least 0.02.
        amplitude: range of the strength, drawn uniformly; 1 adds the texture at full brightness. The default gives
            opacities from barely visible to obvious; above about 0.6 most lesions saturate to plain white.
        rotate: turn each lesion by a random angle.
        irregularity: how far the boundary of a lesion may be pulled inwards, 0 (an exact ellipse) to 0.5. The lesion
            stays inside its ellipse.
        prob: probability of lesions; otherwise the variants are copies of the image, and their maps are 0.

    Raises:
        ValueError: on settings out of range; when called, on an image of wrong shape, dtype or range.

    Example:
        >>> transform = SynthLesionMask().set_random_state(seed=0)
        >>> lesion_image, lesion_map = transform(torch.rand(1, 64, 64))
        >>> tuple(lesion_image.shape), tuple(lesion_map.shape)
        ((1, 64, 64), (1, 64, 64))
    """

    def __init__(
        self,
        num_masks: int = 1,
        num_lesions: Sequence[int] = (1, 4),
        lesion_size: Sequence[float] = (16, 64),
        gamma: float = 0.5,
        amplitude: Sequence[float] = (0.15, 0.5),
        rotate: bool = True,
        irregularity: float = 0.3,
        prob: float = 1.0,
    ) -> None:
        super().__init__(num_masks, prob)
        self.settings = LesionSettings(
            num_lesions, lesion_size, gamma, amplitude, rotate, irregularity
        )

    @property
    def num_uniforms(self) -> tuple[int, ...]:
        """(N, R, U): U numbers for each of at most R lesions in N variants."""
        return self.num_masks, self.settings.num_lesions[1], UNIFORMS_PER_LESION

    @torch.no_grad()
    def synthesize(self, image: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Add lesions to a batch of one image."""
        lesion_images, maps = _lesions(image[None], self.settings, uniforms[None])
        return lesion_images[0], maps[0]


class SynthLesionMaskd(LesionVariantsd):
    """
    Dictionary version of :class:`SynthLesionMask`: adds a lesion image and its map; the image itself does not change.

    ``keys``, ``lesion_key`` and ``mask_key`` are those of :class:`LesionVariantsd`, the others those of
    :class:`SynthLesionMask`.

    Example:
        >>> transform = SynthLesionMaskd("image").set_random_state(seed=0)
        >>> data = transform({"image": torch.rand(1, 64, 64)})
        >>> {key: tuple(value.shape) for key, value in data.items()}
        {'image': (1, 64, 64), 'lesion_image': (1, 64, 64), 'lesion_mask': (1, 64, 64)}
    """

    array = SynthLesionMask
    transform: SynthLesionMask

    def __init__(
        self,
        keys: KeysCollection,
        num_masks: int = 1,
        num_lesions: Sequence[int] = (1, 4),
        lesion_size: Sequence[float] = (16, 64),
        gamma: float = 0.5,
        amplitude: Sequence[float] = (0.15, 0.5),
        rotate: bool = True,
        irregularity: float = 0.3,
        prob: float = 1.0,
        lesion_key: KeysCollection = "lesion_image",
        mask_key: KeysCollection = "lesion_mask",
        allow_missing_keys: bool = False,
    ) -> None:
        settings = num_masks, num_lesions, lesion_size, gamma, amplitude, rotate, irregularity, prob
        new_keys = {"lesion_key": lesion_key, "mask_key": mask_key}
        super().__init__(keys, *settings, **new_keys, allow_missing_keys=allow_missing_keys)


SynthLesionMaskD = SynthLesionMaskDict = SynthLesionMaskd
