# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a scored folder is like as a whole: its difference from the normal images."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import ks_2samp, kstest

_SMALLEST_SAMPLE = 20  # images, below which no test is made
_DRIFT_LEVEL = 0.001  # p-value below which the difference is reported
_SHIPPED = "Disease raises scores, and so does another scanner: compare with normal images of your own (--calibrate)."
_OWN = "Unless disease explains it, your normal images are not like the images you score: use the same scanners."


def drift(worklist: pd.DataFrame, normals: int, own: bool = False) -> str:
    """
    Say whether the p-values of a folder are those of normal images, by the test of Kolmogorov and Smirnov.

    The sentence names the view or scanner that differs most; it is "" where chance explains the difference, or with
    fewer than 20 judged images. There are ``normals`` normal images, the user's ``own`` or those of the detector.
    """
    judged = worklist.assign(p_value=pd.to_numeric(worklist["p_value"])).dropna(subset="p_value")
    if len(judged) < _SMALLEST_SAMPLE:
        return ""
    p_values = judged["p_value"].to_numpy()
    if ks_2samp(p_values, _of_normal_images(normals)).pvalue >= _DRIFT_LEVEL:
        return ""
    share = f"{100 * (p_values <= 0.5).mean():.0f} %"
    largest = _largest_group(judged)
    driven = f" The difference is largest for {largest}." if largest else ""
    return (
        f"As a group, the {len(judged)} judged images differ from the normal images: {share} of them, not half, score "
        f"higher than the middle normal image.{driven} {_OWN if own else _SHIPPED}"
    )


def _of_normal_images(number: int) -> NDArray[np.float64]:
    """Where the p-values of normal images stand among those of others."""
    # an image below k normal ones has (k + 1) / (n + 1): the k-th is half a step lower, the next half a step higher
    return (np.arange(1, number + 1) + 0.5) / (number + 1)


def _largest_group(judged: pd.DataFrame) -> str:
    """The group whose p-values differ most, if a property has several groups of at least 20 images."""
    differences: dict[str, float] = {}
    for name in ("view", "scanner"):
        groups = judged[judged[name] != ""].groupby(name)["p_value"]
        sizable = {group: part for group, part in groups if len(part) >= _SMALLEST_SAMPLE}
        if len(sizable) > 1:
            for group, part in sizable.items():
                differences[f"{name} {group}"] = float(kstest(part, "uniform").statistic)
    return max(differences, key=lambda group: differences[group], default="")
