# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loss of landmark detection by heat maps."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from monai_afire.losses.global_mean import global_mean
from monai_afire.losses.loss_shapes import check_shapes
from monai_afire.utils.precision import at_least_float32, without_autocast


class HeatmapLoss(nn.Module):
    r"""
    Squared error of heat maps, in which the few pixels near a landmark count more than the many others.

    .. math::
        L = \operatorname{mean}_{(b,p)\ \text{known}}
        \frac{\sum_x w_{bpx} (h_{bpx} - y_{bpx})^2}{\sum_x w_{bpx}}, \qquad
        w_{bpx} = 1 + (w - 1) \min(\max(y_{bpx}, 0), 1)

    with h the predicted and y the true map, whose landmark is a peak of height 1. Each known landmark of each image
    counts the same, in a process group each of the global batch. Without the weight, a map of zeros is nearly optimal:
    a Gaussian of standard deviation 2 in 128 × 128 pixels costs it 0.0008; with a weight of 100 it costs 0.045. The
    loss does not depend on the resolution when the peak's width grows with it.

    A landmark that is not known is a true map with a NaN in it. The network's map of it may be anything, even NaN, and
    has the gradient 0.

    Args:
        positive_weight: w > 0, weight of the pixel at the landmark against one far from it; 1 for the plain mean
            squared error.

    Example:
        >>> label = torch.tensor([[[[0.0, 1.0]], [[float("nan"), 1.0]]]])
        >>> HeatmapLoss(positive_weight=3)(torch.zeros(1, 2, 1, 2), label)
        tensor(0.7500)
    """

    def __init__(self, positive_weight: float = 100.0) -> None:
        super().__init__()
        if not 0 < positive_weight < float("inf"):
            raise ValueError(f"positive_weight must be positive and finite, got {positive_weight}")
        self.positive_weight = positive_weight

    def forward(self, pred: Tensor, label: Tensor) -> Tensor:
        """
        Args:
            pred: heat maps ``(B, P, H, W)`` of the network.
            label: true heat maps ``(B, P, H, W)``, a map with a NaN for a landmark that is not known.

        Returns:
            Scalar; 0, with gradients of 0, without a known landmark.
        """
        check_shapes(pred=(pred, "B, P, H, W"), label=(label, "B, P, H, W"))
        with without_autocast(pred):
            h, y = at_least_float32(pred).flatten(2), at_least_float32(label).flatten(2)
            known = ~y.isnan().any(-1)
            y = torch.where(known[..., None], y, 0.0)
            weight = 1 + (self.positive_weight - 1) * y.clamp(0, 1)
            # the difference is masked, not its square: the square of an infinite number has no finite gradient
            difference = torch.where(known[..., None], h - y, 0.0)
            error = (weight * difference.square()).sum(-1) / weight.sum(-1)
            return global_mean(error, known)
