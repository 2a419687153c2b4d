# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a scored folder is like as a whole: its difference from the normal images, and its groups of patients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest, ks_2samp

from monai_afire.metrics.group_metrics import group_rows

GROUPS = ("sex", "age", "view", "scanner")
_SMALLEST_SAMPLE = 20  # images on either side, below which no test is made
DRIFT_LEVEL = 0.001  # p-value below which the difference is reported


@dataclass(frozen=True)
class Drift:
    """
    Difference between the scores of a folder and those of the detector's normal images.

    Args:
        score: name of the score that differs most.
        p_value: of the two-sample Kolmogorov-Smirnov test, times the number of tested scores.
        statistic: largest difference of the two cumulative distributions, in [0, 1].
        below_median: share of the folder's images below the median of the normal ones; 0.5 if nothing differs.
        images: number of the folder's images.
        group: the view or scanner that differs most, such as "scanner ACME X1", or "".

    Example:
        >>> print(Drift("fused", 1e-9, 0.6, 0.1, 200))
        These 200 images differ from the detector's normal images: 90 % of them, not half, score higher than the middle
        normal image (fused, p = 1e-09). Disease raises scores, too. For another scanner or hospital, fit the detector
        to its own normal images.
    """

    score: str
    p_value: float
    statistic: float
    below_median: float
    images: int
    group: str = ""

    @property
    def is_clear(self) -> bool:
        """Whether chance is an unlikely explanation."""
        return self.p_value < DRIFT_LEVEL

    def __str__(self) -> str:
        driven = f" The difference is largest for {self.group}." if self.group else ""
        return (
            f"These {self.images} images differ from the detector's normal images: "
            f"{100 - 100 * self.below_median:.0f} % of them, not half, score higher than the middle normal image "
            f"({self.score}, p = {self.p_value:.2g}).{driven} Disease raises scores, too. "
            "For another scanner or hospital, fit the detector to its own normal images."
        )


def measure_drift(
    scores: Mapping[str, ArrayLike],
    normal_scores: Mapping[str, ArrayLike],
    groups: Mapping[str, Sequence[str]],
) -> Drift | None:
    """
    Compare a folder's scores with those of normal images, by the two-sample test of Kolmogorov and Smirnov.

    Args:
        scores: name -> ``(M,)`` of the folder. "token_mean_density" is the distance of an image's embedding.
        normal_scores: name -> ``(n,)`` of normal images that the detector was not fitted to; NaN is left out.
        groups: name of a property -> its ``M`` values, "" for unknown.

    Returns:
        The score that differs most, or None with fewer than 20 images on either side.

    Example:
        >>> normal = np.arange(100.0)
        >>> drift = measure_drift({"fused": normal + 60}, {"fused": normal}, {"view": ["AP"] * 50 + ["PA"] * 50})
        >>> drift.is_clear, drift.group, measure_drift({"fused": normal}, {"fused": normal}, {}).is_clear
        (True, 'view PA', False)
    """
    found = []
    for name, given in scores.items():
        values, normal = _finite(given), _finite(normal_scores.get(name, ()))
        if min(len(values), len(normal)) < _SMALLEST_SAMPLE:
            continue
        test = ks_2samp(values, normal)
        share = float((values < np.median(normal)).mean())
        found.append((float(test.pvalue), float(test.statistic), name, share, len(values)))
    if not found:
        return None
    p_value, statistic, name, share, count = min(found, key=lambda each: (each[0], -each[1]))
    group = _largest_group(
        np.asarray(scores[name], dtype=float), _finite(normal_scores[name]), groups
    )
    return Drift(name, min(1.0, p_value * len(found)), statistic, share, count, group)


def _finite(values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=float)
    return array[np.isfinite(array)]


def _largest_group(values: NDArray, normal: NDArray, groups: Mapping[str, Sequence[str]]) -> str:
    """The group whose scores differ most, if a property has several groups of at least 20 images."""
    differences: dict[str, float] = {}
    for name, members in groups.items():
        table = pd.Series(values).groupby(np.asarray(members, dtype=object))
        sizable = {key: part for key, part in table if key and len(part) >= _SMALLEST_SAMPLE}
        if len(sizable) > 1:
            differences |= {
                f"{name} {key}": float(ks_2samp(part, normal).statistic)
                for key, part in sizable.items()
            }
    return max(differences, key=lambda key: differences[key], default="")


def flag_rates(table: pd.DataFrame) -> pd.DataFrame:
    """
    Share of images above the threshold by sex, age, view and scanner.

    Args:
        table: a work-list (:func:`monai_afire.apps.worklist.write_worklist`) with "decision" and the columns of
            ``GROUPS``.

    Returns:
        One row per group: "property", "group", "images", "above", "rate", and "low" and "high", the exact 95 % interval
        of Clopper and Pearson. Images without the property are left out.

    Example:
        >>> table = pd.DataFrame({"decision": ["above", "below"] * 10, "sex": ["F"] * 4 + ["M"] * 16})
        >>> flag_rates(table).round(2).to_dict("records")[0]
        {'property': 'sex', 'group': 'F', 'images': 4, 'above': 2, 'rate': 0.5, 'low': 0.07, 'high': 0.93}
    """
    rows = []
    decided = table[table["decision"] != ""]
    for name, group, chosen in (
        (n, *each) for n in GROUPS for each in group_rows(decided, n).items() if each[0]
    ):
        count, above = len(chosen), int((decided["decision"].iloc[chosen] == "above").sum())
        interval = binomtest(above, count).proportion_ci(method="exact")
        rows.append((name, group, count, above, above / count, interval.low, interval.high))
    return pd.DataFrame(
        rows, columns=["property", "group", "images", "above", "rate", "low", "high"]
    )
