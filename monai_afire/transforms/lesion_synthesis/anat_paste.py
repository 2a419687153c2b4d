# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""AnatPaste: soft shadows pasted into the lungs of a radiograph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from monai_afire.transforms.argument_checks import check_range
from monai_afire.transforms.lesion_synthesis.otsu import random_foreground_points
from monai_afire.transforms.lesion_synthesis.variants import LesionVariants, LesionVariantsd

LUNG_AREA = (0.01, 0.3)  # share of the image that one lung may take up
# tried between the darkest tenth and the median of the brighter half of the image
NUM_THRESHOLDS = 12
# share of the best score at which a lower threshold, with cleaner outlines, is preferred
NEARLY_BEST = 0.95


def segment_lungs(image: Tensor) -> Tensor:
    """
    A rough lung mask of a chest radiograph: the two dark regions enclosed by brighter tissue that look most like lungs.

    The image is smoothed and thresholded at several levels. At each, the two largest dark connected regions are taken
    that do not touch the border of the image and are neither tiny nor huge. Their score is the sum of the square roots
    of their areas, which prefers two lungs of like size to one large region. The lowest threshold with nearly the best
    score wins.

    Args:
        image: radiograph (H, W), bright = dense.

    Returns:
        Lung mask (H, W), bool, without holes. All False when no lung is found.

    Example:
        >>> image = torch.full((32, 32), 0.8)
        >>> image[8:24, 4:12] = image[8:24, 20:28] = 0.1
        >>> lungs = segment_lungs(image)
        >>> bool(lungs[16, 8]), bool(lungs[16, 24]), bool(lungs[16, 16])
        (True, True, False)
    """
    smooth = ndimage.gaussian_filter(image.double().cpu().numpy(), sigma=min(image.shape) / 100)
    darkest, brightest = np.quantile(smooth, (0.1, 0.75)).tolist()
    thresholds = np.linspace(darkest, brightest, NUM_THRESHOLDS)
    candidates = [_enclosed_regions(smooth <= threshold) for threshold in thresholds]
    scores = np.array([np.sqrt(areas).sum() for _, _, areas in candidates])
    labels, regions, _ = candidates[int(np.argmax(scores >= NEARLY_BEST * scores.max()))]
    return torch.from_numpy(ndimage.binary_fill_holes(np.isin(labels, regions))).to(image.device)


def lung_depth(image: Tensor) -> np.ndarray:
    """
    Distance of each pixel from the rim of the lungs, of which the image's border is a part.

    Args:
        image: radiograph (H, W), bright = dense.

    Returns:
        (H, W) in pixels, 0 outside of the lungs (:func:`segment_lungs`); where none is found, all of the image counts.
    """
    lungs = segment_lungs(image).cpu().numpy()
    if not lungs.any():
        lungs[:] = True
    return ndimage.distance_transform_edt(np.pad(lungs, 1))[1:-1, 1:-1]


def _enclosed_regions(dark: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels of all connected regions, and numbers and areas of the two largest that may be lungs."""
    labels, num_regions = ndimage.label(dark)
    areas = np.bincount(labels.ravel(), minlength=num_regions + 1)
    smallest, largest = (share * dark.size for share in LUNG_AREA)
    areas[(areas < smallest) | (areas > largest)] = 0
    areas[np.concatenate([[0], labels[0], labels[-1], labels[:, 0], labels[:, -1]])] = 0
    regions = np.argsort(areas)[-2:]
    regions = regions[areas[regions] > 0]
    return labels, regions, areas[regions]


class AnatPaste(LesionVariants):
    """
    AnatPaste (Sato et al., 2023): a patch of the image is pasted into the lungs only, as a soft shadow.

    A comparator of ``SynthLesionMask`` with the same interface, for 2-D chest radiographs (bright = dense). A rectangle
    is put around a random pixel of the lungs (``segment_lungs``; the whole image where no lung is found) and restricted
    to them. There the image is blended with a patch of the same size cut out around a random bright pixel of the image.
    The blending weight rises smoothly from 0 at the rims of rectangle and lungs, so that the shadow has no edge:
    ``x' = x + weight * (patch - x)``. The lesion map is the weight.

    Args:
        num_masks: number N of variants of the image.
        patch_size: range of the rectangle's side lengths as fractions of the image sides, drawn uniformly.
        strength: range of the largest blending weight, drawn uniformly, in (0, 1].
        softness: width of the rim as a fraction of the shorter image side.
        prob: probability of lesions; otherwise the variants are copies of the image, and their maps are 0.

    Raises:
        ValueError: on settings out of range and on images with other than 2 spatial dimensions.

    Example:
        >>> transform = AnatPaste(num_masks=2).set_random_state(seed=0)
        >>> lesion_images, maps = transform(torch.rand(1, 64, 64))
        >>> tuple(lesion_images.shape), tuple(maps.shape)
        ((2, 1, 64, 64), (2, 1, 64, 64))
    """

    def __init__(
        self,
        num_masks: int = 1,
        patch_size: Sequence[float] = (0.15, 0.4),
        strength: Sequence[float] = (0.3, 0.8),
        softness: float = 0.06,
        prob: float = 1.0,
    ) -> None:
        super().__init__(num_masks, prob)
        self.patch_size = check_range("patch_size", patch_size, 1)
        self.strength = check_range("strength", strength, 1)
        if not 0 < softness < 1:
            raise ValueError(f"softness must be in (0, 1), got {softness!r}.")
        self.softness = softness

    def num_uniforms(self, spatial_dims: int) -> tuple[int, ...]:
        """(N, 5): height, width, strength, place in the lungs, source of the patch."""
        if spatial_dims != 2:
            found = (
                f"AnatPaste finds lungs in 2-D radiographs, got {spatial_dims} spatial dimensions"
            )
            raise ValueError(f"{found}: for volumes take SynthLesionMask or CutPaste.")
        return self.num_masks, 5

    def synthesize(self, image: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Blend one patch into the lungs per variant."""
        gray = image.to(torch.promote_types(image.dtype, torch.float32)).mean(0)
        depth = torch.from_numpy(lung_depth(gray)).to(gray)
        targets = random_foreground_points((depth > 0).to(gray)[None], uniforms[None, :, 3])[0]
        sources = random_foreground_points(gray[None], uniforms[None, :, 4])[0]
        low, high = self.patch_size
        sides = (low + (high - low) * uniforms[:, :2]) * uniforms.new_tensor(gray.shape)
        sizes = sides.round().clamp_(min=3).int().tolist()
        weakest, strongest = self.strength
        strength = weakest + (strongest - weakest) * uniforms[:, 2]
        lesion_images, maps = self.without_lesions(image)
        for n, size in enumerate(sizes):
            paste = _box(targets[n].tolist(), size, gray.shape)
            patch = gray[_box(sources[n].tolist(), size, gray.shape)]
            weight = strength[n] * self._soft_weight(depth, paste)
            every_channel = (slice(None), *paste)
            normal = image[every_channel]
            lesion_images[n][every_channel] = (normal + weight * (patch - normal)).clamp_(0, 1)
            maps[n, 0][paste] = weight.to(image.dtype)
        return lesion_images, maps

    def _soft_weight(self, depth: Tensor, box: tuple[slice, ...]) -> Tensor:
        """Weight in a box: a hill that falls to 0 at the rim of the box, and to 0 towards the rim of the lungs."""
        inside = depth[box]
        rim = (inside / (self.softness * min(depth.shape))).clamp(max=1)
        rim = rim * rim * (3 - 2 * rim)
        rows, columns = (_hill(length, depth) for length in inside.shape)
        return rim * rows.unsqueeze(1) * columns


class AnatPasted(LesionVariantsd):
    """
    Dictionary-based wrapper of ``AnatPaste``: adds N lesion variants and their maps; ``keys`` do not change.

    Args:
        keys: keys of the normal images (C, *S), floating point in [0, 1]. All keys share one random draw.
        lesion_key: new key of the lesion images (N, C, *S), "lesion_image" by default; one per key.
        mask_key: new key of the lesion maps (N, 1, *S), "lesion_mask" by default; one per key.
        fixed_by: key of a text that determines the lesions, see ``LesionVariantsd``.
        settings: as for ``AnatPaste``.
        allow_missing_keys: do not raise an error if a key is missing.

    Raises:
        ValueError: on settings out of range; when called, on an image of wrong shape, dtype or range.
    """

    array_class = AnatPaste


AnatPasteD = AnatPasteDict = AnatPasted


def _hill(length: int, like: Tensor) -> Tensor:
    """Raised cosine over the given number of pixels with a flat top, 0 one half pixel outside of both ends."""
    position = (torch.arange(length, dtype=like.dtype, device=like.device) + 0.5) / length
    return ((1.5 - 1.5 * torch.cos(2 * torch.pi * position)) / 2).clamp_(max=1)


def _box(center: Sequence[float], size: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """A box of the given size around a point, moved inside the image."""
    box: list[slice] = []
    for middle, wanted, side in zip(center, size, shape, strict=True):
        length = min(wanted, side)
        start = min(max(int(middle) - length // 2, 0), side - length)
        box.append(slice(start, start + length))
    return tuple(box)
