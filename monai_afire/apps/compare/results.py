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
    for question, setting, name, scores in answers:
        labels, patients = truth(cohort, question)
        weights = patient_weights(patients, draws, include_original=True)
        auc, *drawn = np.mean([bootstrap_aucs(labels, each, weights) for each in scores], axis=0)
        low, high = pd.Series(drawn).quantile(_INTERVAL)
        row = {
            "question": question,
            "setting": setting,
            "name": name,
            "is_encoder": name not in (PIXELS, *CONTROLS),
            "images": len(patients),
            "auc": auc,
            "low": low,
            "high": high,
        }
        rows.append(row)
        samples.append(np.array(drawn))
    table = pd.DataFrame(rows).dropna(subset="auc")
    table = table.assign(baseline=None, difference=np.nan, p_value=np.nan)
    for (question, _), group in table.groupby(["question", "setting"]):
        best = group.loc[~group["is_encoder"], "auc"].idxmax()
        suffices = enough_patients(*truth(cohort, question))
        for row in group.index[group["is_encoder"]]:
            table.at[row, "baseline"] = table.at[best, "name"]
            table.at[row, "difference"] = table.at[row, "auc"] - table.at[best, "auc"]
            if suffices:
                table.at[row, "p_value"] = bootstrap_p_value(samples[row] - samples[best])
    found = discoveries(table["p_value"], _FALSE_DISCOVERIES)
    return table.assign(better=found & (table["difference"] > 0))


def enough_patients(labels: NDArray, patients: NDArray) -> bool:
    """
    Whether samples of the patients ``(M,)`` tell what another set of patients would give.

    True for 30 patients or more, of whom six have, and six do not have, one of the findings ``(M, K)``.
    """
    if len(set(patients)) < LEAST_PATIENTS:
        return False
    rarer = [min(len(set(patients[finding == value])) for value in (0, 1)) for finding in labels.T]
    return max(rarer, default=0) >= LEAST_PATIENTS_OF_A_LABEL


def verdict(table: pd.DataFrame, images: int) -> str:
    """The result in a sentence: which encoders are better than the simple baselines, and where."""
    if table.empty:
        return f"The labels of {counted(images, 'image')} are all alike: nothing can be compared."
    compared = table[table["baseline"].notna()]
    simple = PIXELS if set(compared["baseline"]) == {PIXELS} else "the best simple baseline"
    tested = compared[compared["p_value"].notna()]
    if tested.empty:
        own = LEAST_PATIENTS_OF_A_LABEL
        needed = f"{LEAST_PATIENTS} are needed, {own} with and {own} without a finding"
        few = f"These {images:,} images are of too few patients"
        return f"{few} to say whether an encoder is better than {simple}: {needed}."
    found = []
    for name, rows in tested[tested["better"]].groupby("name", sort=False):
        asked, where = (tested["name"] == name).sum(), ", ".join(rows["question"].unique())
        found.append(
            f"{name} is better than {simple} in {len(rows)} of {asked} comparisons ({where})"
        )
    said = "; ".join(found) or f"no encoder is better than {simple}"
    return f"On these {images:,} images {said}."
