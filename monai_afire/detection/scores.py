# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The scores of abnormality that a detector has, as two tables: maps over the tokens, and scores of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from monai_afire.detection.network_outputs import NetworkOutputs
from monai_afire.detection.score_equations import (
    interior_mean,
    log_mean_exp,
    prototype_distance,
    squared_distances,
    top_mean,
)
from monai_afire.utils.computed_once import computed_once
from monai_afire.utils.precision import at_least_float32, without_autocast


@dataclass(frozen=True)
class TokenMap:
    """
    One measurement of each token: the larger, the more abnormal.

    Args:
        output: what of the network's outputs is measured, an attribute of ``NetworkOutputs``, ``(B, L, *)``.
        measure: gives the map ``(B, L)`` of a detector and this output.
        statistics: name of the detector's statistics that measure in place of ``measure``; they are fitted to the
            output of normal images.
        pretrained: whether it needs decoder or prototypes, which an encoder alone has not.
        in_heat_map: whether it is fused to the heat map if a detector's user does not choose.

    Example:
        >>> from monai_afire.detection import TOKEN_MAPS, AnomalyDetector
        >>> from monai_afire.networks import ViTEncoder
        >>> def brightness(detector, patches):
        ...     return patches.mean(-1)
        >>> class OwnDetector(AnomalyDetector):
        ...     token_maps = {**TOKEN_MAPS, "brightness": TokenMap("patches", brightness)}
        >>> encoder = ViTEncoder(img_size=32, hidden_size=24, num_layers=1, num_heads=2)
        >>> OwnDetector(encoder, fusion=["brightness"]).map_names
        ('token_density', 'token_neighbors', 'brightness')
    """

    output: str
    measure: Callable[[Any, torch.Tensor], torch.Tensor] | None = None
    statistics: str = ""
    pretrained: bool = False
    in_heat_map: bool = False

    def __call__(self, detector: Any, outputs: NetworkOutputs) -> torch.Tensor:
        """The map of images as measured, ``(B, L)``."""
        seen = getattr(outputs, self.output)
        # the distances are differences of like numbers: half precision would leave little of them
        with torch.no_grad(), without_autocast(seen):
            if self.measure is None:
                found = detector.get_submodule(self.statistics)(seen, outputs.numbers)
            else:
                found = self.measure(detector, seen)
            # a sum's rounding depends on the order in memory, which is to be the same for all maps
            return found.contiguous()


def _squared_errors(detector: Any, errors: torch.Tensor) -> torch.Tensor:
    """Squared length of the error of each restored patch."""
    return squared_distances(errors)


def _prototype_distances(detector: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each token to the prototype of its position."""
    network = detector.network
    probabilities = network.token_probabilities(at_least_float32(tokens))
    similarity = "cosine" if network.contrast_space == "features" else "paper"
    return prototype_distance(probabilities, network.bank.prototypes, similarity)


TOKEN_MAPS: Mapping[str, TokenMap] = {
    "restoration": TokenMap("error", _squared_errors, pretrained=True),
    "masked_restoration": TokenMap("masked_error", _squared_errors, pretrained=True),
    "prototype_distance": TokenMap(
        "student_tokens", _prototype_distances, pretrained=True, in_heat_map=True
    ),
    "token_density": TokenMap("teacher_features", statistics="density"),
    "token_neighbors": TokenMap("student_features", statistics="token_memory", in_heat_map=True),
    # what the decoder cannot know, such as the ribs' exact course, is in normal images' errors too
    "residual_neighbors": TokenMap(
        "coarse_masked_error", statistics="residual_memory", pretrained=True, in_heat_map=True
    ),
}


class MeasuredImages:
    """
    Maps of a batch of images, each measured once and only if a score asks for it.

    Args:
        detector: whose scales and fusion hold.
        measure: gives the map ``(B, L)`` of a name, and ``(B,)`` of "token_mean_density".
    """

    def __init__(self, detector: Any, measure: Callable[[str], torch.Tensor]) -> None:
        self.detector = detector
        self._measure = measure
        self._raw: dict[str, torch.Tensor] = {}

    def raw(self, name: str) -> torch.Tensor:
        """What was measured."""
        if name not in self._raw:
            self._raw[name] = self._measure(name)
        return self._raw[name]

    def standard(self, name: str) -> torch.Tensor:
        """A map in standard deviations of normal images at the same position, ``(B, L)``."""
        number = self.detector.map_names.index(name)
        return (self.raw(name) - self.detector.map_mean[number]) / self.detector.map_std[number]

    @computed_once
    def fused_map(self) -> torch.Tensor:
        """Mean of the ``fusion`` maps in standard deviations, ``(B, L)``: the heat map."""
        return torch.stack([self.standard(name) for name in self.detector.fusion], 1).mean(1)

    def score(self, name: str) -> torch.Tensor:
        """The score ``(B,)`` of a name: of the table, or else the mean of its map off the border."""
        if name in IMAGE_SCORES:
            return IMAGE_SCORES[name](self)
        return interior_mean(self.standard(name), self.detector.interior)


def _eq_51(images: MeasuredImages) -> torch.Tensor:
    """Eq. 51 of the restoration's map as measured, :func:`monai_afire.detection.anomaly_score`."""
    return log_mean_exp(images.raw("restoration"))


def _mean_squared_error(images: MeasuredImages) -> torch.Tensor:
    """Squared error of the restoration, the mean over the pixels in place of Eq. 51."""
    encoder = images.detector.network.encoder
    pixels = encoder.in_channels * math.prod(encoder.patch_size)
    return images.raw("restoration").mean(-1) / pixels


def _mean_token_density(images: MeasuredImages) -> torch.Tensor:
    """Mahalanobis distance of the mean token off the border, for disease that is spread over the lungs."""
    return images.raw("token_mean_density")


def _focal(images: MeasuredImages) -> torch.Tensor:
    """The strongest ``k_fraction`` of the heat map, for a single small lesion."""
    return top_mean(images.fused_map, images.detector.k_fraction)


# the score of a map that is not here is its mean off the border
IMAGE_SCORES: Mapping[str, Callable[[MeasuredImages], torch.Tensor]] = {
    "restoration": _eq_51,
    "restoration_mean": _mean_squared_error,
    "token_mean_density": _mean_token_density,
    "focal": _focal,
}
FUSED = "fused"  # mean of some of them, each in standard deviations of normal images
