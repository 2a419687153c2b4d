# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lesions of known kind, contrast, size and place, for tests on the same images with and without a lesion."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.config.type_definitions import NdarrayOrTensor
from monai.data.meta_obj import get_track_meta
from monai.transforms import MapTransform
from monai.utils import convert_to_dst_type, convert_to_tensor, ensure_tuple
from torch import Tensor

from monai_afire.transforms.base import check_image_range
from monai_afire.transforms.lesion_synthesis.lung_mask import lung_depth
from monai_afire.transforms.lesion_synthesis.pasting import AnatPaste, CutPaste

CONTROLLED_LESION_KINDS = ("SoftNodule", "AnatPaste", "CutPaste")
VISIBLE_SHARE = 0.1  # of the contrast that must have been added for a pixel to belong to the lesion
# of the changes in a pasted lesion: its largest may be that of a single odd pixel
TYPICAL_QUANTILE = 0.95
# where a Gaussian has fallen to this share
RADIUS_IN_SIGMAS = math.sqrt(-2 * math.log(VISIBLE_SHARE))
NO_LESION: dict[str, Any] = {"kind": "", "contrast": 0.0, "size": 0.0, "seed": 0}


def controlled_lesion(
    image: NdarrayOrTensor, kind: str, contrast: float, size: float, seed: int
) -> tuple[Tensor, Tensor]:
    """
    Paint one lesion of a given kind, contrast and size into a radiograph.

    The result depends on the arguments only. The place and, for the pasting kinds, the source depend on image, kind,
    size and seed, not on the contrast.

    ``"SoftNodule"`` adds one soft round nodule without any edge, ``x' = min(1, x + contrast * exp(-r² / (2 s²)))``, in
    every channel. ``size`` is the diameter of the circle on which a tenth of the contrast is added, as a fraction of
    the shorter side. Its place is drawn uniformly among those in the lungs (``segment_lungs``; the whole image where
    none are found) at which it fits into them; one too large for that is put into their deeper half.
    ``"AnatPaste"`` and ``"CutPaste"`` paste a rectangle with sides of ``size`` times those of the image. Their strength
    is chosen such that the most changed twentieth of the lesion's pixels changes by at least the contrast, or is 1
    (nothing of the original left at the strongest pixel) where that does not suffice.

    Args:
        image: radiograph (C, H, W), floating point in [0, 1], which does not change.
        kind: one of ``CONTROLLED_LESION_KINDS``.
        contrast: how much the intensity changes, in (0, 1].
        size: how large, in (0, 1).
        seed: of place and source.

    Returns:
        The lesion image (C, H, W), and the mask (1, H, W), bool: where at least a tenth of the contrast was added
        (SoftNodule; less than the circle where the image was white before), where the blending weight is at least a
        tenth of its largest (AnatPaste), in the rectangle (CutPaste).

    Raises:
        ValueError: for an unknown kind, numbers out of range and images of wrong shape, dtype or range.
    """
    _check_settings(kind, contrast, size)
    source = convert_to_tensor(image, track_meta=get_track_meta())
    plain = _checked_image(source)
    exact = plain.to(torch.promote_types(plain.dtype, torch.float32))
    if kind == "SoftNodule":
        painted, mask = _with_nodule(exact, contrast, size, seed)
    else:
        painted, mask = _with_pasted(exact, kind, contrast, size, seed)
    return _like(painted, source, plain.dtype), _like(mask, source, torch.bool)


def _with_nodule(image: Tensor, contrast: float, size: float, seed: int) -> tuple[Tensor, Tensor]:
    """An image (C, H, W) with a nodule, and its mask (1, H, W)."""
    radius = size * min(image.shape[1:]) / 2
    # the depth in single precision, whatever the image's: the place must not depend on it
    depth = lung_depth(image.float().mean(0))
    deepest = depth.max()
    places = np.argwhere(depth >= (radius if radius <= deepest else deepest / 2))
    drawn = np.random.RandomState(seed).random_sample()
    profile = _gaussian(places[int(drawn * len(places))].tolist(), radius / RADIUS_IN_SIGMAS, image)
    added = (contrast * profile).minimum(1 - image).clamp(min=0)
    return image + added, (added >= VISIBLE_SHARE * contrast).any(0, keepdim=True)


def _with_pasted(
    image: Tensor, kind: str, contrast: float, size: float, seed: int
) -> tuple[Tensor, Tensor]:
    """An image (C, H, W) with a part of itself pasted elsewhere, and its mask (1, H, W)."""
    paste: AnatPaste | CutPaste = CutPaste(area=(size**2, size**2), aspect_ratio=(1.0, 1.0))
    if kind == "AnatPaste":
        paste = AnatPaste(patch_size=(size, size), strength=(1.0, 1.0))
    paste.set_random_state(seed)
    pasted, weight = (convert_to_tensor(x, track_meta=False) for x in paste(image))
    mask = weight >= VISIBLE_SHARE * weight.max()
    change = pasted - image
    sizes = change.abs().amax(0)[mask[0]]
    typical = sizes.kthvalue(1 + int(TYPICAL_QUANTILE * (len(sizes) - 1))).values
    return (image + change * (contrast / typical).minimum(1 / weight.max())).clamp(0, 1), mask


class AddControlledLesiond(MapTransform):
    """
    Paint the lesion that an item asks for into its image; an item that asks for none keeps its image.

    What is painted is decided by the item's "lesion" alone, ``{"kind": ..., "contrast": ..., "size": ...,
    "seed": ...}``, see :func:`controlled_lesion`: cached datasets may cache it. None, an empty kind or no such key
    stands for no lesion. The output always has all four, so that items form one batch: kind "" and zeros for none.

    Args:
        keys: keys of the images (C, H, W), floating point in [0, 1], before intensity normalization. They are
            replaced, not changed in place. All keys get the same lesion.
        mask_key: new key of the mask (1, H, W), bool; one for each of the ``keys``.
        allow_missing_keys: do not raise an error if a key is missing.

    Example:
        >>> transform = AddControlledLesiond("image")
        >>> image = torch.full((1, 64, 64), 0.4)
        >>> lesion = {"kind": "SoftNodule", "contrast": 0.2, "size": 0.25, "seed": 7}
        >>> with_lesion, without = transform({"image": image, "lesion": lesion}), transform({"image": image})
        >>> round(float(with_lesion["image"].max()), 2), int(with_lesion["lesion_mask"].sum())
        (0.6, 197)
        >>> torch.equal(without["image"], image), bool(without["lesion_mask"].any()), without["lesion"]["kind"]
        (True, False, '')
    """

    backend = CutPaste.backend

    def __init__(
        self,
        keys: KeysCollection,
        mask_key: KeysCollection = "lesion_mask",
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.mask_key = ensure_tuple(mask_key)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Paint the lesion into a copy of the item, which then has images, masks, and the lesion in full."""
        output = dict(data)
        lesion = output["lesion"] = _complete(output.get("lesion"))
        for key, mask_key in self.key_iterator(output, self.mask_key):
            if lesion["kind"]:
                output[key], output[mask_key] = controlled_lesion(output[key], **lesion)
            else:
                output[key] = convert_to_tensor(output[key], track_meta=get_track_meta())
                output[mask_key] = _no_mask(output[key])
        return output


AddControlledLesionD = AddControlledLesionDict = AddControlledLesiond


def controlled_lesion_items(
    items: Iterable[Mapping],
    kinds: Sequence[str],
    contrasts: Sequence[float],
    sizes: Sequence[float],
    seed: int = 0,
) -> list[dict]:
    """
    Items for a controlled test: each normal image once without a lesion, and once with each lesion.

    The seed of a lesion is a hash of ``seed``, the image's number, kind and size, but not of the contrast: one image
    has the lesion at one place in all contrasts.

    Args:
        items: of normal images.
        kinds: any of ``CONTROLLED_LESION_KINDS``.
        contrasts: see :func:`controlled_lesion`.
        sizes: see :func:`controlled_lesion`.
        seed: another one puts the lesions elsewhere.

    Returns:
        Copies of the items, image by image: first with "lesion" None, then by kind, size and contrast as given.

    Raises:
        ValueError: for an unknown kind or a number out of range.
    """
    for kind, contrast, size in itertools.product(kinds, contrasts, sizes):
        _check_settings(kind, contrast, size)
    output: list[dict] = []
    for index, item in enumerate(items):
        output.append({**item, "lesion": None})
        for kind, size, contrast in itertools.product(kinds, sizes, contrasts):
            place = _hash(int(seed), index, kind, float(size))
            lesion = {"kind": kind, "contrast": float(contrast), "size": float(size), "seed": place}
            output.append({**item, "lesion": lesion})
    return output


def _complete(lesion: Mapping[str, Any] | None) -> dict[str, Any]:
    """All four entries of a lesion in plain types, which PyTorch can collate."""
    if not lesion or not lesion.get("kind"):
        return dict(NO_LESION)
    return {name: type(default)(lesion[name]) for name, default in NO_LESION.items()}


def _hash(*parts: object) -> int:
    """A seed of 32 bits that is the same in every process, unlike Python's own hash of text."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4], "little")


def _gaussian(center: Sequence[int], sigma: float, like: Tensor) -> Tensor:
    """Gaussian (H, W) of height 1 around a pixel."""
    rows, columns = (
        ((torch.arange(length).to(like) - middle) / sigma).square()
        for length, middle in zip(like.shape[1:], center, strict=True)
    )
    return torch.exp(-(rows[:, None] + columns) / 2)


def _checked_image(image: Tensor) -> Tensor:
    plain = convert_to_tensor(image, track_meta=False)
    check_image_range(plain)
    return plain


def _check_settings(kind: str, contrast: float, size: float) -> None:
    if kind not in CONTROLLED_LESION_KINDS:
        kinds = ", ".join(CONTROLLED_LESION_KINDS)
        raise ValueError(f"the kind of a lesion must be one of {kinds}, got {kind!r}.")
    if not (0 < contrast <= 1 and 0 < size < 1):
        found = f"got {contrast!r} and {size!r}"
        raise ValueError(f"contrast must be in (0, 1] and size (diameter) in (0, 1), {found}.")


def _no_mask(image: Tensor) -> Tensor:
    return _like(torch.zeros_like(_checked_image(image)[:1]), image, torch.bool)


def _like(result: Tensor, image: Tensor, dtype: torch.dtype) -> Tensor:
    return convert_to_dst_type(result, image, dtype=dtype)[0]
