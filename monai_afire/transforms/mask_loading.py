# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loading of masks that lie on a radiograph, one file for each channel."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.config.type_definitions import PathLike
from monai.data import MetaTensor
from monai.data.meta_obj import get_track_meta
from monai.transforms import Transform
from monai.utils import ImageMetaKey
from PIL import Image, ImageOps
from torch.nn import functional as F

from monai_afire.transforms.base import ArrayTransformd
from monai_afire.transforms.radiograph import LoadRadiograph
from monai_afire.transforms.radiograph_files import refuse, single_path, warn_about
from monai_afire.utils.text import image_name

# A mask that was compressed by JPEG, or scaled, has intermediate values along its outline, in a band that is narrower
# than this; a picture, or a map of several classes, has whole regions of them.
_BAND = 5
_INTERMEDIATE = (0.125, 0.875)
_MOST_LABELS = 16  # values; a blurred outline has more, or such that are far apart


class LoadMasks(Transform):
    """
    Load the masks of one radiograph as channels of 0 and 1.

    A mask is a file of any format that :py:class:`LoadRadiograph` reads, with two values, of which the larger is the
    structure (a file of one value is the structure where that is above 0). With more values, as JPEG leaves along
    outlines, the structure is what is above half of the largest. In a picture of one color, it is what is opaque.

    The masks must have the size of the radiograph, else they might be of another one. They get its metadata, so that
    MONAI's spatial transforms keep both aligned.

    Args:
        num_channels: how many masks are expected; None for as many as there are.
        fit_size: bring masks of another resolution to the radiograph's size, by the nearest pixel. The ratio of the
            sides must be the radiograph's.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "lung.png")
        >>> Image.linear_gradient("L").resize((64, 48)).point(lambda value: 255 * (value > 99)).save(path)
        >>> masks = LoadMasks()([path, path], image=torch.zeros(1, 48, 64))
        >>> tuple(masks.shape), masks.unique().tolist()
        ((2, 48, 64), [0.0, 1.0])
    """

    backend = LoadRadiograph.backend

    def __init__(self, num_channels: int | None = None, fit_size: bool = False) -> None:
        self.num_channels = num_channels
        self.fit_size = fit_size
        # a radiograph of any shape has masks of that shape
        self.loader = LoadRadiograph(scaling="none", min_size=1, max_aspect=float("inf"))

    def __call__(
        self, files: PathLike | Sequence[PathLike], image: torch.Tensor | None = None
    ) -> torch.Tensor:
        """
        Load the masks.

        Args:
            files: a path, or a list of paths, one for each channel.
            image: the radiograph ``(1, H, W)``, whose size the masks must have and whose metadata they get. None: the
                masks must have one size.

        Returns:
            ``(C, H, W)`` float32 of 0 and 1; a ``MetaTensor``, unless the radiograph is a plain tensor.

        Raises:
            RadiographError: when a file is missing, cannot be read, has another size or is no mask; when there is
                another number of files.
        """
        paths = list(files) if isinstance(files, (list, tuple)) else [files]
        if not all(paths) or len(paths) != (self.num_channels or max(1, len(paths))):
            found = f"is no list of {self.num_channels or 'some'} masks"
            raise refuse(str(paths), found, "give one file per channel, of zeros if it is empty")
        names = [single_path(path) for path in paths]
        loaded = [_structure(name, self.loader(name)) for name in names]
        reference = loaded[0] if image is None else image
        masks = [
            _binary(name, self._fitted(name, torch.as_tensor(values), reference))
            for name, values in zip(names, loaded, strict=True)
        ]
        return _like(reference, torch.cat(masks), names[0])

    def empty(self, image: torch.Tensor) -> torch.Tensor:
        """Masks of nothing, for a normal radiograph ``(1, H, W)``."""
        return _like(image, torch.zeros(self.num_channels or 1, *image.shape[1:]))

    def _fitted(self, path: str, values: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        """Values at the image's size, or an error."""
        (height, width), (rows, columns) = values.shape[1:], image.shape[1:]
        if (height, width) == (rows, columns):
            return values
        if not self.fit_size or height * columns != width * rows:
            name = image_name({"image": image})
            found = f"is {width} x {height} pixels (width x height), its image {name} is {columns} x {rows}"
            remedy = (
                "check that they belong together; fit_size fits another resolution of one picture"
            )
            raise refuse(path, found, remedy)
        resized = F.interpolate(values[None], size=(rows, columns), mode="nearest-exact")[0]
        if resized.max() < values.max():
            found = f"has a structure too thin for {columns} x {rows} pixels, which is lost"
            warn_about(path, found)
        return resized


class LoadMasksd(ArrayTransformd):
    """
    Dictionary version of :py:class:`LoadMasks`: replaces the file names under each key by the masks.

    Load the radiograph before, and resize, crop or rotate both after. An item that is "abnormal" 0 needs no masks (the
    value is None, or the key is missing): it gets ``num_channels`` empty ones, or one where their number is not known.

    Args:
        keys: keys of the file names, or lists of them.
        image_key: key of the loaded radiograph.
        num_channels: how many masks are expected, see :py:class:`LoadMasks`.
        fit_size: bring masks of another resolution to the radiograph's size.
        allow_missing_keys: skip keys that other items lack instead of raising.

    Example:
        >>> item = LoadMasksd("mask")({"image": torch.rand(1, 48, 64), "abnormal": 0})
        >>> tuple(item["mask"].shape), item["mask"].any().item()
        ((1, 48, 64), False)
    """

    array = LoadMasks

    def __init__(
        self,
        keys: KeysCollection,
        image_key: str = "image",
        num_channels: int | None = None,
        fit_size: bool = False,
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, num_channels, fit_size, allow_missing_keys=allow_missing_keys)
        self.image_key = image_key

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Load the masks of one item. The item itself does not change."""
        item = dict(data)
        image = item[self.image_key]
        for key in self.keys:
            files = data.get(key)
            if files not in (None, ""):
                item[key] = self.transform(files, image)
            elif data.get("abnormal") == 0:
                item[key] = self.transform.empty(image)
            elif not self.allow_missing_keys or key in data:
                remedy = "give its file, or abnormal=0 if there is nothing to see"
                raise refuse(image_name(data, self.image_key), f"has no {key!r}", remedy)
        return item


LoadMasksD = LoadMasksDict = LoadMasksd


def _structure(path: str, values: torch.Tensor) -> torch.Tensor:
    """Values of a mask, or its opacity where the structure is drawn in it; refused where the two differ."""
    opacity = _opacity(path)
    if opacity is None or opacity.min() == opacity.max():
        return values
    opaque = torch.tensor(opacity, dtype=torch.float32)[None]  # a copy: a file's are read-only
    is_drawn = bool(values.min() < values.max())
    if is_drawn and not torch.equal(_binary(path, values), _binary(path, opaque)):
        found = "is ambiguous: its colors show another structure than its transparency"
        raise refuse(path, found, "save it without an alpha channel, with two values")
    return _like(values, opaque, path)


def _opacity(path: str) -> np.ndarray | None:
    """How opaque each pixel of a picture is, upright, ``(H, W)`` uint8; None for a file without transparency."""
    try:
        with Image.open(path) as image:
            if not image.has_transparency_data:
                return None
            return np.asarray(ImageOps.exif_transpose(image).convert("RGBA").getchannel("A"))
    except (OSError, ValueError, SyntaxError):
        return None  # no picture that Pillow reads: it has no such channel


def _binary(path: str, values: torch.Tensor) -> torch.Tensor:
    """0 and 1 from the values of a mask ``(1, H, W)``."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        return torch.full_like(values, float(high > 0))
    if _has_levels_between(values, low, high):
        found = f"is no mask: it has {len(values.unique())} values from {low:g} to {high:g}"
        raise refuse(path, found, "give a picture with two values, one for each structure")
    return (values > (low + high) / 2).float()


def _has_levels_between(values: torch.Tensor, low: float, high: float) -> bool:
    """Whether there is more than two values and their blurred outlines: a picture, or numbers of several structures."""
    levels = values.unique()
    if len(levels) == 2:
        return False
    start, end = (low + share * (high - low) for share in _INTERMEDIATE)
    between = ((values > start) & (values < end)).float()
    if len(levels) <= _MOST_LABELS:
        are_numbers = high - low <= _MOST_LABELS and torch.equal(levels, levels.round())
        structure = (values >= end).float()
        near_structure = F.max_pool2d(structure, 2 * _BAND + 1, stride=1, padding=_BAND)
        if are_numbers or (between > near_structure).any():
            return True
    if min(values.shape[1:]) < _BAND:
        return False
    return bool((F.avg_pool2d(between, _BAND, stride=1) == 1).any())


def _like(image: torch.Tensor, masks: torch.Tensor, path: Any = None) -> torch.Tensor:
    """Masks with the metadata of an image, but the name of their own file."""
    if not isinstance(image, MetaTensor) or not get_track_meta():
        return masks
    name = {} if path is None else {ImageMetaKey.FILENAME_OR_OBJ: str(path)}
    return MetaTensor(masks, meta={**deepcopy(image.meta), **name})
