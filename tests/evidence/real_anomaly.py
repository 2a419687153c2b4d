# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Anomaly detection by the AFiRe bundle over several seeds, beside baselines: on real radiographs or on the phantom.

``python -m tests.evidence.real_anomaly --data /path/to/nih_cxr_1k`` pre-trains, adapts and evaluates on a folder with
``manifest.csv`` and ``boxes.csv``; without ``--data`` on the embedded phantom with the bundle's defaults. ``--tune``
evaluates on held-out training patients and the validation images instead of the test images, to choose settings by.
Each run's files stay in ``--output``.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from monai.bundle import run
from monai.transforms import Compose, Resized
from sklearn.decomposition import PCA

from monai_afire.apps.evaluation import evaluate_scores
from monai_afire.apps.evaluation.lesion_truth import lesion_truth
from monai_afire.apps.evaluation.localization import localization_row
from monai_afire.data import load_radiograph_datalist, split_by_patient
from monai_afire.data.datalist.labels import abnormal_label
from monai_afire.detection.scores import SCORE_NAMES
from monai_afire.transforms import LoadRadiographd, StandardizeContrastd

CONFIGS = "bundles/afire/configs/"
TRAIN = CONFIGS + "train.json"
ADAPT = [TRAIN, CONFIGS + "finetune_anomaly.json"]
EVALUATE = [CONFIGS + "inference.json", CONFIGS + "evaluate.json"]

# a model for two CPU cores; chosen by --tune
REAL_SHAPE = {
    "image_size": 64,
    "patch_size": 8,
    "encoder_def::hidden_size": 192,
    "encoder_def::num_layers": 6,
    "encoder_def::num_heads": 6,
    "network_def::num_clusters": 64,
    "standardize": True,
}
REAL_TRAINING = {
    "epochs": 100,
    "train::lr_schedule::warmup_epochs": 10,
    "add_lesions::amplitude": [0.15, 0.6],
    "train::run::val_interval": 50,
}
REAL_ADAPTING = {"epochs": 20, "learning_rate": 1e-4, "train::run::val_interval": 5}
# of the table in the bundle's documentation
SCORING = {"detector_def::aggregation": "top_k", "score_fusion": ["focal"]}
PCA_COMPONENTS = 32
PCA_SIZE = 64
PCA_CELL = 8  # pixels of a "token" of the PCA's error map


def write_datalist(data: Path, folder: Path, tune: bool) -> Path:
    """Training normals, validation of both classes, test of both classes with views and boxes."""
    rows = pd.read_csv(data / "manifest.csv", dtype={"patient_id": str})
    boxes = (
        pd.read_csv(data / "boxes.csv")
        .groupby("image")[["x", "y", "w", "h"]]
        .apply(lambda b: b.to_numpy().tolist())
    )
    rows["section"] = rows["split"].map({"train": "training", "val": "validation", "test": "test"})
    if tune:
        normal_patients = rows.loc[(rows["split"] == "train") & (rows["label"] == 0), "patient_id"]
        held_out = split_by_patient(normal_patients.tolist(), 0.25, seed=0)
        trained = set(normal_patients[[not held for held in held_out]])
        rows = rows[rows["split"] != "test"]
        tested = (rows["split"] != "train") | ~rows["patient_id"].isin(trained)
        rows = rows.assign(section=np.where(tested, "test", "training"))
    sections: dict[str, list] = {"training": [], "validation": [], "test": []}
    for row in rows.itertuples():
        if row.section == "training" and row.label == 1:
            continue
        item = {
            "image": row.image,
            "label": int(row.label),
            "patient_id": row.patient_id,
            "view": row.view,
        }
        if row.image in boxes:
            item["boxes"] = boxes[row.image]
        sections[row.section].append(item)
    if tune:
        sections["validation"] = sections["test"]
    path = folder / "datalist.json"
    path.write_text(json.dumps(sections))
    return path


def pca_rows(listed: Path, data: Path, standardize: bool) -> pd.DataFrame:
    """Reconstruction error of the test images by the principal components of the training normals."""
    steps = [
        LoadRadiographd("image"),
        Resized("image", (PCA_SIZE, PCA_SIZE), mode="area", anti_aliasing=False),
    ]
    read = Compose(steps + ([StandardizeContrastd("image")] if standardize else []))
    sections = {
        name: load_radiograph_datalist(data, listed, name, path_keys=("image", "lesion_truth"))
        for name in ("training", "test")
    }
    pictures = {
        name: np.stack(
            [np.asarray(read({"image": item["image"]})["image"]).ravel() for item in items]
        )
        for name, items in sections.items()
    }
    components = PCA(PCA_COMPONENTS, svd_solver="randomized", random_state=0).fit(
        pictures["training"]
    )
    error = (
        components.inverse_transform(components.transform(pictures["test"])) - pictures["test"]
    ) ** 2
    cells = PCA_SIZE // PCA_CELL
    maps = error.reshape(-1, cells, PCA_CELL, cells, PCA_CELL).mean((2, 4)).reshape(len(error), -1)
    rows = []
    for item, score, token_map in zip(sections["test"], error.mean(1), maps, strict=True):
        loaded = LoadRadiographd("image")({"image": item["image"]})["image"]
        label = abnormal_label(item)
        truth = lesion_truth(item, loaded.shape[1:], (128, 128)) if label else None
        found = localization_row({"pca": torch.as_tensor(token_map)}, truth, (cells, cells))
        brightness = float(loaded.mean())
        rows.append(
            {
                "label": label,
                "view": str(item.get("view", "")),
                "brightness": brightness,
                "pca": score,
                **found,
            }
        )
    return pd.DataFrame(rows)


def run_seed(
    seed: int,
    folder: Path,
    source: dict[str, Any],
    real: bool,
    epochs: dict[str, int],
    untrained: bool,
) -> dict[str, Any]:
    """Pre-train, adapt, evaluate; returns the figures of the adapted and, if asked for, of the untrained network."""
    shape = REAL_SHAPE if real else {}
    training = dict(REAL_TRAINING) if real else {}
    training |= {"epochs": epochs["train"]} if "train" in epochs else {}
    adapting = {"epochs": epochs["adapt"]} if "adapt" in epochs else {}
    common = {**shape, **source}
    phantom_seed = {} if real else {"phantom::seed": seed}
    pretrained = folder / "model.pt"
    if not pretrained.is_file():
        run(
            config_file=TRAIN,
            seed=seed,
            ckpt_dir=str(folder),
            output_dir=str(folder / "train"),
            **common,
            **training,
        )
    figures = {}
    stages: dict[str, dict[str, Any]] = {
        "untrained": {
            "pretrained": "",
            "epochs": 1,
            "learning_rate": 0.0,
            "train::lr_schedule::warmup_epochs": 0,
            "train::run::val_interval": 1,
        },
        "adapted": {"pretrained": str(pretrained), **(REAL_ADAPTING if real else {}), **adapting},
    }
    for name, settings in stages.items():
        if name == "untrained" and not untrained:
            continue
        stage = folder / name
        chosen = (
            {"add_lesions::amplitude": REAL_TRAINING["add_lesions::amplitude"], **SCORING}
            if real
            else {}
        )
        run(
            config_file=ADAPT,
            seed=seed,
            ckpt_dir=str(stage),
            output_dir=str(stage),
            **common,
            **chosen,
            **settings,
        )
        weights = str(stage / "model.pt")
        run(
            config_file=EVALUATE, ckpt_path=weights, output_dir=str(stage), **source, **phantom_seed
        )
        figures[name] = json.loads((stage / "metrics.json").read_text())
    return figures


def summary(runs: list[dict[str, Any]], baselines: dict[str, Any]) -> pd.DataFrame:
    """Mean and standard deviation over the seeds, one row per score."""
    rows = {}
    for stage in ("untrained", "adapted"):
        for name in (*SCORE_NAMES, "darkness", "sharpness", "position_only"):
            values = pd.DataFrame([figures_of(seed[stage], name) for seed in runs if stage in seed])
            if stage == "untrained" and name in ("darkness", "sharpness", "position_only"):
                continue
            rows[f"{stage} {name}"] = {
                key: f"{values[key].mean():.3f} ± {values[key].std():.3f}"
                if len(values) > 1
                else f"{values[key][0]:.3f}"
                for key in values
            }
    rows["pca"] = {key: f"{value:.3f}" for key, value in figures_of(baselines, "pca").items()}
    return pd.DataFrame(rows).T


def figures_of(metrics: dict[str, Any], name: str) -> dict[str, float]:
    """The figures of one score that a table shows."""
    found = {"AUC": metrics["detection"].get(name, {}).get("auc")}
    found |= {
        f"AUC {view}": row["auc"].get(name) for view, row in metrics.get("within_view", {}).items()
    }
    found["matched"] = metrics.get("matched_pairs", {}).get(name, {}).get("auc")
    where = metrics.get("localization", {}).get(name, {})
    found |= {"box AUROC": where.get("pixel_auroc"), "pointing": where.get("pointing")}
    controlled = [row["auc"].get(name) for row in metrics.get("controlled", {}).values()]
    found["painted"] = (
        float(np.mean(controlled)) if controlled and controlled[0] is not None else None
    )
    return {key: np.nan if value is None else value for key, value in found.items()}


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, help="folder of the real radiographs; without it the phantom"
    )
    parser.add_argument("--output", type=Path, default=Path("bundles/afire/output/real_anomaly"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tune", action="store_true", help="leave the test images alone")
    parser.add_argument("--epochs", type=int, help="of the pre-training")
    parser.add_argument("--adapt_epochs", type=int, help="of the adaptation")
    options = parser.parse_args()
    folder = options.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    epochs = {"train": options.epochs, "adapt": options.adapt_epochs}
    known = {name: value for name, value in epochs.items() if value is not None}
    real = options.data is not None
    runs, baselines = [], {}
    for seed in options.seeds:
        here = folder / f"seed_{seed}"
        here.mkdir(exist_ok=True)
        source: dict[str, Any] = {}
        if real:
            listed, data = (
                write_datalist(options.data, folder, options.tune),
                options.data.resolve(),
            )
            source = {"dataset_dir": str(data), "datalist": str(listed)}
        runs.append(run_seed(seed, here, source, real, known, untrained=not runs))
        if not real:
            listed = Path("bundles/afire/data/phantom/datalist.json")
            data = listed.parent
        if not baselines:
            baselines = evaluate_scores(
                pca_rows(listed, data, bool(REAL_SHAPE["standardize"]) and real), ["pca"]
            )
        table = summary(runs, baselines)
        (folder / "summary.txt").write_text(table.to_string())
    pd.set_option("display.width", 200, "display.max_columns", 20)
    print(table.to_string())


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    main()
