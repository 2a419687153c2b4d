# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Description of an image before it is resized: shape, brightness, sharpness, a small picture."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from monai.config import KeysCollection
from monai.data import MetaTensor
from monai.transforms import MapTransform
from monai.utils import TransformBackends, convert_to_tensor
from torch.nn import functional as F

JUDGED_PICTURE = "judged_picture"
_JUDGED_SIDE = 512  # of the pictures by which the shipped normal images were judged


class DescribeRadiographd(MapTransform):
    """
    Add what results need of the original: geometry, a picture to draw on, and how it was exposed.

    Adds plain tensors and numbers that collate even if the originals have different sizes:

    * ``"spatial_shape"`` ``(2,)`` int64, rows and columns, and ``"affine"`` ``(4, 4)`` float64;
    * ``"brightness"``, the mean of the picture, and ``"sharpness"``, the mean absolute difference of neighboring
      pixels: two measures of how an image was acquired, by which a detector may separate patient groups without
      looking at any lesion;
    * if ``picture_size`` is not 0, ``"picture"`` uint8 ``(C, picture_size, picture_size)``, squeezed to a square, and
      ``"judged_picture"`` ``(C, 512, 512)``, by which view, age and pose are judged: the same for all pictures to see.

    Args:
        keys: the one key of the image ``(C, H, W)`` in [0, 1], as :class:`LoadRadiographd` loads it.
        picture_size: side of the picture in pixels, 0 for none.
        allow_missing_keys: do not raise an error if the key is missing.

    Example:
        >>> item = DescribeRadiographd("image", picture_size=16)({"image": torch.full((1, 64, 48), 0.5)})
        >>> item["spatial_shape"].tolist(), item["brightness"], item["sharpness"], tuple(item["picture"].shape)
        ([64, 48], 0.5, 0.0, (1, 16, 16))
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012  MONAI declares it so

    def __init__(
        self, keys: KeysCollection, picture_size: int = 0, allow_missing_keys: bool = False
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.picture_size = picture_size

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Describe the radiograph of one item. The item itself does not change."""
        item = dict(data)
        for key in self.key_iterator(item):
            image = torch.as_tensor(item[key])
            plane = convert_to_tensor(image, track_meta=False)
            affine = image.affine if isinstance(image, MetaTensor) else torch.eye(4)
            item["spatial_shape"] = torch.tensor(plane.shape[1:])
            item["affine"] = torch.as_tensor(affine).double().cpu()
            item["brightness"] = float(plane.mean())
            item["sharpness"] = (_mean_step(plane, 1) + _mean_step(plane, 2)) / 2
            if self.picture_size:
                item["picture"] = _picture(plane, self.picture_size)
                item[JUDGED_PICTURE] = item["picture"]
                if self.picture_size != _JUDGED_SIDE:
                    item[JUDGED_PICTURE] = _picture(plane, _JUDGED_SIDE)
        return item


DescribeRadiographD = DescribeRadiographDict = DescribeRadiographd


def _picture(plane: torch.Tensor, side: int) -> torch.Tensor:
    """A square picture of 0 to 255."""
    if plane.shape[1:] != (side, side):
        plane = F.interpolate(plane[None], size=(side, side), mode="area")[0]
    return (plane.clamp(0, 1) * 255).round().to(torch.uint8)


def _mean_step(plane: torch.Tensor, dim: int) -> float:
    """Mean absolute difference of neighbors, 0 for a single row or column, which has none."""
    return float(plane.diff(dim=dim).abs().mean()) if plane.shape[dim] > 1 else 0.0
