# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a scored folder is like as a whole: its difference from the normal images, and its groups of patients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest, ks_2samp, kstest

from monai_afire.apps.evaluation.metrics import group_rows

GROUPS = ("sex", "age", "view", "scanner")
_SMALLEST_SAMPLE = 20  # images on either side, below which no test is made
DRIFT_LEVEL = 0.001  # p-value below which the difference is reported


@dataclass(frozen=True)
class Drift:
    """
    Difference between the p-values of a folder and those of normal images, which are spread evenly from 0 to 1.

    Args:
        p_value: of the Kolmogorov-Smirnov test.
        statistic: largest difference of the two cumulative distributions, in [0, 1].
        above_middle: share of the folder's judged images that score higher than the middle normal image, which are
            those with a p-value of at most 0.5; half of them if nothing differs.
        images: number of the judged images.
        group: the view or scanner that differs most, such as "scanner ACME X1", or "".

    Example:
        >>> print(Drift(1e-9, 0.6, 0.9, 200))
        As a group, the 200 judged images differ from the normal images: 90 % of them, not half, score higher than the
        middle normal image. Disease raises scores, and so does another scanner: compare with normal images of your
        own (--calibrate).
    """

    p_value: float
    statistic: float
    above_middle: float
    images: int
    group: str = ""

    @property
    def is_clear(self) -> bool:
        """Whether chance is an unlikely explanation."""
        return self.p_value < DRIFT_LEVEL

    def __str__(self) -> str:
        driven = f" The difference is largest for {self.group}." if self.group else ""
        return (
            f"As a group, the {self.images} judged images differ from the normal images: "
            f"{100 * self.above_middle:.0f} % of them, not half, score higher than the middle normal image.{driven} "
            "Disease raises scores, and so does another scanner: compare with normal images of your own (--calibrate)."
        )


def measure_drift(
    p_values: ArrayLike, groups: Mapping[str, Sequence[str]], normals: int | None = None
) -> Drift | None:
    """
    Test whether the p-values of a folder are those of normal images, by the test of Kolmogorov and Smirnov.

    Args:
        p_values: ``(M,)`` of the folder, NaN for images that are not judged.
        groups: name of a property -> its ``M`` values, "" for unknown.
        normals: number of the normal images, which are a sample, too: the fewer they are, the larger a difference may
            be by chance. None for so many that their number does not matter.

    Returns:
        The difference, or None with fewer than 20 judged images.

    Example:
        >>> even = (np.arange(100) + 1) / 101
        >>> drift = measure_drift(even**4, {"view": ["AP"] * 50 + ["PA"] * 50})
        >>> drift.is_clear, drift.group, measure_drift(even, {}).is_clear
        (True, 'view AP', False)
    """
    values = np.asarray(p_values, dtype=float)
    judged = values[np.isfinite(values)]
    if len(judged) < _SMALLEST_SAMPLE:
        return None
    test = _kolmogorov_smirnov(judged, normals)
    share = float((judged <= 0.5).mean())
    group = _largest_group(values, groups)
    return Drift(float(test.pvalue), float(test.statistic), share, len(judged), group)


def _kolmogorov_smirnov(p_values: NDArray, normals: int | None) -> Any:
    """The test of one sample, or of two where the normal images are few enough to be one."""
    if normals is None:
        return kstest(p_values, "uniform")
    # an image below k normal ones has (k + 1) / (n + 1): the k-th is half a step lower, the next half a step higher
    places = (np.arange(1, normals + 1) + 0.5) / (normals + 1)
    return ks_2samp(p_values, places)


def _largest_group(values: NDArray, groups: Mapping[str, Sequence[str]]) -> str:
    """The group whose p-values differ most, if a property has several groups of at least 20 judged images."""
    differences: dict[str, float] = {}
    for name, members in groups.items():
        known = pd.Series(values).dropna()
        table = known.groupby(np.asarray(members, dtype=object)[known.index])
        sizable = {key: part for key, part in table if key and len(part) >= _SMALLEST_SAMPLE}
        if len(sizable) > 1:
            differences |= {
                f"{name} {key}": float(kstest(part, "uniform").statistic)
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
    for name in GROUPS:
        groups = group_rows(decided, name)
        groups.pop("", None)
        for group, chosen in groups.items():
            count, above = len(chosen), int((decided["decision"].iloc[chosen] == "above").sum())
            interval = binomtest(above, count).proportion_ci(method="exact")
            rows.append((name, group, count, above, above / count, interval.low, interval.high))
    return pd.DataFrame(
        rows, columns=["property", "group", "images", "above", "rate", "low", "high"]
    )
