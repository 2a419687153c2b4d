# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of the masked autoencoder's pre-training, from the outputs of :class:`monai_afire.networks.MAE`."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from monai_afire.metrics.pretraining import PretrainingMetrics, embedding_spread, restoration_gain


def mae_metrics(outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """
    Metrics to validate a masked autoencoder's pre-training by.

    Args:
        outputs: of the network in evaluation mode.

    Returns:
        Scalars, NaN where the batch does not define them:

        * "reconstruction_gain", see :func:`reconstruction_gain`,
        * "reconstruction_variety", an alarm: see :func:`reconstruction_variety`,
        * "embedding_spread", an alarm: :func:`monai_afire.metrics.embedding_spread` of the images' mean tokens.
    """
    patches = outputs["reconstructed"], outputs["target"], outputs["hidden"]
    return {
        "reconstruction_gain": reconstruction_gain(*patches),
        "reconstruction_variety": reconstruction_variety(*patches),
        "embedding_spread": embedding_spread(outputs["embedding"]),
    }


class MAEMetrics(PretrainingMetrics):
    """The values of :func:`mae_metrics` over a validation, see :class:`PretrainingMetrics`."""

    names = ("reconstruction_gain", "reconstruction_variety", "embedding_spread")
    batch_metrics = staticmethod(mae_metrics)


@torch.no_grad()
def reconstruction_gain(
    reconstructed: torch.Tensor, target: torch.Tensor, hidden: torch.Tensor
) -> torch.Tensor:
    r"""
    Share of the hidden patches' signal that is reconstructed.

    .. math:: 1 - \frac{\sum_{\text{hidden}} \lVert y_j - \tilde x_j \rVert^2}
        {\sum_{\text{hidden}} \lVert \bar x - \tilde x_j \rVert^2}

    with :math:`\bar x` the mean over the visible patches of the image's target: what can be said without any anatomy.
    Of a normalized target it is 0, and the gain is the share of the structure within the patches. 1 is perfect.

    Args:
        reconstructed: ``(B, L, P)`` y.
        target: ``(B, L, P)`` x̃.
        hidden: ``(B, L)`` bool, with a visible patch in every image.

    Returns:
        Scalar; 0 when nothing is hidden.
    """
    shown = (~hidden).unsqueeze(-1)
    mean = (target * shown).mean(-1, keepdim=True).sum(1, keepdim=True) / shown.sum(1, keepdim=True)
    return restoration_gain(reconstructed, target, mean.expand_as(target), hidden)


@torch.no_grad()
def reconstruction_variety(
    reconstructed: torch.Tensor, target: torch.Tensor, hidden: torch.Tensor
) -> torch.Tensor:
    r"""
    Alarm: how much the reconstructions of one place differ between images, as a share of what the targets differ.

    .. math:: \frac{\sum_j \sum_{b\ \text{hidden}} \lVert y_{bj} - \operatorname{mean}_{b'} y_{b'j} \rVert^2}
        {\sum_j \sum_{b\ \text{hidden}} \lVert \tilde x_{bj} - \operatorname{mean}_{b'} \tilde x_{b'j} \rVert^2}

    means over the images in which the place is hidden. Near 0 the decoder draws the average radiograph whatever the
    encoder sees, which a falling loss and a positive gain do not tell.

    Args:
        reconstructed: ``(B, L, P)`` y.
        target: ``(B, L, P)`` x̃.
        hidden: ``(B, L)`` bool.

    Returns:
        Scalar >= 0; NaN where the targets do not differ, as in a batch of one image.

    Example:
        >>> target = torch.tensor([[[1.0]], [[3.0]]])
        >>> hidden = torch.ones(2, 1, dtype=torch.bool)
        >>> reconstruction_variety(target / 2, target, hidden), reconstruction_variety(0 * target, target, hidden)
        (tensor(0.2500), tensor(0.))
    """
    signal = _scatter(target, hidden)
    return torch.where(
        signal > 0, _scatter(reconstructed.to(target.dtype), hidden) / signal, torch.nan
    )


def _scatter(patches: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Sum of the squared distances from the mean patch of each place, over what is hidden."""
    counts = hidden.unsqueeze(-1)
    mean = (patches * counts).sum(0, keepdim=True) / counts.sum(0, keepdim=True).clamp_min(1)
    return ((patches - mean).square() * counts).sum()
