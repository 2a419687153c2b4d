# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Dice and Hausdorff distance of each image and class, with empty masks as the field counts them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from monai.metrics import compute_dice, compute_hausdorff_distance

from monai_afire.metrics.landmark_errors import pixel_sizes

PERCENTILE = 95


def segmentation_metrics(
    pred: torch.Tensor,
    truth: torch.Tensor,
    pixel_size: torch.Tensor | Sequence[float] | None = None,
) -> dict[str, torch.Tensor]:
    """
    Dice and 95th percentile of the Hausdorff distance, by MONAI, for each image and class.

    ==================  =====  ===============================================
    masks               dice   hd95
    ==================  =====  ===============================================
    both not empty      MONAI  MONAI
    both empty          1      NaN: there is no outline
    only one is empty   0      the image's diagonal: no distance can be larger
    ==================  =====  ===============================================

    An empty truth that is predicted empty counts as right, as in the SIIM-ACR challenge. There most truths are empty,
    and a network that predicts nothing reaches a high mean: see the mean over images with a truth, too. The diagonal
    makes an organ that was missed cost something, for which NaN would be a reward.

    Args:
        pred: ``(B, C, *S)`` bool, each class (there is no background class) a mask of its own.
        truth: ``(B, C, *S)`` bool.
        pixel_size: of each image ``(B,)``, or of each image along each axis ``(B, dims)``, for example in mm; None for
            distances in pixels. NaN where it is not known.

    Returns:
        "dice" ``(B, C)`` in [0, 1], and "hd95" ``(B, C)`` in the units of ``pixel_size``, NaN where that is.

    Raises:
        ValueError: for masks that are not bool.
    """
    if pred.dtype != torch.bool or truth.dtype != torch.bool:
        raise ValueError(f"pred and truth must be bool masks, got {pred.dtype} and {truth.dtype}")
    shape = pred.shape[2:]
    sizes = pixel_sizes(pixel_size, len(pred), len(shape))
    dice = compute_dice(pred.float(), truth.float(), include_background=True, ignore_empty=False)
    has_pred, has_truth = pred.flatten(2).any(-1), truth.flatten(2).any(-1)
    diagonal = (sizes * torch.tensor(shape)).square().sum(-1).sqrt().to(pred.device, torch.float32)
    hd95 = diagonal[:, None].repeat(1, pred.shape[1]).masked_fill(~(has_pred | has_truth), math.nan)
    known = ~diagonal.isnan()
    image, channel = (has_pred & has_truth & known[:, None]).nonzero(as_tuple=True)
    if len(image):
        # only masks with an outline: MONAI warns of every other
        hd95[image, channel] = compute_hausdorff_distance(
            pred[image, channel][:, None],
            truth[image, channel][:, None],
            include_background=True,
            percentile=PERCENTILE,
            spacing=sizes[image.cpu()].tolist(),
        )[:, 0].to(hd95)
    return {"dice": dice, "hd95": hd95}
