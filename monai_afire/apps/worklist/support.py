# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Whether a detector's normal images say anything about an image: facts of its header and picture, and its features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydicom.dataset import Dataset
from sklearn.covariance import LedoitWolf

from monai_afire.apps.intake.dicom_header import age_in_years
from monai_afire.apps.intake.header_view import frontal_view, other_than_frontal_chest
from monai_afire.detection.conformal import conformal_p_values, normals_needed
from monai_afire.networks.nets.lung_finder import SMALLEST_LUNGS

# p-values up to which a picture is unlike the normal ones, chosen on validation images
LEVELS = {"pose": 0.01, "child": 0.03, "ap": 0.02, "distance": 0.01}
CHILD_AGE = 16.0  # years, below which a patient is a child
LOOKS = {
    "pose": "turned, inverted, or no single chest (by the picture)",
    "child": "child (by the picture)",
    "ap": "other view (by the picture)",
    "distance": "unlike picture (by its features)",
}


@dataclass(frozen=True)
class ImageFacts:
    """
    What is known of an image besides its score.

    Args:
        age: of the patient in years by the header, None for unknown.
        view: "PA" or "AP" by the header, "" for unknown.
        other_view: what the header says against a frontal radiograph of the chest.
        lungs: share of the picture that is lung, NaN where lungs are not sought.
        looks: numbers of the picture: logits "ap" and "child" of :class:`monai_afire.apps.intake.ViewClassifier`, and
            "pose" of :meth:`monai_afire.apps.intake.PoseClassifier.objection`.
        features: ``(D,)`` of the encoder, None for none.

    Example:
        >>> ImageFacts(age=7.0).is_child, ImageFacts(looks={"ap": 2.0, "child": -3.0}).is_child
        (True, False)
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


def facts_of_header(header: Dataset) -> dict[str, Any]:
    """
    Age and views that a header states, as :class:`ImageFacts` takes them.

    Args:
        header: with those of ``AGE_ELEMENTS`` and ``VIEW_ELEMENTS`` that the file has.

    Example:
        >>> header = Dataset()
        >>> header.PatientAge, header.ViewPosition = "007Y", "AP"
        >>> facts_of_header(header)
        {'age': 7.0, 'view': 'AP', 'other_view': ''}
    """
    return {
        "age": age_in_years(header),
        "view": frontal_view(header),
        "other_view": other_than_frontal_chest(header),
    }


@dataclass
class FeatureSpace:
    r"""
    Distance of features from the center of their view, in directions that normal images vary in.

    .. math:: d(x) = \lVert W^\top (x - \mu_v) \rVert

    With W from :meth:`fit` it is the Mahalanobis distance of a covariance that is shrunk (Ledoit and Wolf 2004).

    Args:
        centers: ``(V, D)``, one for each view.
        whitening: ``(D, K)``.

    Example:
        >>> space = FeatureSpace(np.zeros((1, 2)), np.diag([1.0, 0.5]))
        >>> space.distances([[3.0, 8.0]], [0]).tolist()
        [5.0]
    """

    centers: NDArray[np.float64]
    whitening: NDArray[np.float64]

    @classmethod
    def fit(cls, features: ArrayLike, views: ArrayLike, number: int) -> FeatureSpace:
        """
        Take centers and directions from normal images.

        Args:
            features: ``(n, D)``.
            views: ``(n,)`` whole numbers below ``number``; a view without images has the center of all.
            number: of views.
        """
        values, views = np.asarray(features, dtype=float), np.asarray(views)
        centers = _centers(values, views, number)
        covariance = LedoitWolf(assume_centered=True).fit(values - centers[views]).covariance_
        return cls(centers, np.linalg.inv(np.linalg.cholesky(covariance)).T)

    def moved(self, features: ArrayLike, views: ArrayLike) -> FeatureSpace:
        """The same directions around the centers of other normal images."""
        centers = _centers(np.asarray(features, float), np.asarray(views), len(self.centers))
        return FeatureSpace(centers, self.whitening)

    def distances(self, features: ArrayLike, views: ArrayLike) -> NDArray[np.float64]:
        """Distances ``(M,)`` of features ``(M, D)`` of views ``(M,)``."""
        away = np.asarray(features, dtype=float) - self.centers[np.asarray(views)]
        return np.linalg.norm(away @ self.whitening, axis=1)

    def held_out_distances(self, features: ArrayLike, views: ArrayLike) -> NDArray[np.float64]:
        """Distances of the images that the centers are means of, each from the mean of the others."""
        views = np.asarray(views)
        counts = np.bincount(views, minlength=len(self.centers))[views]
        # x - (sum - x) / (n - 1) = n / (n - 1) (x - mean)
        return self.distances(features, views) * counts / np.maximum(counts - 1, 1)


def _centers(values: NDArray, views: NDArray, number: int) -> NDArray[np.float64]:
    means = [
        values[views == view].mean(0) if (views == view).any() else values.mean(0)
        for view in range(number)
    ]
    return np.stack(means)


def is_unlike(
    value: float,
    normal: Sequence[float] | NDArray[np.float64],
    shipped: Sequence[float] | NDArray[np.float64],
    level: float,
) -> bool:
    """
    Whether a number is larger than that of nearly all normal images, by its conformal p-value.

    It must be so among the normal images of the hospital and among those that came with the detector. Of fewer own
    images than the level needs, it must exceed all.

    Args:
        value: of the image, the larger the less like them.
        normal: ``(n,)`` of normal images.
        shipped: ``(m,)`` of those that came with the detector; may be empty.
        level: of the p-value.

    Example:
        >>> is_unlike(5.0, range(5), [], 0.01), is_unlike(500.0, range(200), [], 0.01)
        (False, True)
        >>> is_unlike(5.0, range(5), range(200), 0.01), is_unlike(500.0, range(5), range(200), 0.01)
        (False, True)
    """
    enough = normals_needed(level)
    own, others = (conformal_p_values([value], each)[0] for each in (normal, shipped))
    if len(normal) < enough and len(shipped) < enough:
        return False
    if len(shipped) < enough:
        return bool(own <= level)
    return bool(own <= max(level, 1 / (len(normal) + 1))) and bool(others <= level)


def header_objection(facts: ImageFacts, children: bool, adults: bool) -> str:
    """
    What header and lungs say against an image, "" for nothing.

    Args:
        facts: of the image.
        children: whether children are among the normal images.
        adults: whether adults are.

    Example:
        >>> header_objection(ImageFacts(age=7.0, looks={"ap": 0.0, "child": 0.0}), children=False, adults=True)
        'child (7 years)'
    """
    if not facts.is_frontal:
        return ""
    if facts.other_view:
        return f"other view ({facts.other_view})"
    if facts.age is not None and facts.is_child and not children:
        return f"child ({facts.age:.0f} years)"
    if facts.age is not None and not facts.is_child and not adults:
        return f"adult ({facts.age:.0f} years)"
    return "lungs not found" if facts.lungs < SMALLEST_LUNGS else ""


def mean_features(tokens: torch.Tensor, interior: torch.Tensor) -> NDArray[np.float32]:
    """
    Mean token off the border.

    Args:
        tokens: ``(B, L, D)``.
        interior: ``(L,)`` bool.

    Returns:
        ``(B, D)``.

    Example:
        >>> mean_features(torch.ones(2, 3, 4), torch.tensor([True, False, True])).shape
        (2, 4)
    """
    return tokens[:, interior.to(tokens.device)].float().mean(1).cpu().numpy()
