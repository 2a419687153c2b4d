# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Classification of real radiographs from scratch and from AFiRe's pre-training, over seeds and label fractions.

``python -m tests.evidence.real_transfer --data /path/to/nih_cxr_1k`` pre-trains on the training normals of
``datalist_classification.json`` (or takes ``--weights``), then fine-tunes and tests two tasks: normal against abnormal
("label"), and the findings ("findings"). Tables and all runs stay in ``--output``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from monai.bundle import run

from monai_afire.apps.experiments.__main__ import main as run_experiment
from tests.evidence.radiograph_sets import option_words
from tests.evidence.real_anomaly import REAL_SHAPE, REAL_TRAINING, TRAIN

CLASSIFY = "bundles/radiograph_classification/configs/train.json"
SHAPE = {name: value for name, value in REAL_SHAPE.items() if name != "network_def::num_clusters"}
TASKS: dict[str, dict[str, Any]] = {
    "label": {"label_key": "label", "num_classes": 1},
    "findings": {"label_key": "findings"},
}
FINE_TUNING = {
    "epochs": 20,
    "batch_size": 32,
    "train::run::early_stopping::patience": 20,
    "train::dataloader::min_batches": 6,
}


def pretrain(data: Path, datalist: Path, folder: Path) -> Path:
    """AFiRe on the training normals, unless that has been done."""
    weights = folder / "afire" / "model.pt"
    if not weights.is_file():
        places = {"ckpt_dir": str(weights.parent), "output_dir": str(weights.parent)}
        source = {"dataset_dir": str(data), "datalist": str(datalist)}
        run(config_file=TRAIN, seed=0, **places, **source, **REAL_SHAPE, **REAL_TRAINING)
    return weights


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the real radiographs")
    parser.add_argument(
        "--output", type=Path, default=Path("bundles/radiograph_classification/output/real")
    )
    parser.add_argument(
        "--weights", type=Path, help="encoder of an earlier pre-training with the same shape"
    )
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", nargs="+", default=["0", "1", "2"])
    parser.add_argument("--fractions", nargs="+", default=["0.1", "1.0"])
    options = parser.parse_args()
    data, folder = options.data.resolve(), options.output.resolve()
    datalist = data / "datalist_classification.json"
    weights = options.weights or pretrain(data, datalist, folder)
    settings = {"dataset_dir": data, "datalist": datalist, **SHAPE, **FINE_TUNING}
    for task in options.tasks:
        words = [
            "--config_file",
            CLASSIFY,
            "--output_dir",
            str(folder / task),
            "--num_processes",
            "2",
        ]
        words += ["--initializations", "scratch=", f"afire={weights}", "--metrics", "mean_auc"]
        words += ["--seed", *options.seeds, "--label_fraction", *options.fractions]
        run_experiment([*words, *option_words({**settings, **TASKS[task]})])


if __name__ == "__main__":
    main()
