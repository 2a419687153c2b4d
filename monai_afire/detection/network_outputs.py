# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a network says about images: tokens, features and restorations, each computed once and only if asked for."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from monai_afire.detection.masked_restoration import restore_masked
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.nets.encoders.adapting import as_encoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.utils.computed_once import computed_once
from monai_afire.utils.precision import at_least_float32, without_autocast

LAYERS = ("last", "all")
RESIDUAL_CELLS = 4  # along each axis of a patch


class NetworkOutputs:
    """
    A batch of images, and what a detector's network says about them.

    Args:
        detector: whose network, layers and interior are used.
        image: ``(B, C, H, W)`` in [0, 1].
        numbers: ``(B,)`` of normal images among all that the detector is fitted to; None for new images.
    """

    def __init__(
        self, detector: Any, image: torch.Tensor, numbers: torch.Tensor | None = None
    ) -> None:
        self.detector = detector
        self.network = detector.network
        self.image = image
        self.numbers = numbers

    @property
    def student_tokens(self) -> torch.Tensor:
        """``(B, L, D)`` of the encoder."""
        return self._student[0]

    @property
    def student_features(self) -> torch.Tensor:
        """``(B, L, F)`` of the encoder's layers."""
        return self._student[1]

    @computed_once
    def mean_feature(self) -> torch.Tensor:
        """``(B, F)``, the student's mean over the tokens off the border; float32 for half precision."""
        features, interior = at_least_float32(self.student_features), self.detector.interior
        with without_autocast(features):
            # a product, since a graph wants no choice by a mask
            return (interior.to(features) / interior.sum()) @ features

    @property
    def teacher_tokens(self) -> torch.Tensor:
        """``(B, L, D)`` of the teacher; an encoder alone is its own."""
        return self._teacher[0]

    @property
    def teacher_features(self) -> torch.Tensor:
        """``(B, L, F)`` of the teacher's layers."""
        return self._teacher[1]

    @computed_once
    def patches(self) -> torch.Tensor:
        """``(B, L, P)`` of the image, in normalized intensity."""
        return self.network.encoder.to_patches(self.image)

    @computed_once
    def error(self) -> torch.Tensor:
        """``(B, L, P)``, what the image has and its restoration has not; float32 for half precision."""
        return self._error_of(self.network.decoder(self.student_tokens))

    @computed_once
    def masked_error(self) -> torch.Tensor:
        """The same of the masked restoration: each patch is restored while its token is hidden."""
        return self._error_of(restore_masked(self.student_tokens, self.network))

    @computed_once
    def coarse_masked_error(self) -> torch.Tensor:
        """``(B, L, 16)``, the masked error with its sign, averaged over 4 x 4 cells of each patch."""
        encoder = self.network.encoder
        pixels = self.masked_error.unflatten(-1, (encoder.in_channels, *encoder.patch_size))
        return F.adaptive_avg_pool2d(pixels.mean(2), RESIDUAL_CELLS).flatten(2)

    def _error_of(self, restored: torch.Tensor) -> torch.Tensor:
        return at_least_float32(self.patches) - at_least_float32(restored)

    @computed_once
    def _student(self) -> tuple[torch.Tensor, torch.Tensor]:
        return tokens_and_features(self.network.encoder, self.image, self.detector.layers)

    @computed_once
    def _teacher(self) -> tuple[torch.Tensor, torch.Tensor]:
        if not isinstance(self.network, AFiRe):
            return self._student
        return tokens_and_features(self.network.teacher_encoder, self.image, self.detector.layers)


class FrozenEncoder(nn.Module):
    """
    A frozen encoder, in evaluation mode, where a detector expects a pre-trained network.

    Args:
        encoder: any, see :func:`monai_afire.networks.as_encoder`; used as it is, not copied.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder: RadiographEncoder = as_encoder(encoder)
        self.encoder.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> FrozenEncoder:
        """The encoder stays in evaluation mode: no dropout, no stochastic depth."""
        super().train(mode)
        self.encoder.eval()
        return self


def feature_width(encoder: RadiographEncoder, layers: str) -> int:
    """Width of the features of :func:`tokens_and_features`."""
    return encoder.hidden_size if layers == "last" else sum(encoder.feature_channels)


def tokens_and_features(
    encoder: RadiographEncoder, image: torch.Tensor, layers: str = "last"
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    An encoder's tokens ``(B, L, D)``, and the features ``(B, L, F)`` to describe each of them by, in one pass.

    With ``layers`` "last" these are the tokens themselves; with "all" the encoder's feature maps beside each other,
    finer ones averaged over each token's patch, as PatchCore and PaDiM join layers.
    """
    if layers == "last":
        tokens = encoder(image)
        return tokens, tokens
    rows, columns = encoder.grid_size
    pooled = [F.adaptive_avg_pool2d(each, (rows, columns)) for each in encoder.feature_maps(image)]
    maps = [each.flatten(2).transpose(1, 2) for each in pooled]
    return maps[-1], torch.cat(maps, -1)
