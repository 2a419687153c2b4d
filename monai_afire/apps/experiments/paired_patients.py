# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Classifiers of an experiment compared by patient: a paired bootstrap over the patients with scores of both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from monai.bundle import ConfigParser
from numpy.typing import NDArray

from monai_afire.apps.evaluation.patient_bootstrap import (
    bootstrap_aucs,
    bootstrap_p_value,
    patient_weights,
)
from monai_afire.apps.experiments.execution import Outcome
from monai_afire.apps.experiments.plan import Experiment, Run
from monai_afire.utils.uncertain_labels import resolve_uncertain

_COLUMNS = ["metric", "initialization", "label_fraction", "patient_p_value"]
_PROBABILITY = "probability_"


def patient_p_values(
    experiment: Experiment, outcomes: Sequence[Outcome], num_samples: int = 1000
) -> pd.DataFrame:
    """
    Two-sided p of the difference of the mean AUC from the first initialization, by patient.

    Patients are drawn with replacement. The differences of runs of the same seed and fold are averaged, see
    ``bootstrap_p_value``. So it says whether other patients would give the
    same order, given these trained networks; the t-tests say whether other seeds would.

    Args:
        experiment: what the runs share.
        outcomes: of :func:`execute_runs`. Runs without ``predictions.csv`` have no p.
        num_samples: samples of patients.

    Returns:
        "metric", "initialization", "label_fraction" and "patient_p_value", a row for each comparison.
    """
    files = {
        o.run: experiment.folder(o.run) / "predictions.csv"
        for o in outcomes
        if o.status != "failed"
    }
    config = ConfigParser.load_config_files([*experiment.config_files, experiment.evaluate_file])
    uncertain = experiment.overrides.get("uncertain") or config.get("uncertain", "ignore")
    tables = {run: _predictions(file, uncertain) for run, file in files.items() if file.is_file()}
    first = outcomes[0].run.initialization
    references = {
        (run.label_fraction, *_part(run)): run for run in tables if run.initialization == first
    }
    pairs: dict[tuple[str, float | None], list[tuple[pd.DataFrame, pd.DataFrame]]] = {}
    for run in tables:
        reference = references.get((run.label_fraction, *_part(run)))
        if (
            reference
            and run.initialization != first
            and set(tables[run].index) == set(tables[reference].index)
        ):
            both = (tables[reference], tables[run].loc[tables[reference].index])
            pairs.setdefault((run.initialization, run.label_fraction), []).append(both)
    rows = [("mean_auc", *key, _p_value(compared, num_samples)) for key, compared in pairs.items()]
    return pd.DataFrame(rows, columns=_COLUMNS).astype({"label_fraction": "float64"})


def _predictions(file: Path, uncertain: str) -> pd.DataFrame:
    """A row per image, labels as the run counted them; a class may be named "None" or "3", a patient "007"."""
    texts = dict.fromkeys(("image", "patient_id", "label"), str)
    table = pd.read_csv(file, dtype=texts, keep_default_na=False, na_values=[""])
    for name in table.filter(regex="^label_"):
        table[name] = resolve_uncertain(
            torch.tensor(table[name].to_numpy(dtype=float)), uncertain
        ).numpy()
    return table.drop_duplicates("image").set_index("image")


def _part(run: Run) -> tuple[int, int | None]:
    """What partners have in common."""
    return run.seed, run.fold


def _p_value(pairs: Sequence[tuple[pd.DataFrame, pd.DataFrame]], num_samples: int) -> float:
    """Of the mean difference of several pairs of tables over the same samples of patients."""
    weights = patient_weights(
        pd.concat([table["patient_id"] for table, _ in pairs]).tolist(), num_samples
    )
    parts = np.split(weights, np.cumsum([len(table) for table, _ in pairs])[:-1], axis=1)
    differences = [
        _mean_auc(b, part) - _mean_auc(a, part) for (a, b), part in zip(pairs, parts, strict=True)
    ]
    return bootstrap_p_value(np.mean(differences, axis=0))


def _mean_auc(table: pd.DataFrame, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of several findings, or of exclusive classes against the others, for each set of weights."""
    scores = table.filter(regex=f"^{_PROBABILITY}")
    names, exclusive = [column.removeprefix(_PROBABILITY) for column in scores], table.get("label")
    if exclusive is None:
        truth = table[[f"label_{name}" for name in names]]
    else:
        truth = pd.DataFrame({name: (exclusive == name).where(exclusive.notna()) for name in names})
    return bootstrap_aucs(truth.to_numpy(dtype=float), scores.to_numpy(dtype=float), weights)
