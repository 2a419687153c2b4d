# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which components and methods help: every arm pre-trained over seeds, then probed on ChildCXR and used as a detector.

``python -m tests.evidence.real_components --arms ARMS.json --normals /path/to/normals --data /path/to/childcxr``
pre-trains each arm once per seed (``monai_afire.apps.experiments`` says what an arm is), encodes ChildCXR with the
frozen encoder, and writes one row per arm and seed: the linear probe on the official test images (AUC, accuracy, F1),
and the AUC of the encoder alone as a detector ("fused" of real_encoders), validation and test. ``--only`` does some
arms, for several processes on one output folder; at the end, and by ``--report`` at once, the rows so far are
compared. An
interrupted command goes on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from monai_afire.apps.experiments import (
    Pretraining,
    comparison_table,
    pretrained_weights,
    read_arms,
)
from monai_afire.metrics.binary_classification import roc_auc
from monai_afire.networks import ViTEncoder
from tests.evidence.radiograph_sets import in_section, part_of
from tests.evidence.real_detection import read_set
from tests.evidence.real_encoders import encoder, encoder_scores, shape_in
from tests.evidence.real_probe import probe, tokens

ARMS = Path("tests/evidence/real_radiographs/afire_components.json")
METRICS = ("auc", "accuracy", "f1", "detection_validation", "detection_test", "between_images")


def detection(
    table: pd.DataFrame, images: torch.Tensor, network: torch.nn.Module
) -> dict[str, float]:
    """AUC of the encoder alone, with statistics of the training normals."""
    kept = (table["section"] != "training") | (table["label"] == 0)
    rows = encoder_scores(*part_of(table, images, kept), network)
    parts = {name: rows[rows["section"] == name] for name in ("validation", "test")}
    return {
        f"detection_{name}": roc_auc(part["label"], part["fused"]) for name, part in parts.items()
    }


def between_images(encoded: torch.Tensor) -> float:
    """Share of the variance of tokens ``(M, L, D)`` between images at one place; the rest lies between places."""
    return float(encoded.var(0).mean(0).sum() / encoded.var((0, 1)).sum())


def trained_encoder(arm: Pretraining | str, seed: int, settings: Mapping[str, Any]) -> ViTEncoder:
    """The encoder of an arm, pre-trained unless that is done; an arm that is a name alone has random weights."""
    weights = "" if isinstance(arm, str) else str(pretrained_weights(arm, seed))
    return encoder(weights, shape_in(settings), seed)


def row_of(arm: Pretraining | str, seed: int, options: argparse.Namespace) -> dict[str, object]:
    """Pre-train one arm with one seed, unless that is done, and measure it, unless that is done."""
    name = arm if isinstance(arm, str) else arm.name
    stored = options.output / "rows" / f"{name}-seed_{seed}.json"
    if not stored.is_file():
        shared = json.loads(options.arms[0].read_text())["overrides"]
        network = trained_encoder(arm, seed, shared)
        table, images = read_set(
            options.data.resolve(), options.output, shared["image_size"], abnormal_training=True
        )
        encoded = tokens(network, images)
        validation = encoded[in_section(table, "validation")]
        figures = {**probe(table, encoded.mean(1).numpy()), **detection(table, images, network)}
        figures["between_images"] = between_images(validation[::4])
        stored.parent.mkdir(parents=True, exist_ok=True)
        stored.write_text(json.dumps({"arm": name, "seed": seed, **figures}))
    return json.loads(stored.read_text())


def comparison(rows: pd.DataFrame) -> pd.DataFrame:
    """Each metric of each arm against the first arm: Welch's and the paired test, and how many seeds are higher."""
    runs = rows.rename(columns={"arm": "initialization"}).assign(label_fraction=1.0, fold=0)
    return comparison_table(runs, list(METRICS)).drop(columns=["label_fraction"])


def report(rows: Sequence[dict[str, object]]) -> str:
    """The comparison of the rows, to be printed."""
    return comparison(pd.DataFrame(rows)).round(4).to_string(index=False)


def compare_arms(options: argparse.Namespace) -> str:
    """Do what is left of the arms and seeds, write the rows, and report."""
    shared = {"dataset_dir": str(options.normals.resolve())} if options.normals else {}
    arms = [
        arm
        for path in options.arms
        for arm in read_arms(path, options.output / "pretraining", shared)
    ]
    names = {arm if isinstance(arm, str) else arm.name: arm for arm in arms}
    for seed in [] if options.report else options.seeds:
        for name in options.only or names:
            print(json.dumps(row_of(names[name], seed, options)), flush=True)
    files = [
        options.output / "rows" / f"{name}-seed_{seed}.json"
        for name in names
        for seed in options.seeds
    ]
    rows = [json.loads(path.read_text()) for path in files if path.is_file()]
    pd.DataFrame(rows).round(4).to_csv(options.output / "rows.csv", index=False)
    return report(rows)


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--arms", type=Path, nargs="+", default=[ARMS], help="files of arms, all of one shape"
    )
    parser.add_argument(
        "--normals", type=Path, help="folder of the images to pre-train on (default: the phantom)"
    )
    parser.add_argument("--data", type=Path, required=True, help="ChildCXR")
    parser.add_argument("--output", type=Path, default=Path("results/components"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", help="names of arms (default: all)")
    parser.add_argument(
        "--report", action="store_true", help="compare the rows that are there, nothing else"
    )
    options = parser.parse_args()
    options.output = options.output.resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    print(compare_arms(options))


if __name__ == "__main__":
    main()
