# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Detection on real radiographs beside controls and published figures: a pre-trained AFiRe, adapted over several seeds.

``python -m tests.evidence.real_detection --data /path/to/childcxr --pretrained /path/to/model.pt`` adapts the network
to the set's training normals once per seed, takes the detector's statistics from them and its thresholds from the
validation normals, and prints the table of the test images. ``--tune`` prints that of the validation images instead,
to choose settings by; ``--adapt_epochs 0`` adapts nothing but the statistics. The same for a folder with
``manifest.csv``. What was computed stays in ``--output`` and is not computed again.
"""

from __future__ import annotations

import argparse
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from monai.bundle import ConfigParser, run
from sklearn.neighbors import NearestNeighbors

from monai_afire.apps.compare.component_errors import pca_errors
from monai_afire.apps.compare.encoders import in_field_of_view
from monai_afire.apps.evaluation import evaluate_scores
from monai_afire.detection import AnomalyDetector, load_detector
from monai_afire.detection.field_of_view import FIELDS_OF_VIEW
from monai_afire.detection.scores import SCORE_NAMES
from monai_afire.metrics.binary_classification import roc_auc
from monai_afire.networks import LungFinder, load_network
from tests.evidence.radiograph_sets import (
    in_section,
    part_of,
    pictures,
    radiograph_table,
    validation_normals,
)

CONFIGS = "bundles/afire/configs/"
ADAPT = [CONFIGS + "train.json", CONFIGS + "finetune_anomaly.json"]
OVERRIDES = {
    "image_size": 64,
    "patch_size": 8,
    "encoder_def::hidden_size": 192,
    "encoder_def::num_layers": 6,
    "encoder_def::num_heads": 6,
    "network_def::num_clusters": 64,
}
ADAPTING = {
    "learning_rate": 3e-4,
    "batch_size": 32,
    "add_lesions::num_masks": 1,
    "add_lesions::amplitude": [0.15, 0.6],
    "standardize": True,
    "train::lr_schedule::warmup_epochs": 0,
}
PIXEL_NEIGHBORS = 5
IMAGE_CONTROLS = ("PCA", "pixel neighbors", "wide lungs")
NUM_QUARTILES = 4
FUSED_SCORES = ("token_mean_density", "token_neighbors")
DETECTOR_OPTIONS = ("copies", "views", "memory_size", "field_of_view", "score_fusion")
CONTROLS = {
    "darkness": ("brightness", -1),
    "blur": ("sharpness", -1),
    "blur of the standardized": ("standard_sharpness", -1),
}
# ChildCXR, test AUC in per cent, AFiRe's Table 3
PUBLISHED = {"AFiRe": 90.8, "AnatPaste": 91.4, "SQUID": 87.6, "MemAE": 77.8}


def read_set(
    data: Path, output: Path, size: int, abnormal_training: bool = False
) -> tuple[pd.DataFrame, torch.Tensor]:
    """Table of the set with what its pictures are like, and the pictures; a detector's without training abnormals."""
    name = "labeled" if abnormal_training else "pictures"
    stored, listed = (
        output / f"{name}_{size}.npz",
        output / ("labeled.csv" if abnormal_training else "table.csv"),
    )
    if stored.is_file():
        images = torch.from_numpy(np.load(stored)["images"]).float()
        return pd.read_csv(listed, keep_default_na=False), images
    table = radiograph_table(data)
    if not abnormal_training:
        table = table[(table["section"] != "training") | (table["label"] == 0)].reset_index(
            drop=True
        )
    images, measured = pictures(table["image"].tolist(), size)
    table = pd.concat([table, measured], axis=1)
    table.to_csv(listed, index=False)
    np.savez(stored, images=images.half().numpy())
    # as from the file: otherwise the first run finds other lungs than the next
    return (
        table,
        images.half().float(),
    )


def adapted_weights(
    table: pd.DataFrame, pretrained: str, seed: int, epochs: int, folder: Path
) -> str:
    """Adapt a network to the training normals; "" pre-trained starts from scratch."""
    weights = folder / "model.pt"
    if not weights.is_file():
        listed = folder / "datalist.json"
        items = {
            section: [{"image": path, "label": 0} for path in table.loc[chosen, "image"]]
            for section, chosen in (
                ("training", table["section"] == "training"),
                ("validation", validation_normals(table)),
            )
        }
        listed.write_text(json.dumps(items))
        options = {
            "epochs": epochs,
            "train::run::val_interval": epochs,
            "seed": seed,
            "datalist": str(listed),
            "resume": True,
        }
        places = {"pretrained": pretrained, "ckpt_dir": str(folder), "output_dir": str(folder)}
        run(config_file=ADAPT, **OVERRIDES, **ADAPTING, **options, **places)
    return str(weights)


def fitted_detector(
    network: torch.nn.Module, normal: torch.Tensor, options: Mapping[str, Any]
) -> AnomalyDetector:
    """A detector with the statistics of normal images."""
    detector = AnomalyDetector(network, **options).eval()
    detector.fit(normal.split(64))
    return detector


@torch.no_grad()
def detector_scores(detector: AnomalyDetector, images: torch.Tensor) -> np.ndarray:
    """``(M, scores)`` of all images."""
    return torch.cat([detector(batch)["scores"] for batch in images.split(64)]).numpy()


def new_network(seed: int) -> torch.nn.Module:
    """The bundle's network with random weights."""
    parser = ConfigParser()
    parser.read_config(ADAPT[0])
    parser.update(OVERRIDES)
    torch.manual_seed(seed)
    return parser.get_parsed_content("network_def").eval()


def network_of(weights: str | None, seed: int) -> torch.nn.Module:
    """A network saved alone, the one within a saved or released detector, or, without weights, an untrained one."""
    if weights and weights.endswith(".safetensors"):
        return load_detector(weights).network
    network = new_network(seed)
    if not weights:
        return network
    state = torch.load(weights, weights_only=True)
    if "network.encoder.norm.weight" in state:
        found = {
            k.removeprefix("network."): v for k, v in state.items() if k.startswith("network.")
        }
        network.load_state_dict(found)
    else:
        load_network(network, weights, "pre-train with train.json first")
    return network


def settings_code(options: argparse.Namespace, names: Sequence[str]) -> str:
    """A short name for the values of some options, so that what other values gave is another file."""
    return f"{zlib.crc32(repr([getattr(options, name) for name in names]).encode()):08x}"


def seed_scores(
    table: pd.DataFrame,
    images: torch.Tensor,
    weights: str | None,
    seed: int,
    options: Mapping[str, Any],
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Scores of all but the training images by one network, untrained if there are no weights; its thresholds."""
    network = network_of(weights, seed)
    training = in_section(table, "training")
    detector = fitted_detector(network, images[training], options)
    judged = table[table["section"] != "training"]
    scores = detector_scores(detector, images[~training])
    normal = validation_normals(judged).to_numpy()
    detector.fit_thresholds(torch.as_tensor(scores[normal]))
    rows = judged.reset_index(drop=True).assign(**dict(zip(SCORE_NAMES, scores.T, strict=True)))
    return rows, dict(zip(SCORE_NAMES, detector.thresholds.tolist(), strict=True))


def pixel_distances(normal: np.ndarray, scored: np.ndarray) -> np.ndarray:
    """Mean distance ``(M,)`` of rows of pixels to the nearest normal ones."""
    distances, _ = NearestNeighbors(n_neighbors=PIXEL_NEIGHBORS).fit(normal).kneighbors(scored)
    return distances.mean(1)


@torch.inference_mode()
def lung_shapes(images: torch.Tensor) -> np.ndarray:
    """Width of the found lungs over their height ``(M,)``; 1 where none are found."""
    finder, shapes = LungFinder.released(), []
    for batch in images.split(64):
        lungs = (finder(batch) > 0.5).any(1)
        height, width = lungs.any(2).sum(1), lungs.any(1).sum(1)
        shapes.append(torch.where(height > 0, width / height.clamp(min=1), 1.0))
    return torch.cat(shapes).numpy()


def quartile_aucs(rows: pd.DataFrame, name: str) -> list[float]:
    """AUC within each quartile of the raw pictures' sharpness, the most blurred first."""
    quartile = pd.qcut(rows["sharpness"], NUM_QUARTILES, labels=False).to_numpy()
    parts = [rows[quartile == number] for number in range(NUM_QUARTILES)]
    return [
        roc_auc(part["label"], part[name]) if part["label"].nunique() == 2 else float("nan")
        for part in parts
    ]


def figures(
    rows: pd.DataFrame, names: Sequence[str], thresholds: Mapping[str, float]
) -> pd.DataFrame:
    """One row per score: AUC, in the quartiles of sharpness, in matched pairs, and what its threshold gives."""
    # the spread over seeds is shown instead
    metrics = evaluate_scores(rows, names, thresholds, num_bootstraps=1)
    result = {}
    for name in names:
        found = metrics["detection"][name]
        pairs = metrics.get("matched_pairs", {}).get(name, {}).get("auc")
        values = {"AUC": found["auc"]}
        values |= {f"Q{number + 1}": auc for number, auc in enumerate(quartile_aucs(rows, name))}
        values |= {"matched": pairs, "AP": found["average_precision"]}
        values |= {
            key: found.get(long)
            for key, long in (("ACC", "accuracy"), ("F1", "f1"), ("spec.", "specificity"))
        }
        result[name] = values
    return pd.DataFrame(result).T.astype(float)


def summary(runs: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Mean and standard deviation over the seeds."""
    stacked = np.stack([table.to_numpy() for table in runs])
    mean, spread = stacked.mean(0), stacked.std(0, ddof=1) if len(runs) > 1 else None
    cells = [
        [
            ""
            if np.isnan(value)
            else f"{value:.3f}" + ("" if spread is None else f" ± {spread[i, j]:.3f}")
            for j, value in enumerate(row)
        ]
        for i, row in enumerate(mean)
    ]
    return pd.DataFrame(cells, index=runs[0].index, columns=runs[0].columns)


def judged(
    table: pd.DataFrame, images: torch.Tensor, options: argparse.Namespace, stage: str, seed: int
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Scores and thresholds of one network, those on disk if there are any."""
    section = "validation" if options.tune else "test"
    code = settings_code(options, ("pretrained", "adapt_epochs", *DETECTOR_OPTIONS))
    scores, thresholds = (
        options.output / f"{stage}_{seed}_{section}_{code}.{kind}" for kind in ("csv", "json")
    )
    if thresholds.is_file():
        return pd.read_csv(scores, keep_default_na=False), json.loads(thresholds.read_text())
    weights = None
    if stage == "AFiRe":
        weights = options.pretrained
        if options.adapt_epochs:
            folder = (
                options.output
                / f"seed_{seed}_{settings_code(options, ('pretrained', 'adapt_epochs'))}"
            )
            folder.mkdir(exist_ok=True)
            weights = adapted_weights(table, weights, seed, options.adapt_epochs, folder)
    detector = {name: getattr(options, name) for name in DETECTOR_OPTIONS}
    rows, found = seed_scores(table, images, weights, seed, detector)
    rows.to_csv(scores, index=False)
    thresholds.write_text(json.dumps(found))
    return rows, found


def run_benchmark(options: argparse.Namespace) -> pd.DataFrame:
    """All seeds, the untrained network and the controls; the table as it is printed."""
    options.output = options.output.resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    table, images = read_set(options.data.resolve(), options.output, int(OVERRIDES["image_size"]))
    section = "validation" if options.tune else "test"
    # thresholds come from the validation normals; its abnormal images are for --tune alone
    kept = table["section"].isin(["training", section]) | validation_normals(table)
    table, images = part_of(table, images, kept)
    shown = {}
    for stage, seeds in (("AFiRe", options.seeds), ("untrained", options.seeds[:1])):
        runs = []
        for seed in seeds:
            rows, thresholds = judged(table, images, options, stage, seed)
            runs.append(figures(rows[rows["section"] == section], SCORE_NAMES, thresholds))
        shown |= {f"{stage} {name}": row for name, row in summary(runs).iterrows()}
    result = pd.concat(
        [pd.DataFrame(shown).T, summary([controls(table, images, section, options.field_of_view)])]
    )
    (options.output / f"summary_{section}.txt").write_text(result.to_string())
    return result


def controls(
    table: pd.DataFrame, images: torch.Tensor, section: str, field_of_view: str
) -> pd.DataFrame:
    """PCA and distances of pixels in the detector's field of view; the shape of the lungs, and exposure, alone."""
    pixels = in_field_of_view(images, field_of_view).flatten(1).numpy()
    training = (table["section"] == "training").to_numpy()
    parts = pixels[training], pixels[~training]
    rows = table[~training].reset_index(drop=True)
    rows = rows.assign(**{"PCA": pca_errors(*parts), "pixel neighbors": pixel_distances(*parts)})
    rows["wide lungs"] = lung_shapes(images[torch.from_numpy(~training)])
    for name, (column, sign) in CONTROLS.items():
        rows[name] = sign * rows[column]
    return figures(rows[rows["section"] == section], [*IMAGE_CONTROLS, *CONTROLS], {})


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="ChildCXR, or a folder with manifest.csv"
    )
    parser.add_argument(
        "--pretrained",
        required=True,
        help="weights of train.json, or a detector's; '' for none",
    )
    parser.add_argument("--output", type=Path, default=Path("bundles/afire/output/real_detection"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--adapt_epochs", type=int, default=10)
    parser.add_argument(
        "--copies", type=int, default=1, help="of each normal image with another field of view"
    )
    parser.add_argument("--views", type=int, default=9, help="that an image is judged in")
    parser.add_argument("--memory_size", type=int, default=1024)
    parser.add_argument("--field_of_view", choices=FIELDS_OF_VIEW, default="image")
    parser.add_argument(
        "--score_fusion", nargs="+", choices=SCORE_NAMES[:-1], default=list(FUSED_SCORES)
    )
    parser.add_argument("--tune", action="store_true", help="leave the test images alone")
    options = parser.parse_args()
    result = run_benchmark(options)
    pd.set_option("display.width", 250, "display.max_columns", 20)
    print(result.to_string())
    print(
        "published on ChildCXR's test images:",
        ", ".join(f"{name} {auc}" for name, auc in PUBLISHED.items()),
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    main()
