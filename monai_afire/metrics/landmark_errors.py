# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Landmark positions from heat maps, radial errors and success rates.

Positions are counted along the axes of S, in two dimensions (row, column); 0 is the center of the first pixel.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch
from monai.utils import CommonKeys

from monai_afire.metrics.pretraining import DefinedAverage
from monai_afire.utils.precision import at_least_float32


def landmark_positions(heatmaps: torch.Tensor, window: int = 5) -> torch.Tensor:
    r"""
    Positions of landmarks between the pixels: the center of mass around the maximum of each heat map.

    .. math:: p = \frac{\sum_{x \in W} \max(h_x, 0)\, x}{\sum_{x \in W} \max(h_x, 0)}

    with W the window around the largest value; of several largest values the first counts. Where the window would
    reach beyond the map it becomes narrower on both sides, since half a blob would pull the position inwards. Where no
    value is positive, the position is the pixel of the maximum.

    A window that is narrow against the blob finds only a part of the way from the pixel to the blob's center. For a
    Gaussian of standard deviation 1, 2 and 3 pixels, the largest error along an axis is 0.04, 0.29 and 0.40 pixels with
    a window of 5, and below 0.01 with one of 6 standard deviations. Choose it by the maps that the network was trained
    on: wide for smooth ones, narrow for those with several peaks.

    Args:
        heatmaps: ``(B, P, *S)`` of P landmarks, largest where the landmark is.
        window: side of the window in pixels, odd; 1 for the pixel of the maximum.

    Returns:
        ``(B, P, dims)``, float. NaN for a map whose values are all the same, which points nowhere, and for one with a
        value that is NaN or infinite.

    Raises:
        ValueError: for an even window or a tensor without spatial axes or pixels.

    Example:
        >>> heatmaps = torch.zeros(1, 2, 8, 8)
        >>> heatmaps[0, 0, 3, 4:6] = 1.0
        >>> landmark_positions(heatmaps)
        tensor([[[3.0000, 4.5000],
                 [   nan,    nan]]])
    """
    if window < 1 or window % 2 == 0:
        raise ValueError(
            f"window must be odd and at least 1, so that it has a middle, got {window}"
        )
    if heatmaps.ndim < 3 or heatmaps.numel() == 0:
        raise ValueError(
            f"heatmaps must be (B, P, *S) with at least one pixel, got {tuple(heatmaps.shape)}"
        )
    shape = heatmaps.shape[2:]
    maps = at_least_float32(heatmaps.detach()).flatten(2)
    largest, place = maps.max(-1)
    peak = torch.stack(torch.unravel_index(place, shape), -1)
    last = torch.tensor(shape, device=maps.device) - 1
    half = window // 2
    reach = torch.minimum(peak, last - peak).clamp_max(half)
    steps = torch.tensor(
        list(itertools.product(range(-half, half + 1), repeat=len(shape))), device=maps.device
    )
    inside = (steps.abs() <= reach[:, :, None]).all(-1)
    pixels = torch.minimum((peak[:, :, None] + steps).clamp_min(0), last)
    strides = torch.tensor(
        [shape[axis + 1 :].numel() for axis in range(len(shape))], device=maps.device
    )
    weights = maps.gather(-1, (pixels * strides).sum(-1)).clamp_min(0).masked_fill(~inside, 0)
    total = weights.sum(-1, keepdim=True)
    # from the peak, which is exact for symmetric blobs wherever they are
    shift = (weights[..., None] * steps).sum(-2) / total
    positions = peak + torch.where(total == 0, 0.0, shift)
    pointless = (largest == maps.amin(-1)) | ~maps.isfinite().all(-1)
    return positions.masked_fill(pointless[..., None], torch.nan)


def radial_errors(
    predicted: torch.Tensor,
    truth: torch.Tensor,
    pixel_size: torch.Tensor | Sequence[float] | None = None,
) -> torch.Tensor:
    """
    Distances between predicted and true landmarks.

    Args:
        predicted: positions ``(B, P, dims)``, such as those of :func:`landmark_positions`.
        truth: positions ``(B, P, dims)`` in the same pixels, NaN where a landmark is not known.
        pixel_size: of each image ``(B,)``, or of each image along each axis ``(B, dims)``, for example in mm; None for
            errors in pixels.

    Returns:
        ``(B, P)``, in the units of ``pixel_size``. NaN where the truth, or the size of the pixels, is not known;
        infinite where only the prediction is NaN: a landmark that was not found must not leave the statistics.

    Raises:
        ValueError: when the shapes do not fit.

    Example:
        >>> predicted = torch.tensor([[[3.0, 4.0], [1.0, 1.0]]])
        >>> truth = torch.tensor([[[0.0, 0.0], [float("nan"), 1.0]]])
        >>> radial_errors(predicted, truth), radial_errors(predicted, truth, [0.5])
        (tensor([[5., nan]]), tensor([[2.5000,    nan]]))
    """
    if predicted.ndim != 3 or predicted.shape != truth.shape:
        raise ValueError(
            f"expected (B, P, dims) twice, got {tuple(predicted.shape)} and {tuple(truth.shape)}"
        )
    difference = at_least_float32(predicted) - at_least_float32(truth).to(predicted.device)
    known = ~truth.isnan().any(-1).to(predicted.device)
    if pixel_size is not None:
        sizes = pixel_sizes(pixel_size, len(predicted), predicted.shape[2]).to(difference)
        difference = difference * sizes[:, None]
        known = known & ~sizes.isnan().any(-1, keepdim=True)
    errors = torch.linalg.vector_norm(difference, dim=-1)
    return errors.masked_fill(errors.isnan(), torch.inf).masked_fill(~known, torch.nan)


def pixel_sizes(
    pixel_size: torch.Tensor | Sequence[float] | None, num_images: int, dims: int
) -> torch.Tensor:
    """
    Size of the pixels of each image along each axis.

    Args:
        pixel_size: of each image ``(B,)``, or of each image along each axis ``(B, dims)``, NaN where it is not known;
            None for 1.
        num_images: B.
        dims: number of axes.

    Returns:
        ``(B, dims)`` float64 on the CPU.

    Raises:
        ValueError: for another shape.

    Example:
        >>> pixel_sizes([0.5, 2.0], num_images=2, dims=2).tolist()
        [[0.5, 0.5], [2.0, 2.0]]
    """
    if pixel_size is None:
        return torch.ones(num_images, dims, dtype=torch.float64)
    sizes = torch.as_tensor(pixel_size, dtype=torch.float64).cpu()
    if sizes.shape not in ((num_images,), (num_images, dims)):
        raise ValueError(
            f"pixel_size must be ({num_images},) or ({num_images}, {dims}), got {tuple(sizes.shape)}"
        )
    return sizes.reshape(num_images, -1).expand(num_images, dims)


class MeanRadialError(DefinedAverage):
    """
    Mean distance between the landmarks of predicted and true heat maps, as a metric of MONAI's evaluators.

    Args:
        image_size: side of the image in pixels, the unit of the distance; of several the longest.
        window: see :func:`landmark_positions`.

    Example:
        >>> heatmaps = torch.zeros(1, 1, 8, 8)
        >>> heatmaps[0, 0, 3, 4] = 1.0
        >>> metric = MeanRadialError(image_size=8)
        >>> metric.update(metric.error({"pred": heatmaps.roll(2, -1), "label": heatmaps}))
        >>> float(metric.compute())
        0.25
    """

    def __init__(self, image_size: int | Sequence[int], window: int = 5) -> None:
        self.image_size = image_size if isinstance(image_size, int) else max(image_size)
        self.window = window
        super().__init__(output_transform=self.error)

    def error(self, output: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """
        The mean of a batch.

        Args:
            output: of the evaluator: "pred" and "label", heat maps ``(B, P, *S)``.

        Returns:
            Scalar; NaN when no landmark is known.
        """
        predicted, true = (
            landmark_positions(output[key].float(), self.window)
            for key in (CommonKeys.PRED, CommonKeys.LABEL)
        )
        return radial_errors(predicted, true).nanmean() / self.image_size
