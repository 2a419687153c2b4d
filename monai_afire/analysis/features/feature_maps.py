# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Dense features of many images, some at a time, so that memory does not grow with their number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from monai.utils import convert_to_tensor
from tqdm.auto import tqdm

from monai_afire.analysis.features.dense import cell_centers, dense_features, shifts_per_axis
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["FeatureMaps"]

_ROUNDING = 1e-4  # what remains of a feature after its mean is subtracted and is smaller, relatively, is rounding


class FeatureMaps:
    """Dense features of chosen images, chunk by chunk, on the encoder's device."""

    def __init__(
        self,
        encoder: RadiographEncoder,
        images: torch.Tensor,
        stride: Sequence[int] | int | None,
        batch_size: int,
        bar: tqdm,
    ) -> None:
        self.encoder = encoder
        self.images = convert_to_tensor(images, track_meta=False)
        self.stride = stride
        self.batch_size = batch_size
        self.bar = bar
        self.centers = [axis.to(encoder.mean.device) for axis in cell_centers(encoder, stride)]
        # the shifted copies of an image fill a part of a batch already
        self.chunk = max(1, batch_size // math.prod(shifts_per_axis(encoder, stride)))
        self.mean: torch.Tensor | None = None

    def remove_mean(self) -> None:
        """Subtract the mean map of all images from now on."""
        # in float64: an error of the sum would be the same in all images, and so tell the position
        total = sum(part.sum(0).cpu().double() for _, part in self(range(len(self.images))))
        self.mean = torch.as_tensor(total / len(self.images)).to(self.centers[0])

    def __call__(self, indices: Sequence[int]) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Some indices at a time, and their features (m, D, *cells)."""
        for start in range(0, len(indices), self.chunk):
            rows = list(indices[start : start + self.chunk])
            images = self.images[rows].to(self.centers[0].device)
            features = dense_features(self.encoder, images, self.stride, self.batch_size)
            self.bar.update(len(rows))
            yield rows, features if self.mean is None else _without(features, self.mean)


def _without(features: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    """Subtract the mean map; where nothing but rounding remains, nothing does, or it would give the position away."""
    difference = features - mean
    size = difference.norm(dim=1, keepdim=True)
    return difference * (size > _ROUNDING * features.norm(dim=1, keepdim=True))
