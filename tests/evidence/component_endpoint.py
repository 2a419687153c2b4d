# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which components of AFiRe make a better detector of NIH's findings: one endpoint, five seeds, Holm's correction.

``python -m tests.evidence.component_endpoint --normals /path/to/normals --data /path/to/nih_cxr_7k`` pre-trains each
arm once per seed, takes statistics of the set's training normals in the square around the lungs, and keeps the ranks of
"fused" of the held-out images. ``--report validation`` compares the arms with the full method, by patient, on the mean
over seeds. Runs that are there are not repeated, and ``--only`` shares the arms among several processes.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from monai_afire.apps.evaluation.patient_bootstrap import (
    bootstrap_aucs,
    bootstrap_p_value,
    patient_weights,
)
from monai_afire.apps.experiments import read_arms
from monai_afire.metrics.binary_classification import roc_auc
from tests.evidence.real_components import ARMS, trained_encoder
from tests.evidence.real_detection import read_set
from tests.evidence.real_encoders import encoder_scores

COMPONENTS = ("AFiRe", "without_contrast", "without_structure", "without_restoration", "untrained")
BUDGET = {"epochs": "12", "train::lr_schedule::warmup_epochs": "2"}
SECTIONS = ("validation", "test")


def run(
    options: argparse.Namespace, shape: Mapping[str, int], table: pd.DataFrame, images: torch.Tensor
) -> None:
    """Do what is left of the arms and seeds; test images are ranked here and compared by --report only."""
    shared = {**BUDGET, "dataset_dir": str(options.normals.resolve())}
    found = read_arms(ARMS, options.output / "pretraining", shared)
    arms = {arm if isinstance(arm, str) else arm.name: arm for arm in found}
    options.ranks.mkdir(parents=True, exist_ok=True)
    for seed, name in itertools.product(options.seeds, options.only):
        file = options.ranks / f"{name}-seed_{seed}.npz"
        if file.is_file():
            continue
        rows = encoder_scores(
            table, images, trained_encoder(arms[name], seed, shape), field_of_view="lungs"
        )
        ranks = {
            part: rankdata(rows.loc[rows["section"] == part, "fused"], "dense") for part in SECTIONS
        }
        np.savez(file, **{part: values.astype(np.uint16) for part, values in ranks.items()})
        print(f"{file.stem} is ranked", flush=True)


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """P-values corrected for their number: the smallest times n, the next times n - 1, never falling (Holm, 1979)."""
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    corrected = np.empty_like(p_values)
    corrected[order] = np.minimum(1, np.maximum.accumulate(p_values[order] * factors))
    return corrected


def report(table: pd.DataFrame, ranks: Path, section: str, bootstraps: int = 2000) -> pd.DataFrame:
    """A row per arm: mean AUC over seeds with its interval by patient, and its difference to the first arm."""
    rows = table[table["section"] == section]
    labels = rows[["label"]].to_numpy(float)
    weights = patient_weights(rows["patient"], bootstraps)
    found, samples = {}, {}
    for name in COMPONENTS:
        every = [
            np.load(file)[section].astype(float)[:, None]
            for file in sorted(ranks.glob(f"{name}-seed_*.npz"))
        ]
        aucs = [roc_auc(labels[:, 0], scores[:, 0]) for scores in every]
        samples[name] = np.mean(
            [bootstrap_aucs(labels, scores, weights) for scores in every], axis=0
        )
        found[name] = {"seeds": len(aucs), "AUC": np.mean(aucs), "sd": np.std(aucs, ddof=1)}
        found[name] |= dict(
            zip(("low", "high"), np.quantile(samples[name], [0.025, 0.975]), strict=True)
        )
    shown = pd.DataFrame(found).T
    differences = pd.DataFrame(
        {name: samples[name] - samples[COMPONENTS[0]] for name in COMPONENTS[1:]}
    )
    shown["minus full"] = shown["AUC"] - shown["AUC"].iloc[0]
    shown[["from", "to"]] = differences.quantile([0.025, 0.975]).T.reindex(COMPONENTS).to_numpy()
    p_values = np.array([bootstrap_p_value(differences[name]) for name in COMPONENTS[1:]])
    shown["p"], shown["p, Holm"] = [[np.nan, *values] for values in (p_values, holm(p_values))]
    return shown


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--normals", type=Path, required=True, help="folder of the images to pre-train on"
    )
    parser.add_argument("--data", type=Path, required=True, help="nih_cxr_7k")
    parser.add_argument("--output", type=Path, default=Path("results/component_endpoint"))
    parser.add_argument("--ranks", type=Path, help="folder of the ranks (default: in the output)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument(
        "--only", nargs="+", choices=COMPONENTS, default=COMPONENTS, help="arms (default: all)"
    )
    parser.add_argument("--report", choices=SECTIONS, help="compare what is there, nothing else")
    options = parser.parse_args()
    options.output, options.data = options.output.resolve(), options.data.resolve()
    options.ranks = options.ranks or options.output / "ranks"
    options.output.mkdir(parents=True, exist_ok=True)
    shape = json.loads(ARMS.read_text())["overrides"]
    table, images = read_set(options.data, options.output, shape["image_size"])
    if options.report:
        print(report(table, options.ranks, options.report).round(4).to_string())
    else:
        run(options, shape, table, images)


if __name__ == "__main__":
    main()
