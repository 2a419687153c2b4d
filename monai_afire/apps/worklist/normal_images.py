# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Normal images that scores are compared with, by view: p-value, threshold, and who is not judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.covariance import LedoitWolf

from monai_afire.apps.worklist.image_facts import ImageFacts
from monai_afire.detection.conformal import conformal_p_values, normals_needed, weighted_p_values
from monai_afire.detection.detector import AnomalyDetector
from monai_afire.networks.nets.lung_finder import SMALLEST_LUNGS
from monai_afire.utils.text import counted

__all__ = ["DetectorNormals", "FeatureSpace", "Judgment", "NormalImages", "normals_from"]

_FEW = 200  # normal images; fewer cannot make a p-value below 0.005
# what may be unlike in a picture, and the p-value up to which it is, chosen on validation images; pose and features
# come first: of what is no radiograph, view and age mean nothing
_LOOKS = {
    "pose": (0.01, "turned, inverted, or no single chest (by the picture)"),
    "distance": (0.01, "unlike picture (by its features)"),
    "child": (0.03, "child (by the picture)"),
    "ap": (0.02, "other view (by the picture)"),
}


@dataclass(frozen=True)
class Judgment:
    """
    What the normal images say about an image.

    Args:
        p_value: share of them that score as high, NaN for none.
        threshold: least score of an abnormal image, NaN for none.
        percentile: share of them that score lower in per cent, NaN for none.
        above: whether the image is above the threshold, None where nothing is decided.
        view: of the image, and where it comes from.
        not_judged: why nothing is said, "" where it is.
    """

    p_value: float = np.nan
    threshold: float = np.nan
    percentile: float = np.nan
    above: bool | None = None
    view: str = ""
    not_judged: str = ""


@dataclass(frozen=True)
class DetectorNormals:
    """The normal validation images of a detector: every image is judged, unless there are too few for the level."""

    detector: AnomalyDetector
    level: float = 0.05

    @property
    def number(self) -> int:
        """Of normal images."""
        return len(self.detector.calibration())

    @property
    def shortage(self) -> str:
        """How many normal images there are and how many are needed; "" for enough."""
        needed = normals_needed(self.level)
        if self.number >= needed:
            return ""
        return (
            f"the detector has {counted(self.number, 'normal validation image')}, and a threshold needs {needed}: fit "
            f"it to more images, or compare with {needed} or more normal images of your own (--calibrate FOLDER)"
        )

    def judge(self, score: float, facts: ImageFacts) -> Judgment:
        """Compare a score; see :meth:`NormalImages.judge`."""
        if self.shortage:
            return Judgment(view=facts.seen_view)
        threshold = float(self.detector.thresholds[-1])
        return Judgment(
            float(self.detector.p_values([score])[0]),
            threshold,
            float(self.detector.normal_percentiles([score])[0]),
            score >= threshold if np.isfinite(threshold) else None,
            facts.seen_view,
        )

    def __str__(self) -> str:
        found = counted(self.number, "normal validation image")
        return f"{found} of the detector{_if_few(self.number)}"


@dataclass
class FeatureSpace:
    r"""
    Distance of features from the center of their view, in directions that normal images vary in.

    .. math:: d(x) = \lVert W^\top (x - \mu_v) \rVert

    With W from :meth:`fit` it is the Mahalanobis distance of a covariance that is shrunk (Ledoit and Wolf 2004).

    Args:
        centers: ``(V, D)``, one for each view.
        whitening: ``(D, K)``.
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


@dataclass(frozen=True)
class NormalImages:
    """
    Scores of normal images by view, and what these images look like.

    Args:
        scores: ``(n,)`` fused scores.
        ap: ``(n,)`` probability that the view is AP; 0 or 1 where the header says so.
        looks: "pose", "child", "ap" and "distance" of normal images, each ``(m,)``; none of what is not asked.
        shipped_looks: of those that came with the detector; for fewer than 99 own ones.
        space: of the features; None for none.
        by_view: whether views are told apart.
        children: whether children are among them.
        adults: whether adults are.
        origin: whose they are, such as a folder.
        made: from when they are, such as "2026-10-01 to 2026-11-27".
        detector: digest of the detector's file.
        level: p-value up to which an image is above the threshold, which there are enough images for.

    Example:
        >>> normals = NormalImages(np.arange(99.0), np.zeros(99), level=0.05)
        >>> found = normals.judge(95.5, ImageFacts(view="PA"))
        >>> round(found.p_value, 3), round(found.threshold, 3), found.above
        (0.04, 94.0, True)
    """

    scores: NDArray[np.float64]
    ap: NDArray[np.float64]
    looks: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    shipped_looks: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    space: FeatureSpace | None = None
    by_view: bool = True
    children: bool = False
    adults: bool = True
    origin: str = ""
    made: str = ""
    detector: str = ""
    level: float = 0.05

    shortage = ""

    @property
    def number(self) -> int:
        """Of normal images."""
        return len(self.scores)

    def __str__(self) -> str:
        text = f"{self.number} normal images of {self.origin}, {self.made}"
        if self.by_view:
            ap = int((self.ap > 0.5).sum())
            text = f"{text}, {self.number - ap} PA and {ap} AP"
        return text + _if_few(self.number)

    def judge(self, score: float, facts: ImageFacts) -> Judgment:
        """Compare an image with the normal images of its view; one that is unlike all of them has no p-value."""
        if reason := self._header_objection(facts) or self._too_few(facts) or self._unlike(facts):
            return Judgment(view=facts.seen_view, not_judged=reason)
        weights, own = self._weights(facts)
        [p_value] = weighted_p_values([score], self.scores, weights, [own])
        return Judgment(
            float(p_value),
            self._threshold(weights, own),
            100 * float(weights[self.scores < score].sum() / weights.sum()),
            bool(_reaches(p_value, self.level)),
            facts.seen_view,
        )

    def _weights(self, facts: ImageFacts) -> tuple[NDArray[np.float64], float]:
        """Weights of the normal images, and of an image with these facts: by how probable its views are."""
        if not self.by_view or (not facts.is_frontal and not facts.view):
            return np.ones(self.number), 1.0
        shares = np.array([1 - facts.probability_of_ap, facts.probability_of_ap])
        views = np.stack([1 - self.ap, self.ap])
        per_image = shares / np.maximum(views.sum(1), 1e-9)
        return per_image @ views, float(per_image @ shares)

    def _threshold(self, weights: NDArray[np.float64], own: float) -> float:
        """Least score whose p-value is at most the level."""
        order = np.argsort(-self.scores, kind="stable")
        p_values = (own + np.cumsum(weights[order])) / (own + weights.sum())
        # an image must exceed the first one that makes the p-value too large
        highest = self.scores[order][np.argmin(_reaches(p_values, self.level))]
        return float(np.nextafter(np.float32(highest), np.float32(np.inf)))

    def _header_objection(self, facts: ImageFacts) -> str:
        """What header and lungs say against an image, "" for nothing."""
        if not facts.is_frontal:
            return ""
        if facts.other_view:
            return f"other view ({facts.other_view})"
        if facts.age is not None and facts.is_child and not self.children:
            return f"child ({facts.age:.0f} years)"
        if facts.age is not None and not facts.is_child and not self.adults:
            return f"adult ({facts.age:.0f} years)"
        return "lungs not found" if facts.lungs < SMALLEST_LUNGS else ""

    def _too_few(self, facts: ImageFacts) -> str:
        """Whether there are too few normal images of its view."""
        if not self.by_view:
            other = facts.view not in ("", _major_view(self.ap))
            return f"{facts.view} view (no normal images of it)" if other else ""
        weights, own = self._weights(facts)
        if _reaches(own / (own + weights.sum()), self.level):
            return ""
        view = "AP" if facts.probability_of_ap > 0.5 else "PA"
        found = round(self.ap.sum() if view == "AP" else (1 - self.ap).sum())
        return f"{view} view ({found} normal images of it, {normals_needed(self.level)} needed)"

    def _unlike(self, facts: ImageFacts) -> str:
        """Whether the picture is unlike the normal ones."""
        seen = dict(self._looks_of(facts))
        for name, (level, reason) in _LOOKS.items():
            if name not in seen:
                continue
            value, normal = seen[name], self.looks.get(name, np.empty(0))
            shipped = self.shipped_looks.get(name, np.empty(0))
            if name == "ap":  # a view may be unlike in two ways; those that were shipped have both
                middle = np.median(normal) if len(normal) else 0.0
                value, normal, shipped = abs(value - middle), np.abs(normal - middle), np.empty(0)
            if _is_unlike(float(value), normal, shipped, level):
                return reason
        return ""

    def _looks_of(self, facts: ImageFacts) -> Iterator[tuple[str, float]]:
        """Numbers of an image that are compared with ``looks``; the larger, the less like the normal ones."""
        if self.space is not None and facts.features is not None:
            view = int(self.by_view and facts.probability_of_ap > 0.5)
            yield "distance", float(self.space.distances(facts.features[None], [view])[0])
        if not facts.is_frontal:
            return
        yield "pose", facts.wrong_pose
        if facts.age is None:
            yield "child", facts.looks["child"]
        if not self.by_view and not facts.view:
            yield "ap", facts.looks["ap"]


def _is_unlike(value: float, normal: NDArray, shipped: NDArray, level: float) -> bool:
    """
    Whether a number is larger than that of nearly all normal images, by its conformal p-value.

    It must be so among the normal images of the hospital and among those that came with the detector. Of fewer own
    images than the level needs, it must exceed all.
    """
    own, others = (conformal_p_values([value], each)[0] for each in (normal, shipped))
    number, needed = len(normal), normals_needed(level)
    if len(shipped) < needed:
        return bool(number >= needed and own <= level)
    return bool(own <= max(level, 1 / (number + 1)) and others <= level)


def _if_few(number: int) -> str:
    """What a small number of normal images means."""
    if not number or number >= _FEW:
        return ""
    return f" (no p-value is below {1 / (number + 1):.2g}: use at least {_FEW})"


def _reaches(p_values: Any, level: float) -> Any:
    """At most the level, up to rounding of the weights."""
    return p_values <= level * (1 + 1e-9)


def _major_view(ap: NDArray[np.float64]) -> str:
    return "AP" if (ap > 0.5).mean() > 0.5 else "PA"


def normals_from(
    scores: ArrayLike,
    facts: Sequence[ImageFacts],
    level: float,
    shipped: NormalImages | None = None,
    **named: str,
) -> NormalImages:
    """
    Take a calibration from normal images.

    Views are told apart where there are enough of both: a few of one may be errors of the classifier. Else images that
    are of the rarer view by their headers are left out.

    Args:
        scores: ``(n,)`` fused scores.
        facts: of the images.
        level: p-value that must be within reach.
        shipped: normal images that came with the detector, whose directions of features are used.
        named: "origin", "made" and "detector" of :class:`NormalImages`.

    Raises:
        ValueError: for fewer images than the level needs.

    Example:
        >>> normals_from([1.0, 2.0], [ImageFacts()] * 2, level=0.05)
        Traceback (most recent call last):
        ValueError: 2 normal images cannot make a p-value of 0.05: give at least 19, better some hundred
    """
    values, needed = np.asarray(scores, dtype=float), normals_needed(level)
    _check_number(len(values), "", level)
    ap = np.array([each.probability_of_ap for each in facts])
    is_frontal = any(each.is_frontal for each in facts)
    by_view = is_frontal and bool(min((ap > 0.5).sum(), (ap <= 0.5).sum()) >= needed)
    if not by_view:
        kept = np.flatnonzero([each.view in ("", _major_view(ap)) for each in facts]).tolist()
        facts, values, ap = [facts[i] for i in kept], values[kept], ap[kept]
        _check_number(len(values), " of one view", level)
    looks, space = _looks(facts, (ap > 0.5).astype(int) * by_view, shipped)
    return NormalImages(
        values,
        ap,
        looks=looks,
        shipped_looks={} if shipped is None else shipped.looks,
        space=space,
        by_view=by_view,
        children=sum(each.is_child for each in facts) >= needed,
        adults=sum(not each.is_child for each in facts) >= needed,
        level=level,
        **named,
    )


def _check_number(number: int, which: str, level: float) -> None:
    """Refuse fewer images than the level needs: none could be above the threshold."""
    needed = normals_needed(level)
    if number < needed:
        cannot = f"cannot make a p-value of {level:.4g}: give at least {needed}"
        raise ValueError(f"{counted(number, 'normal image')}{which} {cannot}, better some hundred")


def _looks(
    facts: Sequence[ImageFacts], views: NDArray[np.int64], shipped: NormalImages | None
) -> tuple[dict[str, NDArray[np.float64]], FeatureSpace | None]:
    """What the normal images look like, and the space of their features."""
    looks: dict[str, NDArray[np.float64]] = {}
    if all(each.is_frontal for each in facts):
        looks = {name: np.array([each.looks[name] for each in facts]) for name in ("child", "ap")}
        looks["pose"] = np.array([each.wrong_pose for each in facts])
    if any(each.features is None for each in facts):
        return looks, None
    features = np.stack([each.features for each in facts])  # type: ignore[misc]
    if shipped is not None and shipped.space is not None:
        space = shipped.space.moved(features, views)
    else:
        space = FeatureSpace.fit(features, views, 2)
    looks["distance"] = space.held_out_distances(features, views)
    return looks, space
