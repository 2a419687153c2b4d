# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The loss of the masked autoencoder."""

from __future__ import annotations

import torch
from torch import nn

from monai_afire.losses.composite_loss import CompositeLoss, LossTerm
from monai_afire.losses.global_mean import global_mean
from monai_afire.losses.loss_shapes import check_shapes
from monai_afire.utils.precision import at_least_float32, without_autocast


class MaskedReconstructionLoss(nn.Module):
    r"""
    Squared error of the reconstructed patches that were hidden (He et al., CVPR 2022).

    .. math:: L = \frac{\sum_{b,j\ \text{hidden}} \frac{1}{P} \lVert y_{bj} - \tilde x_{bj} \rVert_2^2}
        {\sum_{b,j\ \text{hidden}} 1}

    with y the reconstruction of patch j of image b and x̃ its target. Visible patches have no part in it. The means are
    those of the global batch, see :func:`monai_afire.losses.global_mean`.

    Example:
        >>> reconstructed = torch.tensor([[[3.0, 3.0], [100.0, 100.0]]])
        >>> MaskedReconstructionLoss()(reconstructed, torch.ones(1, 2, 2), torch.tensor([[True, False]]))
        tensor(4.)
    """

    def forward(
        self, reconstructed: torch.Tensor, target: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        """
        Args:
            reconstructed: patches ``(B, L, P)`` of the decoder.
            target: patches ``(B, L, P)`` in the same intensity.
            hidden: ``(B, L)`` bool, True for the patches that the encoder did not see.

        Returns:
            Scalar; 0 when nothing is hidden.
        """
        check_shapes(
            reconstructed=(reconstructed, "B, L, P"),
            target=(target, "B, L, P"),
            hidden=(hidden, "B, L"),
        )
        with without_autocast(reconstructed):
            error = (at_least_float32(reconstructed) - at_least_float32(target)).square()
            return global_mean(error.mean(-1), hidden)


class MAELoss(CompositeLoss):
    """
    The loss of :class:`monai_afire.networks.MAE`: :class:`MaskedReconstructionLoss`, logged as "reconstruction".

    Example:
        >>> outputs = {"reconstructed": torch.ones(1, 2, 4), "target": torch.zeros(1, 2, 4)}
        >>> loss = MAELoss()
        >>> loss(outputs | {"hidden": torch.tensor([[True, False]])}), sorted(loss.terms)
        (tensor(1.), ['reconstruction', 'total'])
    """

    def __init__(self) -> None:
        needs = ("reconstructed", "target", "hidden")
        terms = {"reconstruction": LossTerm(1.0, MaskedReconstructionLoss(), needs)}
        super().__init__(terms)
