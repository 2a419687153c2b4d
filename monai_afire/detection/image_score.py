# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a score of abnormality is: its name, what it needs, how it is fitted to normal images, how it measures."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from monai_afire.detection.described_images import DescribedImages
from monai_afire.detection.normal_statistics import NormalStatistics
from monai_afire.detection.score_equations import aggregate_tokens
from monai_afire.utils.computed_once import computed_once
from monai_afire.utils.precision import without_autocast


@dataclass(frozen=True)
class ScoreSettings:
    """
    What the scores of a detector are built for.

    Args:
        network: a pre-trained AFiRe network, or a ``FrozenEncoder``.
        width: number of features of a token.
        memory_size: normal images that neighbors are searched in.
        similarity: of tokens and prototypes, see :func:`monai_afire.detection.prototype_distance`.
    """

    network: Any
    width: int
    memory_size: int
    similarity: str

    @property
    def num_tokens(self) -> int:
        """L, of one image."""
        return math.prod(self.network.encoder.grid_size)


class MeasuredImages:
    """
    Token maps of a batch of images, by name, each measured once and only if asked for.

    Args:
        measure: the map ``(B, L)`` of a name.
        scales: of each name the mean and the spread of normal images' maps, ``(L,)`` each.
        fusion: names of the maps that are fused to the heat map.
        aggregation: of a map to a score, see ``aggregate_tokens``.
        k_fraction: share of the tokens for "top_k".
        interior: ``(L,)`` bool, the tokens off the border.
        described: the images themselves; None where the maps alone have been kept.

    Example:
        >>> raw = {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([[5.0, 5.0]])}
        >>> scales = {"a": (torch.ones(2), torch.ones(2)), "b": (torch.ones(2), torch.full((2,), 2.0))}
        >>> images = MeasuredImages(raw.get, scales, ["a", "b"], "mean", 0.5, torch.ones(2).bool())
        >>> images.standard("b"), images.fused_map, images.aggregated(images.fused_map)
        (tensor([[2., 2.]]), tensor([[1.0000, 1.5000]]), tensor([1.2500]))
    """

    def __init__(
        self,
        measure: Callable[[str], torch.Tensor],
        scales: Mapping[str, tuple[torch.Tensor, torch.Tensor]],
        fusion: Sequence[str],
        aggregation: str,
        k_fraction: float,
        interior: torch.Tensor,
        described: DescribedImages | None = None,
    ) -> None:
        self.interior = interior
        self._measure = measure
        self._scales = scales
        self._fusion = fusion
        self._aggregation = aggregation
        self._k_fraction = k_fraction
        self._described = described
        self._raw: dict[str, torch.Tensor] = {}
        self._standard: dict[str, torch.Tensor] = {}

    @property
    def described(self) -> DescribedImages:
        """
        The images themselves.

        Raises:
            RuntimeError: for the normal images of a fit, of which the maps alone have been kept.
        """
        if self._described is None:
            raise RuntimeError(
                "of the normal images only the maps are kept: a score of something else needs measure_normal"
            )
        return self._described

    def raw(self, name: str) -> torch.Tensor:
        """A map as measured, ``(B, L)``."""
        if name not in self._raw:
            self._raw[name] = self._measure(name)
        return self._raw[name]

    def standard(self, name: str) -> torch.Tensor:
        """A map in standard deviations of normal images at the same position, ``(B, L)``."""
        if name not in self._standard:
            mean, spread = self._scales[name]
            self._standard[name] = (self.raw(name) - mean) / spread
        return self._standard[name]

    @computed_once
    def fused_map(self) -> torch.Tensor:
        """Mean of the ``fusion`` maps in standard deviations, ``(B, L)``: the heat map."""
        return torch.stack([self.standard(name) for name in self._fusion], 1).mean(1)

    def aggregated(self, token_map: torch.Tensor, how: str | None = None) -> torch.Tensor:
        """Aggregate a map to one score per image ``(B,)``, as the detector is set, or in another way."""
        how = how or self._aggregation
        return aggregate_tokens(token_map, how, self._k_fraction, self.interior)


class ImageScore(ABC):
    """
    A score of images: the larger, the more abnormal.

    A detector builds each of its ``score_kinds`` once, with its settings. What of a score depends on normal images is
    in ``statistics``, which the detector keeps in its state dict under ``kept_as``, or ``name`` if that is empty.

    Args:
        settings: of the detector.

    Example:
        >>> from monai_afire.detection import SCORES, AnomalyDetector
        >>> from monai_afire.networks import ViTEncoder
        >>> class Hottest(ImageScore):
        ...     name = "hottest"
        ...     def measure(self, images):
        ...         return images.fused_map.amax(1)
        >>> class HottestDetector(AnomalyDetector):
        ...     score_kinds = (*SCORES, Hottest)
        >>> encoder = ViTEncoder(img_size=32, hidden_size=24, num_layers=1, num_heads=2)
        >>> HottestDetector(encoder, score_fusion=["hottest"]).score_names[-2:]
        ('hottest', 'fused')
    """

    name: ClassVar[str]
    kept_as: ClassVar[str] = ""
    # needs decoder or prototypes, which an encoder alone has not
    pretrained: ClassVar[bool] = False
    statistics: NormalStatistics | None = None

    def __init__(self, settings: ScoreSettings) -> None:
        self.settings = settings

    def reset(self) -> None:
        """Forget the normal images of :meth:`update`."""
        if self.statistics is not None:
            self.statistics.reset()

    def update(self, images: DescribedImages) -> None:  # noqa: B027  most scores have no statistics
        """Add a batch of normal images to the statistics; a score without any needs none."""

    def finalize(self, owners: torch.Tensor) -> None:
        """Fit the statistics to the N images so far; images of one number among the owners ``(N,)`` are copies."""
        if self.statistics is not None:
            self.statistics.finalize()

    @abstractmethod
    def measure(self, images: MeasuredImages) -> torch.Tensor:
        """Scores ``(B,)`` of images."""

    def measure_normal(self, images: MeasuredImages) -> torch.Tensor:
        """Scores ``(N,)`` of the normal images of the fit, which say what is usual; they follow from maps alone."""
        return self.measure(images)


class TokenMap(ImageScore):
    """
    A score with a map over the tokens, of which the score is an aggregate.

    Args:
        settings: of the detector.

    Example:
        >>> class Brightness(TokenMap):
        ...     name = "brightness"
        ...     def look(self, images):
        ...         return images.patches
        ...     def measure_tokens(self, seen, owners=None):
        ...         return seen.mean(-1)
    """

    # is fused to the heat map if a detector's user does not choose
    in_heat_map: ClassVar[bool] = False

    @abstractmethod
    def look(self, images: DescribedImages) -> torch.Tensor:
        """What of the network's outputs it measures, ``(B, L, *)``."""

    @abstractmethod
    def measure_tokens(
        self, seen: torch.Tensor, owners: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The map ``(B, L)`` of it; images with owners may be among those that the statistics are of."""

    def map_of(self, images: DescribedImages) -> torch.Tensor:
        """The map of images as measured, ``(B, L)``."""
        seen = self.look(images)
        # the distances are differences of like numbers: half precision would leave little of them
        with torch.no_grad(), without_autocast(seen):
            # a sum's rounding depends on the order in memory, which is to be the same for all maps
            return self.measure_tokens(seen, images.owners).contiguous()

    def measure(self, images: MeasuredImages) -> torch.Tensor:
        """Aggregate of the map in standard deviations of normal images."""
        return images.aggregated(images.standard(self.name))
