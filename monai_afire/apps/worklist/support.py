# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Whether a detector's normal images say anything about an image: by its header, its picture and its features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.covariance import LedoitWolf

from monai_afire.apps.worklist.image_facts import ImageFacts
from monai_afire.detection.conformal import conformal_p_values, normals_needed
from monai_afire.networks.nets.lung_finder import SMALLEST_LUNGS

# what may be unlike in a picture, and the p-value up to which it is, chosen on validation images; pose and features
# come first: of what is no radiograph, view and age mean nothing
LOOKS = {
    "pose": (0.01, "turned, inverted, or no single chest (by the picture)"),
    "distance": (0.01, "unlike picture (by its features)"),
    "child": (0.03, "child (by the picture)"),
    "ap": (0.02, "other view (by the picture)"),
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
        """Take centers and directions from normal images ``(n, D)`` of ``number`` views ``(n,)``."""
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
    """Mean of each view; that of all images for a view without any."""
    of_views = (values[views == view] for view in range(number))
    return np.stack([(each if len(each) else values).mean(0) for each in of_views])


def is_unlike(value: float, normal: ArrayLike, shipped: ArrayLike, level: float) -> bool:
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
    own, others = (conformal_p_values([value], each)[0] for each in (normal, shipped))
    number, needed = len(np.asarray(normal)), normals_needed(level)
    if len(np.asarray(shipped)) < needed:
        return bool(number >= needed and own <= level)
    return bool(own <= max(level, 1 / (number + 1)) and others <= level)


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
