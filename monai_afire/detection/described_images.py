# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Images as a network sees them: tokens, features and restorations, each computed once and only if asked for."""

from __future__ import annotations

from typing import Any

import torch

from monai_afire.detection.masked_restoration import MaskedRestorationInferer
from monai_afire.detection.token_features import tokens_and_features
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.utils.computed_once import computed_once
from monai_afire.utils.precision import at_least_float32, without_autocast


class DescribedImages:
    """
    A batch of images and what a network says about them.

    An output costs its pass of the network when it is first asked for, and nothing if no score needs it.

    Args:
        network: a pre-trained AFiRe network, or a ``FrozenEncoder``.
        image: ``(B, C, *S)`` in [0, 1].
        interior: ``(L,)`` bool, the tokens off the border, see ``interior_tokens``.
        layers: of the features, see ``tokens_and_features``.
        masked_restoration: how tokens are hidden.
        owners: ``(B,)`` numbers of the normal images that these are, or are copies of; None for new images.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = AFiRe(encoder, 8, 16, 16, 1, 2)
        >>> images = DescribedImages(network, torch.rand(2, 1, 32, 32), torch.ones(4).bool())
        >>> images.teacher_features.shape, images.masked_error.shape
        (torch.Size([2, 4, 24]), torch.Size([2, 4, 256]))
    """

    def __init__(
        self,
        network: Any,
        image: torch.Tensor,
        interior: torch.Tensor,
        layers: str = "last",
        masked_restoration: MaskedRestorationInferer | None = None,
        owners: torch.Tensor | None = None,
    ) -> None:
        self.network = network
        self.image = image
        self.interior = interior
        self.layers = layers
        self.masked_restoration = masked_restoration or MaskedRestorationInferer()
        self.owners = owners

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
        features = at_least_float32(self.student_features)
        with without_autocast(features):
            # a product, since a graph wants no choice by a mask
            weights = self.interior.to(features) / self.interior.sum()
            return weights @ features

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
        restored = self.masked_restoration.restore_patches(self.student_tokens, self.network)
        return self._error_of(restored)

    def _error_of(self, restored: torch.Tensor) -> torch.Tensor:
        return at_least_float32(self.patches) - at_least_float32(restored)

    @computed_once
    def _student(self) -> tuple[torch.Tensor, torch.Tensor]:
        return tokens_and_features(self.network.encoder, self.image, self.layers)

    @computed_once
    def _teacher(self) -> tuple[torch.Tensor, torch.Tensor]:
        if not isinstance(self.network, AFiRe):
            return self._student
        return tokens_and_features(self.network.teacher_encoder, self.image, self.layers)
