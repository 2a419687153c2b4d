# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What is known of the images of a batch besides their scores: header, lungs, pose, view, age and features."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from monai_afire.apps.intake.dicom_header import AGE_ELEMENTS, header_of
from monai_afire.apps.intake.pose_classifier import PoseClassifier
from monai_afire.apps.intake.view_classifier import ViewClassifier
from monai_afire.apps.worklist.support import ImageFacts, facts_of_header, mean_features
from monai_afire.detection.detector import AnomalyDetector
from monai_afire.networks.nets.lung_finder import LungFinder

_LUNG = 0.5  # probability


class ImageFactsReader:
    """
    Facts of the images of a batch; lungs, pose, view and age by the picture only of gray pictures.

    Args:
        detector: whose features they are.
    """

    def __init__(self, detector: AnomalyDetector) -> None:
        self.detector = detector

    @torch.no_grad()
    def lungs(self, images: torch.Tensor) -> NDArray[np.float32] | None:
        """
        Probability of lung ``(B, h, w)`` in gray pictures; None for colors.

        Args:
            images: ``(B, C, *S)``.
        """
        if not _are_gray_pictures(images):
            return None
        return self._finder(images.to(self._device))[:, 0].cpu().numpy()

    @torch.no_grad()
    def read(
        self,
        pictures: torch.Tensor,
        tokens: torch.Tensor,
        sources: Sequence[str],
        lungs: NDArray[np.float32] | None,
    ) -> list[ImageFacts]:
        """
        Facts of each image.

        Args:
            pictures: ``(B, 1, h, w)`` of 0 to 255, as :class:`monai_afire.apps.intake.DescribeRadiographd` makes them.
            tokens: ``(B, L, D)``, its output.
            sources: their files, for the headers.
            lungs: of :meth:`lungs`; None leaves view and age by the picture out.
        """
        features = mean_features(tokens, self.detector.interior)
        looks = [{} for _ in sources] if lungs is None else self._looks(pictures)
        shares = [np.nan] * len(sources) if lungs is None else (lungs >= _LUNG).mean((1, 2))
        rows = zip(sources, shares, looks, features, strict=True)
        return [
            ImageFacts(
                **facts_of_header(header_of(source, AGE_ELEMENTS)),
                lungs=float(share),
                looks=look,
                features=feature,
            )
            for source, share, look, feature in rows
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


def _are_gray_pictures(images: torch.Tensor) -> bool:
    return images.ndim == 4 and images.shape[1] == 1
