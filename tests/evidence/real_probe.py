# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a linear classifier tells from frozen features, with few of the labels and with all.

``python -m tests.evidence.real_probe --data /path/to/childcxr`` encodes ChildCXR once by the released encoder, by
untrained ones, and by principal components of the pixels, and prints the AUC of a logistic regression on the validation
and the official test images, there also by quartile of sharpness: mean and deviation over the patients whose labels are
known and over the untrained encoders.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from monai_afire.apps.compare.cohort import labeled_rows
from monai_afire.apps.evaluation.binary_metrics import metrics_at_threshold
from monai_afire.metrics import fit_linear_probe
from monai_afire.metrics.binary_classification import best_f1_threshold, roc_auc
from monai_afire.metrics.principal_components import pixel_components
from monai_afire.networks import released_encoder
from tests.evidence.real_detection import OVERRIDES, quartile_aucs, read_set, summary
from tests.evidence.real_encoders import encoder


@torch.no_grad()
def tokens(network: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    """``(M, L, D)`` of the last layer."""
    return torch.cat([network.eval()(batch) for batch in images.split(64)])


def probe_scores(
    table: pd.DataFrame, features: np.ndarray, chosen: np.ndarray | None = None
) -> np.ndarray:
    """Linear probe of the training images, or of some; penalty by validation."""
    training = (table["section"] == "training").to_numpy() if chosen is None else chosen
    validation = (table["section"] == "validation").to_numpy()
    labels = table[["label"]].to_numpy()
    fitted = fit_linear_probe(
        features[training], labels[training], features[validation], labels[validation]
    )
    return fitted.logits(features)[:, 0]


def probe(table: pd.DataFrame, features: np.ndarray) -> dict[str, float]:
    """Test figures of the probe, at the threshold of best F1 on the validation images."""
    rows = table.assign(score=probe_scores(table, features))
    validation, test = (rows[rows["section"] == name] for name in ("validation", "test"))
    at_threshold = metrics_at_threshold(
        test["label"], test["score"], best_f1_threshold(validation["label"], validation["score"])
    )
    return {
        "auc": roc_auc(test["label"], test["score"]),
        **{name: at_threshold[name] for name in ("accuracy", "f1")},
    }


def labeled_part(table: pd.DataFrame, fraction: float, seed: int) -> np.ndarray:
    """Which rows are training images of some of the patients, drawn as the bundles draw them."""
    rows = table[table["section"] == "training"]
    items = [
        {"row": row, "label": int(label), "patient_id": patient}
        for row, label, patient in zip(rows.index, rows["label"], rows["patient"], strict=True)
    ]
    part = np.zeros(len(table), dtype=bool)
    part[labeled_rows(items, fraction, seed)] = True
    return part


def seed_features(table: pd.DataFrame, images: torch.Tensor, seed: int) -> dict[str, np.ndarray]:
    """Features that learned from no other image, by name."""
    training = (table["section"] == "training").to_numpy()
    return {
        "untrained": tokens(encoder("", seed=seed), images).mean(1).numpy(),
        "pixels, 100 components": pixel_components(images.flatten(1).numpy(), training, seed),
    }


def aucs(rows: pd.DataFrame) -> dict[str, float]:
    """AUC of "score" on the validation and the test images, and within quartiles of sharpness of the latter."""
    parts = {section: rows[rows["section"] == section] for section in ("validation", "test")}
    found = {section: roc_auc(part["label"], part["score"]) for section, part in parts.items()}
    return {
        **found,
        **{f"Q{k + 1}": auc for k, auc in enumerate(quartile_aucs(parts["test"], "score"))},
    }


def seed_table(
    table: pd.DataFrame, features: Mapping[str, np.ndarray], fractions: list[float], seed: int
) -> pd.DataFrame:
    """One row for each kind of features and share of the labels."""
    found = {}
    for fraction in fractions:
        chosen = labeled_part(table, fraction, seed)
        for name, values in features.items():
            found[f"{fraction:.0%} {name}"] = aucs(
                table.assign(score=probe_scores(table, values, chosen))
            )
    return pd.DataFrame(found).T


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="ChildCXR")
    parser.add_argument("--output", type=Path, default=Path("results/probe"))
    parser.add_argument(
        "--fractions",
        type=float,
        nargs="+",
        default=[0.01, 0.1, 1.0],
        help="of the training patients",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    table, images = read_set(
        options.data.resolve(), options.output, OVERRIDES["image_size"], abnormal_training=True
    )
    released = {"released": tokens(encoder(str(released_encoder())), images).mean(1).numpy()}
    runs = [
        seed_table(
            table, {**released, **seed_features(table, images, seed)}, options.fractions, seed
        )
        for seed in options.seeds
    ]
    result = summary(runs).to_string()
    (options.output / "table.txt").write_text(result)
    print(result)


if __name__ == "__main__":
    main()
