# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Normal images that scores are compared with, by view: p-value, threshold, and who is not judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monai_afire.apps.worklist.image_facts import ImageFacts
from monai_afire.apps.worklist.support import LOOKS, FeatureSpace, header_objection, is_unlike
from monai_afire.detection.conformal import normals_needed, weighted_p_values
from monai_afire.detection.detector import AnomalyDetector
from monai_afire.utils.text import counted

__all__ = ["DetectorNormals", "Judgment", "NormalImages", "normals_from"]

_FEW = 200  # normal images; fewer cannot make a p-value below 0.005


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
    """
    The normal validation images of a detector, without a look at view and age: every image is judged.

    With fewer of them than the level needs, nothing is said of any image.

    Args:
        detector: fitted, with or without thresholds.
        level: p-value that must be within reach.
    """

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
        found = counted(self.number, "normal validation image")
        return (
            f"the detector has {found}, and a threshold needs {needed}: fit it to more images, or compare with "
            f"{needed} or more normal images of your own (--calibrate FOLDER)"
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
        return f"{found} of the detector{_few(self.number)}"


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
        return text + _few(self.number)

    def judge(self, score: float, facts: ImageFacts) -> Judgment:
        """
        Compare an image with the normal images of its view.

        Args:
            score: fused score.
            facts: of the image.

        Returns:
            The judgment, without a p-value for an image that is unlike the normal images.
        """
        reason = (
            header_objection(facts, self.children, self.adults)
            or self._too_few(facts)
            or self._unlike(facts)
        )
        if reason:
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
        own = self.own_looks(facts)
        for name, (level, reason) in LOOKS.items():
            if name not in own:
                continue
            value, normal = own[name], self.looks.get(name, np.empty(0))
            shipped = self.shipped_looks.get(name, np.empty(0))
            if name == "ap":  # a view may be unlike in two ways; those that were shipped have both
                middle = np.median(normal) if len(normal) else 0.0
                value, normal, shipped = abs(value - middle), np.abs(normal - middle), np.empty(0)
            if is_unlike(float(value), normal, shipped, level):
                return reason
        return ""

    def own_looks(self, facts: ImageFacts) -> dict[str, float]:
        """Numbers of an image that are compared with ``looks``; the larger, the less like the normal ones."""
        found: dict[str, float] = {}
        if facts.is_frontal:
            found["pose"] = facts.wrong_pose
        if self.space is not None and facts.features is not None:
            view = int(self.by_view and facts.probability_of_ap > 0.5)
            found["distance"] = float(self.space.distances(facts.features[None], [view])[0])
        if facts.is_frontal and facts.age is None:
            found["child"] = facts.looks["child"]
        if facts.is_frontal and not self.by_view and not facts.view:
            found["ap"] = facts.looks["ap"]
        return found


def _few(number: int) -> str:
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
    origin: str = "",
    made: str = "",
    detector: str = "",
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
        origin: whose they are.
        made: from when they are.
        detector: digest of the detector's file.

    Returns:
        The normal images.

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
        origin=origin,
        made=made,
        detector=detector,
        level=level,
    )


def _check_number(number: int, which: str, level: float) -> None:
    """Refuse fewer images than the level needs: none could be above the threshold."""
    needed = normals_needed(level)
    if number < needed:
        found = counted(number, "normal image")
        raise ValueError(
            f"{found}{which} cannot make a p-value of {level:.4g}: give at least {needed}, better some hundred"
        )


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
