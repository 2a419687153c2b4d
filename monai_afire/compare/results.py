# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""From scores to a table with intervals and p-values, and to one sentence."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from monai_afire.anomaly.conformal import discoveries
from monai_afire.compare.cohort import Cohort
from monai_afire.compare.questions import Found, truth
from monai_afire.metrics.patient_bootstrap import bootstrap_aucs, bootstrap_p_value, patient_weights

PIXELS = "pixels"
BASELINES = (PIXELS, "darkness", "sharpness", "view alone")
_COLUMNS = [
    "question",
    "setting",
    "name",
    "is_encoder",
    "images",
    "auc",
    "low",
    "high",
    "baseline",
    "difference",
    "p_value",
]
_INTERVAL = (0.025, 0.975)
_FALSE_DISCOVERIES = 0.05


def results_table(cohort: Cohort, answers: Iterable[tuple[str, Found]], draws: int) -> pd.DataFrame:
    """
    AUC of each answer, and of the encoders the difference from the baseline with the highest AUC.

    Args:
        cohort: the images.
        answers: name of an encoder or one of ``BASELINES``, and its scores; left out where the AUC is not defined.
        draws: samples of the patients, the same for all answers to a question.

    Returns:
        Columns "question", "setting", "name", "is_encoder", "images", "auc", "low" and "high" (95 % interval by
        patient), and for encoders "baseline", "difference", "p_value" (paired, two-sided) and "better": whether the
        difference is above 0 at a false discovery rate of 5 % over all comparisons of the table.
    """
    rows, samples = [], []
    for name, (question, setting, scores) in answers:
        labels, patients = truth(cohort, question)
        weights = np.vstack([np.ones(len(patients)), patient_weights(patients, draws)])  # first all images, once
        auc, *drawn = np.mean([bootstrap_aucs(labels, each, weights) for each in scores], axis=0)
        if not np.isnan(auc):
            rows.append([question, setting, name, name not in BASELINES, len(patients), auc])
            rows[-1] += [*np.nanquantile(drawn, _INTERVAL), None, np.nan, np.nan]
            samples.append(np.array(drawn))
    table = pd.DataFrame(rows, columns=_COLUMNS)
    for _, group in table.groupby(["question", "setting"]):
        best = group.loc[~group["is_encoder"], "auc"].idxmax()
        for row in group.index[group["is_encoder"]]:
            table.at[row, "baseline"] = table.at[best, "name"]
            table.at[row, "difference"] = table.at[row, "auc"] - table.at[best, "auc"]
            table.at[row, "p_value"] = bootstrap_p_value(samples[row] - samples[best])
    return table.assign(better=discoveries(table["p_value"], _FALSE_DISCOVERIES) & (table["difference"] > 0))


def verdict(table: pd.DataFrame, images: int) -> str:
    """
    The result in a sentence.

    Args:
        table: of :func:`results_table`.
        images: that were judged.

    Returns:
        Which encoders are better than the simple baselines, and where.

    Example:
        >>> row = {"question": "Detection", "setting": "", "name": "mine", "baseline": "pixels", "better": False}
        >>> verdict(pd.DataFrame([row]), 1328)
        'On these 1,328 images no encoder is better than pixels.'
        >>> verdict(pd.DataFrame([{**row, "better": True}]), 1328)
        'On these 1,328 images mine is better than pixels in 1 of 1 comparisons (Detection).'
    """
    compared = table.dropna(subset="baseline")
    simple = PIXELS if set(compared["baseline"]) == {PIXELS} else "the best simple baseline"
    found = [
        f"{name} is better than {simple} in {rows['better'].sum()} of {len(rows)} comparisons "
        f"({', '.join(rows.loc[rows['better'], 'question'].unique())})"
        for name, rows in compared.groupby("name", sort=False)
        if rows["better"].any()
    ]
    return f"On these {images:,} images {'; '.join(found) or f'no encoder is better than {simple}'}."
