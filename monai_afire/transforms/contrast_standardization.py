# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Standardization of local brightness and contrast, so that exposure differs less between images."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from typing import Any

import torch
from monai.config import KeysCollection
from monai.config.type_definitions import NdarrayOrTensor
from monai.data.meta_obj import get_track_meta
from monai.networks.layers import gaussian_1d
from monai.transforms import Transform
from monai.utils import TransformBackends, convert_to_dst_type, convert_to_tensor
from torch.nn import functional as F

from monai_afire.transforms.base import ArrayTransformd


class StandardizeContrast(Transform):
    r"""
    Give every neighborhood of an image the same brightness and contrast.

    .. math:: y = \operatorname{clip}_{[0, 1]}\Bigl(\tfrac12 + s\,\frac{x - \mu(x)}{\sigma(x)}\Bigr)

    with mean μ and standard deviation σ of the neighborhood under a Gaussian window, mirrored at the borders. A
    change of exposure, :math:`x \to a x + b` with any a > 0, changes nothing while σ stays above ``floor``. What is
    wide compared with the window is weakened, edges and opacities smaller than it stay.

    Args:
        window: standard deviation of the Gaussian as a fraction of each side.
        contrast: s, the standard deviation of the output.
        floor: smallest σ, in units of [0, 1]: flat areas are not blown up to noise.

    Example:
        >>> image = torch.rand(1, 64, 64)
        >>> standardize = StandardizeContrast()
        >>> bool((standardize(image) - standardize(0.5 * image + 0.2)).abs().max() < 1e-4)
        True
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012  MONAI declares it so

    def __init__(self, window: float = 0.125, contrast: float = 0.18, floor: float = 0.01) -> None:
        self.window, self.contrast, self.floor = window, contrast, floor

    def __call__(self, img: NdarrayOrTensor) -> NdarrayOrTensor:
        """
        Standardize an image.

        Args:
            img: ``(C, H, W)``.

        Returns:
            ``(C, H, W)`` in [0, 1], of the floating-point type of the input (float32 for integers).
        """
        image = convert_to_tensor(img, track_meta=get_track_meta())
        dtype = image.dtype if image.is_floating_point() else torch.float32
        # beyond the reach of reduced-precision settings for matrix products
        values = convert_to_tensor(image, track_meta=False).double()
        deviation = values - self._blurred(values)
        spread = self._blurred(deviation.square()).sqrt().clamp_min(self.floor)
        result = (0.5 + self.contrast * deviation / spread).clamp(0, 1)
        return convert_to_dst_type(result, image, dtype=dtype)[0]

    def _blurred(self, values: torch.Tensor) -> torch.Tensor:
        """Gaussian blur of ``(C, H, W)``."""
        rows, columns = (
            _blur_matrix(side, self.window).to(values.device) for side in values.shape[1:]
        )
        return (values.mT @ rows).mT @ columns


@functools.lru_cache(maxsize=16)
def _blur_matrix(size: int, window: float) -> torch.Tensor:
    """Gaussian blur of a row of pixels with mirrored borders, as a matrix ``(size, size)`` to multiply it by."""
    kernel = gaussian_1d(torch.tensor(window * size), truncated=4.0).double()
    middle = len(kernel) // 2
    reach = min(middle, size - 1)  # as far as a mirror image of the row reaches
    kernel = kernel[middle - reach : middle + reach + 1]
    mirrored = F.pad(torch.eye(size, dtype=torch.float64)[:, None], (reach, reach), mode="reflect")
    return F.conv1d(mirrored, (kernel / kernel.sum())[None, None])[:, 0]


class StandardizeContrastd(ArrayTransformd):
    """
    Dictionary version of :class:`StandardizeContrast`, whose arguments follow the ``keys`` of the images.

    With ``enabled=False`` the images stay as they are.
    """

    array = StandardizeContrast

    def __init__(
        self, keys: KeysCollection, *settings: Any, enabled: bool = True, **named: Any
    ) -> None:
        super().__init__(keys, *settings, **named)
        self.enabled = enabled

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Standardize the images of one item. The item itself does not change."""
        return super().__call__(data) if self.enabled else dict(data)


StandardizeContrastD = StandardizeContrastDict = StandardizeContrastd
