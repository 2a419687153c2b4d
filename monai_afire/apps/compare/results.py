# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""From scores to a table with intervals and p-values, and to one sentence."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from monai_afire.apps.compare.cohort import Cohort
from monai_afire.apps.compare.questions import CONTROLS, PIXELS, Answer, truth
from monai_afire.apps.evaluation.patient_bootstrap import (
    LEAST_PATIENTS,
    LEAST_PATIENTS_OF_A_LABEL,
    bootstrap_aucs,
    bootstrap_p_value,
    patient_weights,
)
from monai_afire.detection.conformal import discoveries
from monai_afire.utils.text import counted

_INTERVAL = [0.025, 0.975]
_FALSE_DISCOVERIES = 0.05


def results_table(cohort: Cohort, answers: Iterable[Answer], draws: int = 1000) -> pd.DataFrame:
    """
    AUC of each answer, and of the encoders the difference from the baseline with the highest AUC.

    Args:
        cohort: the images.
        answers: to any questions; left out where the AUC is not defined.
        draws: samples of the patients, the same for all answers to a question.

    Returns:
        Columns "question", "setting", "name", "is_encoder", "images", "auc", "low" and "high" (95 % interval by
        patient), and for encoders "baseline", "difference", "p_value" (paired, two-sided; NaN where the patients are
        too few) and "better": whether the difference is above 0 at a false discovery rate of 5 % over all comparisons
        of the table.
    """
    rows, samples = [], []
    suffices = {}
    for question, setting, name, scores in answers:
        labels, patients = truth(cohort, question)
        suffices[question] = enough_patients(labels, patients)
        weights = patient_weights(patients, draws, include_original=True)
        auc, *drawn = np.mean([bootstrap_aucs(labels, each, weights) for each in scores], axis=0)
        row = {
            "question": question,
            "setting": setting,
            "name": name,
            "is_encoder": name not in (PIXELS, *CONTROLS),
        }
        low, high = pd.Series(drawn).quantile(_INTERVAL)
        rows.append(
            {**row, "images": len(patients), "auc": auc, "low": low, "high": high, "baseline": None}
        )
        samples.append(np.array(drawn))
    table = pd.DataFrame(rows).assign(difference=np.nan, p_value=np.nan).dropna(subset="auc")
    for (question, _), group in table.groupby(["question", "setting"]):
        best = group.loc[~group["is_encoder"], "auc"].idxmax()
        for row in group.index[group["is_encoder"]]:
            table.at[row, "baseline"] = table.at[best, "name"]
            table.at[row, "difference"] = table.at[row, "auc"] - table.at[best, "auc"]
            if suffices[question]:
                table.at[row, "p_value"] = bootstrap_p_value(samples[row] - samples[best])
    return table.assign(
        better=discoveries(table["p_value"], _FALSE_DISCOVERIES) & (table["difference"] > 0)
    )


def enough_patients(labels: NDArray, patients: NDArray) -> bool:
    """
    Whether samples of the patients tell what another set of patients would give.

    Args:
        labels: ``(M, K)``: 1 present, 0 absent, NaN unknown.
        patients: ``(M,)``.

    Returns:
        True for 30 patients or more, of whom six have, and six do not have, one of the findings.

    Example:
        >>> labels = np.arange(40)[:, None] % 2
        >>> enough_patients(labels, np.arange(40)), enough_patients(labels, np.arange(40) % 20)
        (True, False)
    """
    if len(set(patients)) < LEAST_PATIENTS:
        return False
    rarer = [min(len(set(patients[finding == value])) for value in (0, 1)) for finding in labels.T]
    return max(rarer, default=0) >= LEAST_PATIENTS_OF_A_LABEL


def verdict(table: pd.DataFrame, images: int) -> str:
    """
    The result in a sentence.

    Args:
        table: of :func:`results_table`.
        images: that were evaluated.

    Returns:
        Which encoders are better than the simple baselines, and where.

    Example:
        >>> row = {"question": "Detection", "setting": "", "name": "mine", "baseline": "pixels", "better": False}
        >>> table = pd.DataFrame([{**row, "p_value": 0.3}])
        >>> verdict(table, 1328)
        'On these 1,328 images no encoder is better than pixels.'
        >>> verdict(table.assign(better=True), 1328)
        'On these 1,328 images mine is better than pixels in 1 of 1 comparisons (Detection).'
        >>> verdict(table.assign(p_value=np.nan), 20)
        'These 20 images are of too few patients to say whether an encoder is better than pixels: 30 are needed, ...'
    """
    if table.empty:
        return f"The labels of {counted(images, 'image')} are all alike: nothing can be compared."
    compared = table[table["baseline"].notna()]
    simple = PIXELS if set(compared["baseline"]) == {PIXELS} else "the best simple baseline"
    tested = compared[compared["p_value"].notna()]
    if tested.empty:
        of_a_label = LEAST_PATIENTS_OF_A_LABEL
        needed = (
            f"{LEAST_PATIENTS} are needed, {of_a_label} with and {of_a_label} without a finding"
        )
        return (
            f"These {images:,} images are of too few patients to say whether an encoder is better than {simple}: "
            f"{needed}."
        )
    found = [
        f"{name} is better than {simple} in {len(rows)} of {(tested['name'] == name).sum()} comparisons "
        f"({', '.join(rows['question'].unique())})"
        for name, rows in tested[tested["better"]].groupby("name", sort=False)
    ]
    return (
        f"On these {images:,} images {'; '.join(found) or f'no encoder is better than {simple}'}."
    )
