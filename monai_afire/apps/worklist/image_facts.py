# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What is known of the images of a batch besides their scores: header, lungs, pose, view, age and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydicom.dataset import Dataset

from monai_afire.detection.detector import AnomalyDetector
from monai_afire.networks.nets.lung_finder import LungFinder
from monai_afire.networks.nets.pose_classifier import PoseClassifier
from monai_afire.networks.nets.view_classifier import ViewClassifier
from monai_afire.transforms.radiograph_description import JUDGED_PICTURE
from monai_afire.transforms.radiograph_header import (
    age_in_years,
    frontal_view,
    other_than_frontal_chest,
)

CHILD_AGE = 16.0  # years, below which a patient is a child
_LUNG = 0.5  # probability


@dataclass(frozen=True)
class ImageFacts:
    """
    What is known of an image besides its score.

    Attributes:
        age: of the patient in years by the header, None for unknown.
        view: "PA" or "AP" by the header, "" for unknown.
        other_view: what the header says against a frontal radiograph of the chest.
        lungs: share of the picture that is lung, NaN where lungs are not sought.
        looks: numbers of the picture: logits "ap" and "child" of :class:`monai_afire.networks.ViewClassifier`, and
            "pose" of :meth:`monai_afire.networks.PoseClassifier.objection`.
        features: ``(D,)`` of the encoder, None for none.
    """

    age: float | None = None
    view: str = ""
    other_view: str = ""
    lungs: float = np.nan
    looks: Mapping[str, float] = field(default_factory=dict)
    features: NDArray[np.float32] | None = None

    @property
    def is_frontal(self) -> bool:
        """Whether it is a gray picture, of which view, lungs and age are asked."""
        return bool(self.looks)

    @property
    def is_child(self) -> bool:
        """By the header, else by the picture."""
        if self.age is not None:
            return self.age < CHILD_AGE
        return self.looks.get("child", -1.0) > 0

    @property
    def wrong_pose(self) -> float:
        """How clearly the picture is turned, inverted, or no single chest; 0 for a chest."""
        return max(self.looks.get("pose", 0.0), 0.0)

    @property
    def probability_of_ap(self) -> float:
        """1 or 0 by the header, else the probability by the picture; 0 for what is no frontal picture."""
        if self.view or not self.is_frontal:
            return float(self.view == "AP")
        return float(1 / (1 + np.exp(-self.looks["ap"])))

    @property
    def seen_view(self) -> str:
        """Name of the view and where it comes from, such as "AP" or "AP (from pixels)"."""
        if self.view or not self.is_frontal:
            return self.view
        return f"{'AP' if self.looks['ap'] > 0 else 'PA'} (from pixels)"


class ImageFactsReader:
    """Facts of the images of a batch; lungs, pose, view and age by the picture only of gray pictures."""

    def __init__(self, detector: AnomalyDetector) -> None:
        self.detector = detector

    @torch.no_grad()
    def lungs(self, images: torch.Tensor) -> NDArray[np.float32] | None:
        """Probability of lung ``(B, h, w)`` in gray pictures ``(B, 1, H, W)``; None for colors."""
        if images.shape[1] != 1:
            return None
        return self._finder(images.to(self._device))[:, 0].cpu().numpy()

    @torch.no_grad()
    def read(
        self,
        batch: Mapping[str, Any],
        tokens: torch.Tensor,
        headers: Sequence[Dataset],
        lungs: NDArray[np.float32] | None,
    ) -> list[ImageFacts]:
        """
        Facts of each image.

        Args:
            batch: with "judged_picture" ``(B, 1, h, w)`` of 0 to 255, as
                :class:`monai_afire.transforms.DescribeRadiographd` makes it; without one, "picture" takes its place.
            tokens: ``(B, L, D)``, the detector's output.
            headers: of their files, see :func:`monai_afire.transforms.radiograph_header.header_of`.
            lungs: of :meth:`lungs`; None leaves view and age by the picture out.
        """
        interior = self.detector.interior.to(tokens.device)
        features = tokens[:, interior].float().mean(1).cpu().numpy()
        looks: list[dict[str, float]] = [{} for _ in headers]
        shares = [np.nan] * len(headers)
        if lungs is not None:
            looks = self._looks(batch[JUDGED_PICTURE if JUDGED_PICTURE in batch else "picture"])
            shares = (lungs >= _LUNG).mean((1, 2)).tolist()
        return [
            ImageFacts(
                age=age_in_years(header),
                view=frontal_view(header),
                other_view=other_than_frontal_chest(header),
                lungs=share,
                looks=look,
                features=feature,
            )
            for header, share, look, feature in zip(headers, shares, looks, features, strict=True)
        ]

    def _looks(self, pictures: torch.Tensor) -> list[dict[str, float]]:
        """Logits of view, age and pose."""
        images = pictures.to(self._device).float() / 255
        found = self._classifier(images)
        logits = {name: value.double().logit(eps=1e-6).tolist() for name, value in found.items()}
        logits["pose"] = self._pose_classifier.objection(images).double().tolist()
        return [dict(zip(logits, row, strict=True)) for row in zip(*logits.values(), strict=True)]

    @property
    def _device(self) -> torch.device:
        return self.detector.thresholds.device

    @cached_property
    def _finder(self) -> LungFinder:
        return LungFinder.released().to(self._device)

    @cached_property
    def _classifier(self) -> ViewClassifier:
        return ViewClassifier.released().to(self._device)

    @cached_property
    def _pose_classifier(self) -> PoseClassifier:
        return PoseClassifier.released().to(self._device)
