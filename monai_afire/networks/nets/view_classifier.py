# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A small network that tells the view of a frontal chest radiograph, and whether it shows a child."""

from __future__ import annotations

import torch
from monai.networks.nets import Classifier
from torch.nn import functional as F

from monai_afire.networks.nets.released_network import ReleasedNetwork, inner_parts, standardized
from monai_afire.utils.precision import at_least_float32, without_autocast

_SIDE = 64
_CHANNELS, _STRIDES = (8, 16, 24, 32), (2, 2, 2, 2)


class ViewClassifier(ReleasedNetwork):
    """
    View (AP against PA) and age (child against adult) of frontal radiographs, by MONAI's ``Classifier``.

    It sees 64 x 64 pixels. It was trained on radiographs of one hospital, without lateral views.

    Example:
        >>> found = ViewClassifier().eval()(torch.rand(2, 1, 96, 80))
        >>> {name: tuple(values.shape) for name, values in found.items()}
        {'ap': (2,), 'child': (2,)}
    """

    weights_file = "views.safetensors"

    def __init__(self) -> None:
        super().__init__()
        self.net = Classifier(
            (1, _SIDE, _SIDE), 2, _CHANNELS, _STRIDES, num_res_units=2, norm="batch"
        )

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Logits of AP and of child ``(B, 2)`` from one look at each picture, as for training."""
        small = F.interpolate(images, (_SIDE, _SIDE), mode="bilinear", antialias=True)
        return self.net(standardized(small, 1e-3))

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """
        Classify pictures, averaged over the whole picture and two parts without the edges.

        Args:
            images: ``(B, C, H, W)``, upright, dense parts bright; of colors the mean is taken.

        Returns:
            Probabilities "ap", of an AP view, and "child", each ``(B,)``.
        """
        with without_autocast(images):
            gray = at_least_float32(images).mean(1, keepdim=True)
            small = F.interpolate(gray, (_SIDE, _SIDE), mode="area")
            seen = [self.logits(part) for part in inner_parts(small)]
        ap, child = torch.stack(seen).mean(0).sigmoid().unbind(1)
        return {"ap": ap, "child": child}
