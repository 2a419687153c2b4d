# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The scores of abnormality that a detector has: one class each, in the order of its outputs."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from monai_afire.detection.described_images import DescribedImages
from monai_afire.detection.image_score import ImageScore, MeasuredImages, ScoreSettings, TokenMap
from monai_afire.detection.normal_statistics import ImageDensity, NormalMemory, TokenDensity
from monai_afire.detection.score_equations import (
    log_mean_exp,
    prototype_distance,
    squared_distances,
)
from monai_afire.utils.precision import at_least_float32

_TOKEN_DIRECTIONS = 32
_RESIDUAL_CELLS = 4  # along each axis of a patch


class _ErrorMap(TokenMap):
    """Base of the squared errors of restored patches."""

    pretrained = True

    def measure_tokens(
        self, seen: torch.Tensor, owners: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Squared lengths of the errors."""
        return squared_distances(seen)


class RestorationMap(_ErrorMap):
    """Squared error of each restored patch; the image score is Eq. 51, :func:`monai_afire.detection.anomaly_score`."""

    name = "restoration"

    def look(self, images: DescribedImages) -> torch.Tensor:
        """Errors of the patches, ``(B, L, P)``."""
        return images.error

    def measure(self, images: MeasuredImages) -> torch.Tensor:
        """Eq. 51, of the map as measured."""
        return log_mean_exp(images.raw(self.name))


class MaskedRestorationMap(_ErrorMap):
    """Squared error of the restoration of each token from the others."""

    name = "masked_restoration"

    def look(self, images: DescribedImages) -> torch.Tensor:
        """Errors of the patches, each restored while it is hidden, ``(B, L, P)``."""
        return images.masked_error


class PrototypeDistanceMap(TokenMap):
    """Cross-entropy of each token to its prototype, :func:`monai_afire.detection.prototype_distance`."""

    name = "prototype_distance"
    pretrained = True
    in_heat_map = True

    def look(self, images: DescribedImages) -> torch.Tensor:
        """The student's tokens, ``(B, L, D)``."""
        return images.student_tokens

    def measure_tokens(
        self, seen: torch.Tensor, owners: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Distances of their probabilities to the prototypes."""
        network = self.settings.network
        probabilities = network.token_probabilities(at_least_float32(seen))
        return prototype_distance(probabilities, network.bank.prototypes, self.settings.similarity)


class TokenDensityMap(TokenMap):
    """Mahalanobis distance of each of the teacher's tokens to those of normal images at its position."""

    name = "token_density"
    kept_as = "density"
    statistics: TokenDensity

    def __init__(self, settings: ScoreSettings) -> None:
        super().__init__(settings)
        self.statistics = TokenDensity(settings.num_tokens, settings.width)

    def look(self, images: DescribedImages) -> torch.Tensor:
        """The teacher's features, ``(B, L, F)``."""
        return images.teacher_features

    def update(self, images: DescribedImages) -> None:
        """Add a batch of normal images to the Gaussian."""
        self.statistics.update(self.look(images))

    def finalize(self, owners: torch.Tensor) -> None:
        """Fit the Gaussian."""
        self.statistics.finalize()

    def measure_tokens(
        self, seen: torch.Tensor, owners: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Mahalanobis distances."""
        return self.statistics(seen)


class _NeighborsMap(TokenMap):
    """Base of the distances to what is nearest among normal images at the same position."""

    in_heat_map = True
    statistics: NormalMemory

    def update(self, images: DescribedImages) -> None:
        """Add a batch of normal images to the memory."""
        self.statistics.update(self.look(images), images.owners)

    def measure_tokens(
        self, seen: torch.Tensor, owners: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Distances to the neighbors that are not of the same owner."""
        return self.statistics(seen, owners)


class TokenNeighborsMap(_NeighborsMap):
    """Distance of each token to the nearest ones of normal images at its position."""

    name = "token_neighbors"
    kept_as = "token_memory"

    def __init__(self, settings: ScoreSettings) -> None:
        super().__init__(settings)
        directions = min(_TOKEN_DIRECTIONS, settings.width)
        self.statistics = NormalMemory(
            settings.num_tokens, settings.width, directions, settings.memory_size
        )

    def look(self, images: DescribedImages) -> torch.Tensor:
        """The student's features, ``(B, L, F)``."""
        return images.student_features


class ResidualNeighborsMap(_NeighborsMap):
    """
    Distance of the coarse error of the masked restoration, with its sign, to the nearest ones of normal images.

    What the decoder cannot know, such as the ribs' exact course, is in normal images' errors too, a lesion is not.
    """

    name = "residual_neighbors"
    kept_as = "residual_memory"
    pretrained = True

    def __init__(self, settings: ScoreSettings) -> None:
        super().__init__(settings)
        cells = _RESIDUAL_CELLS ** len(settings.network.encoder.grid_size)
        self.statistics = NormalMemory(settings.num_tokens, cells, cells, settings.memory_size)

    def look(self, images: DescribedImages) -> torch.Tensor:
        """Signed errors of the patches, averaged over a few cells along each axis, ``(B, L, cells)``."""
        encoder = self.settings.network.encoder
        pixels = images.masked_error.unflatten(-1, (encoder.in_channels, *encoder.patch_size))
        pool = {2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[len(encoder.patch_size)]
        return pool(pixels.mean(2), _RESIDUAL_CELLS).flatten(2)


class RestorationMean(ImageScore):
    """Squared error of the restoration, the mean over the pixels in place of Eq. 51."""

    name = "restoration_mean"
    pretrained = True

    def measure(self, images: MeasuredImages) -> torch.Tensor:
        """Mean of the restoration's map, per pixel."""
        encoder = self.settings.network.encoder
        pixels = encoder.in_channels * math.prod(encoder.patch_size)
        return images.raw(RestorationMap.name).mean(-1) / pixels


class TokenMeanDensity(ImageScore):
    """
    Mahalanobis distance of the mean token off the border to those of normal images.

    For disease that is spread over the lungs. Distances of the normal images themselves are to a Gaussian of others.
    """

    name = "token_mean_density"
    kept_as = "image_density"
    statistics: ImageDensity

    def __init__(self, settings: ScoreSettings) -> None:
        super().__init__(settings)
        self.statistics = ImageDensity(settings.width)

    def update(self, images: DescribedImages) -> None:
        """Add a batch of normal images to the Gaussian."""
        self.statistics.update(images.mean_feature)

    def finalize(self, owners: torch.Tensor) -> None:
        """Fit the Gaussian, after the distances to those of the halves."""
        self.held_out = self.statistics.held_out_distances(owners)
        self.statistics.finalize()

    def measure(self, images: MeasuredImages) -> torch.Tensor:
        """Mahalanobis distances."""
        return self.statistics(images.described.mean_feature)

    def measure_normal(self, images: MeasuredImages) -> torch.Tensor:
        """Distances to the Gaussian of the half that an image is not in."""
        return self.held_out


class Focal(ImageScore):
    """The strongest ``k_fraction`` of the heat map, for a single small lesion."""

    name = "focal"

    def measure(self, images: MeasuredImages) -> torch.Tensor:
        """Mean of the largest values."""
        return images.aggregated(images.fused_map, "top_k")


SCORES: tuple[type[ImageScore], ...] = (
    RestorationMap,
    MaskedRestorationMap,
    PrototypeDistanceMap,
    TokenDensityMap,
    TokenNeighborsMap,
    ResidualNeighborsMap,
    RestorationMean,
    TokenMeanDensity,
    Focal,
)
FUSED = "fused"  # mean of some of them, each in standard deviations of normal images
SCORE_NAMES = (*(score.name for score in SCORES), FUSED)
