# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Dictionary transforms that add lesion variants of normal images and their lesion maps to the data."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from monai.config import KeysCollection
from monai.utils import ensure_tuple

from monai_afire.transforms.base import RandomArrayTransformd
from monai_afire.transforms.lesion_synthesis.anat_paste import AnatPaste
from monai_afire.transforms.lesion_synthesis.array import LesionVariants, SynthLesionMask
from monai_afire.transforms.lesion_synthesis.cut_paste import CutPaste


class LesionVariantsd(RandomArrayTransformd):
    """
    Base of the dictionary transforms around a ``LesionVariants`` transform.

    For each key the lesion images (N, C, *S) are stored under its lesion key and the lesion maps (N, 1, *S) under its
    mask key; the keys themselves stay as they are. All keys share one random draw. Since the texture of a lesion comes
    from its own image, lesions of two different images share place, size and shape, but not texture.

    Args:
        keys: keys of the normal images (C, *S) in [0, 1].
        transform: the array transform.
        lesion_key: new key of the lesion images; one for each of the ``keys``.
        mask_key: new key of the lesion maps; one for each of the ``keys``.
        allow_missing_keys: do not raise an error if a key is missing.

    Raises:
        ValueError: when there is not one lesion key and one mask key per key, or when any two keys are the same.
    """

    backend = LesionVariants.backend

    def __init__(
        self,
        keys: KeysCollection,
        transform: LesionVariants,
        lesion_key: KeysCollection,
        mask_key: KeysCollection,
        allow_missing_keys: bool = False,
    ) -> None:
        self.lesion_key, self.mask_key = ensure_tuple(lesion_key), ensure_tuple(mask_key)
        super().__init__(keys, transform, (*self.lesion_key, *self.mask_key), allow_missing_keys)
        for name, new_keys in (("lesion_key", self.lesion_key), ("mask_key", self.mask_key)):
            if len(new_keys) != len(self.keys):
                raise ValueError(f"{name} must name one new key for each of the keys {self.keys}, got {new_keys}.")

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """
        Add the lesion images and lesion maps to a copy of the data.

        Args:
            data: dictionary with the normal images (C, *S).

        Returns:
            The data with two more entries per key.
        """
        output = dict(data)
        new_keys = dict(zip(self.keys, zip(self.lesion_key, self.mask_key, strict=True), strict=True))
        for key, lesion_images_and_maps in self.transformed(data):
            output.update(zip(new_keys[key], lesion_images_and_maps, strict=True))
        return output


class SynthLesionMaskd(LesionVariantsd):
    """
    Dictionary-based wrapper of ``SynthLesionMask``: adds N lesion variants and their maps; ``keys`` stay as they are.

    Args:
        keys: keys of the normal images (C, *S), floating point in [0, 1]. All keys share one random draw.
        lesion_key: new key of the lesion images (N, C, *S); one per key.
        mask_key: new key of the lesion maps (N, 1, *S); one per key.
        num_masks: number N of lesion variants.
        num_lesions: smallest and largest number of lesions per variant.
        lesion_size: range of the axis lengths: pixels for an image of side 224 or, below 1, fractions of the side.
        gamma: width of the profile.
        amplitude: range of the strength; 1 adds the texture at full brightness.
        rotate: turn each lesion at random.
        irregularity: depth of the irregularity of the boundary, 0 (an ellipse) to 0.5.
        prob: probability of lesions; otherwise the variants are copies of the image, and their maps are 0.
        allow_missing_keys: do not raise an error if a key is missing.

    Raises:
        ValueError: on settings out of range; when called, on an image of wrong shape, dtype or range.

    Example:
        >>> import torch
        >>> transform = SynthLesionMaskd("image", num_masks=2).set_random_state(seed=0)
        >>> data = transform({"image": torch.rand(1, 64, 64)})
        >>> {key: tuple(value.shape) for key, value in data.items()}
        {'image': (1, 64, 64), 'lesion_image': (2, 1, 64, 64), 'lesion_mask': (2, 1, 64, 64)}
    """

    def __init__(
        self,
        keys: KeysCollection,
        lesion_key: KeysCollection = "lesion_image",
        mask_key: KeysCollection = "lesion_mask",
        num_masks: int = 1,
        num_lesions: Sequence[int] = (1, 4),
        lesion_size: Sequence[float] = (16, 64),
        gamma: float = 0.5,
        amplitude: Sequence[float] = (0.15, 0.5),
        rotate: bool = True,
        irregularity: float = 0.3,
        prob: float = 1.0,
        allow_missing_keys: bool = False,
    ) -> None:
        transform = SynthLesionMask(num_masks, num_lesions, lesion_size, gamma, amplitude, rotate, irregularity, prob)
        super().__init__(keys, transform, lesion_key, mask_key, allow_missing_keys)


class AnatPasted(LesionVariantsd):
    """
    Dictionary-based wrapper of ``AnatPaste``: adds N lesion variants and their maps; ``keys`` stay as they are.

    Args:
        keys: keys of the normal images (C, *S), floating point in [0, 1]. All keys share one random draw.
        lesion_key: new key of the lesion images (N, C, *S); one per key.
        mask_key: new key of the lesion maps (N, 1, *S); one per key.
        num_masks: number N of lesion variants.
        patch_size: range of the rectangle's side lengths as fractions of the image sides.
        strength: range of the largest blending weight, in (0, 1].
        softness: width of the rim as a fraction of the shorter image side.
        prob: probability of lesions; otherwise the variants are copies of the image, and their maps are 0.
        allow_missing_keys: do not raise an error if a key is missing.

    Raises:
        ValueError: on settings out of range; when called, on an image of wrong shape, dtype or range.
    """

    def __init__(
        self,
        keys: KeysCollection,
        lesion_key: KeysCollection = "lesion_image",
        mask_key: KeysCollection = "lesion_mask",
        num_masks: int = 1,
        patch_size: Sequence[float] = (0.15, 0.4),
        strength: Sequence[float] = (0.3, 0.8),
        softness: float = 0.06,
        prob: float = 1.0,
        allow_missing_keys: bool = False,
    ) -> None:
        transform = AnatPaste(num_masks, patch_size, strength, softness, prob)
        super().__init__(keys, transform, lesion_key, mask_key, allow_missing_keys)


class CutPasted(LesionVariantsd):
    """
    Dictionary-based wrapper of ``CutPaste``: adds N lesion variants and their maps; ``keys`` stay as they are.

    Args:
        keys: keys of the normal images (C, *S), floating point in [0, 1]. All keys share one random draw.
        lesion_key: new key of the lesion images (N, C, *S); one per key.
        mask_key: new key of the lesion maps (N, 1, *S); one per key.
        num_masks: number N of lesion variants.
        area: range of the pasted rectangle's share of the image's area.
        aspect_ratio: range of the ratio of the rectangle's sides.
        jitter: largest relative change of the pasted intensities.
        prob: probability of lesions; otherwise the variants are copies of the image, and their maps are 0.
        allow_missing_keys: do not raise an error if a key is missing.

    Raises:
        ValueError: on settings out of range; when called, on an image of wrong shape, dtype or range.
    """

    def __init__(
        self,
        keys: KeysCollection,
        lesion_key: KeysCollection = "lesion_image",
        mask_key: KeysCollection = "lesion_mask",
        num_masks: int = 1,
        area: Sequence[float] = (0.02, 0.15),
        aspect_ratio: Sequence[float] = (0.3, 3.3),
        jitter: float = 0.1,
        prob: float = 1.0,
        allow_missing_keys: bool = False,
    ) -> None:
        transform = CutPaste(num_masks, area, aspect_ratio, jitter, prob)
        super().__init__(keys, transform, lesion_key, mask_key, allow_missing_keys)


LesionVariantsD = LesionVariantsDict = LesionVariantsd
SynthLesionMaskD = SynthLesionMaskDict = SynthLesionMaskd
AnatPasteD = AnatPasteDict = AnatPasted
CutPasteD = CutPasteDict = CutPasted
