# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""From one radiograph, as a file or in memory, to the input of a network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from monai.transforms import Resize, Transform
from monai.utils import TransformBackends, ensure_tuple_rep

from monai_afire.transforms.contrast_standardization import StandardizeContrast
from monai_afire.transforms.radiograph import LoadRadiograph


class RadiographInput(Transform):
    """
    Load one radiograph, resize it, and standardize its contrast where a network was trained so.

    :func:`monai_afire.networks.load_encoder` gives this transform with the settings of a file: rows and columns in
    pixels (or one number for both), 1 channel for gray or 3 for color, and whether the contrast is standardized.
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012  MONAI declares it so

    def __init__(
        self, image_size: int | Sequence[int], channels: int = 1, standardize: bool = False
    ) -> None:
        self.load = LoadRadiograph(channels=channels)
        size = ensure_tuple_rep(image_size, 2)
        self.resize = Resize(size, mode="area", anti_aliasing=False)
        self.standardize = StandardizeContrast() if standardize else None

    def __call__(self, image: Any) -> torch.Tensor:
        """
        Prepare one image, the path of a file or a picture in memory (:meth:`LoadRadiograph.from_memory`).

        Returns:
            ``(C, *image_size)`` in [0, 1], a plain tensor.

        Raises:
            RadiographError: when it cannot be read as one radiograph.
        """
        is_file = isinstance(image, (str, os.PathLike))
        loaded = self.load(image) if is_file else self.load.from_memory(image)
        prepared: Any = self.resize(torch.as_tensor(loaded).as_subclass(torch.Tensor))
        if self.standardize is not None:
            prepared = self.standardize(prepared)
        return torch.as_tensor(prepared).as_subclass(torch.Tensor)
