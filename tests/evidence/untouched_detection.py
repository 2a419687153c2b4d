# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The detector on patients whom no pre-training has seen, cross-fitted, over pre-trainings and patients.

``python -m tests.evidence.untouched_detection --normals /path/to/adult_normals/images --data /path/to/nih_cxr_7k``
pre-trains each method once per seed and scores every image by a detector of the normal images of the other folds.
Scores that are there are not computed again. ``--pack`` puts them into one file, ``tests/evidence/scores``. Without
``--data`` the command makes the tables of ``docs/reports/untouched_detection.md`` from that file alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from monai_afire.apps.compare.component_errors import pca_errors
from monai_afire.apps.evaluation import bootstrap_aucs, bootstrap_p_value, patient_weights
from monai_afire.apps.experiments import read_arms
from monai_afire.networks import EfficientNetLiteEncoder, released_encoder
from tests.evidence.component_endpoint import holm
from tests.evidence.draws_and_patients import both_ways, interval
from tests.evidence.fair_controls import IMAGENET_SIZE, lung_crops
from tests.evidence.radiograph_sets import part_of, pictures, radiograph_table
from tests.evidence.real_components import trained_encoder
from tests.evidence.real_detection import pixel_distances
from tests.evidence.real_encoders import SHAPE, encoder, encoder_scores

PLAN = Path(__file__).parent / "real_radiographs" / "untouched_methods.json"
SCORES = Path(__file__).parent / "scores" / "untouched_detection.npz"
METHODS = ("AFiRe", "MAE", "untrained")
FOLDS = 5
SAMPLES = 2000
ENDPOINT = ("AFiRe", "pixel neighbors, square")
SECONDARY = (
    *("pixel neighbors, box", "PCA, square", "PCA, box", "blur", "darkness"),
    *("MAE", "untrained", "ImageNet", "released"),
)

Scorer = Callable[[pd.DataFrame], NDArray[np.float64]]
"""Scores of the images to be judged, from a table whose "section" says which images are training normals."""

Arm = tuple[str, Callable[[], NDArray[np.float64]]]
"""What is compared: its name, and a function that scores all images."""


def untouched_patients(data: Path) -> pd.DataFrame:
    """
    Images of patients of NIH 7k without a part in any pre-training here and in any earlier look at a test.

    Left out are the test patients, and patients of whom an image is among the adult normals, or called normal by the
    RSNA's readers, since the adult normals come from those.

    Args:
        data: folder of NIH 7k.

    Returns:
        Columns of ``radiograph_table``, and "fold" of the patient.
    """
    listed = pd.read_csv(data / "manifest.csv", dtype={"patient_id": str}, keep_default_na=False)
    touched = listed["same_image_in_adult_normals"] != ""
    touched |= listed["rsna_class"] == "Normal"
    touched |= listed["split"] == "test"
    table = radiograph_table(data)
    table = table[~table["patient"].isin(listed.loc[touched, "patient_id"])]
    return with_folds(table.reset_index(drop=True))


def with_folds(table: pd.DataFrame) -> pd.DataFrame:
    """The fold of each image; all images of a patient are in one."""
    patients = np.unique(table["patient"])
    shuffled = np.random.default_rng(0).permutation(patients)
    fold = {patient: place % FOLDS for place, patient in enumerate(shuffled)}
    return table.assign(fold=table["patient"].map(fold))


def cross_fitted(table: pd.DataFrame, scorer: Scorer) -> NDArray[np.float64]:
    """Scores ``(M,)``: those of each fold by statistics of the normal images of the others."""
    scores = np.full(len(table), np.nan)
    for fold in range(FOLDS):
        judged = table["fold"] == fold
        section = np.where(judged, "judged", np.where(table["label"] == 0, "training", "left out"))
        scores[judged] = scorer(table.assign(section=section))
    return scores


def network_scorer(images: torch.Tensor, network: nn.Module) -> Scorer:
    """The detector's "fused" score of an encoder."""

    def scores(table: pd.DataFrame) -> NDArray[np.float64]:
        part = part_of(table, images, table["section"] != "left out")
        return encoder_scores(*part, network, copies=0)["fused"].to_numpy()

    return scores


def pixel_scorer(
    images: torch.Tensor, measure: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Scorer:
    """A distance of pixels to those of normal images."""
    pixels = images.flatten(1).numpy()

    def scores(table: pd.DataFrame) -> NDArray[np.float64]:
        section = table["section"].to_numpy()
        return measure(pixels[section == "training"], pixels[section == "judged"])

    return scores


def arms(options: argparse.Namespace, table: pd.DataFrame) -> Iterator[Arm]:
    """Names of what is compared, each with a function that scores all images."""
    small, measured = pictures(table["image"].tolist(), SHAPE["image_size"])
    crops = lung_crops(small)
    yield "blur", lambda: -measured["sharpness"].to_numpy()
    yield "darkness", lambda: -measured["brightness"].to_numpy()
    yield from pixel_arms(table, crops)
    released = encoder(str(released_encoder()), SHAPE).eval()
    yield "released", partial(cross_fitted, table, network_scorer(crops["square"], released))
    yield "ImageNet", partial(imagenet_scores, table)
    yield from pretrained_arms(options, table, crops["square"])


def pixel_arms(table: pd.DataFrame, crops: Mapping[str, torch.Tensor]) -> Iterator[Arm]:
    """PCA and pixel neighbors in each field of view."""
    for field, images in crops.items():
        for name, measure in (("PCA", pca_errors), ("pixel neighbors", pixel_distances)):
            yield f"{name}, {field}", partial(cross_fitted, table, pixel_scorer(images, measure))


def pretrained_arms(
    options: argparse.Namespace, table: pd.DataFrame, images: torch.Tensor
) -> Iterator[Arm]:
    """Each method of the plan with each seed, the seeds in order."""
    settings = json.loads(PLAN.read_text())["overrides"]
    shared = {"dataset_dir": str(options.normals.resolve())}
    plan = read_arms(PLAN, options.output / "pretraining", shared)
    methods = {arm if isinstance(arm, str) else arm.name: arm for arm in plan}

    def scores(name: str, seed: int) -> NDArray[np.float64]:
        network = trained_encoder(methods[name], seed, settings).eval()
        return cross_fitted(table, network_scorer(images, network))

    for seed, name in itertools.product(options.seeds, options.only):
        yield f"{name}-seed_{seed}", partial(scores, name, seed)


def imagenet_scores(table: pd.DataFrame) -> NDArray[np.float64]:
    """The score of ImageNet's network, which sees larger pictures."""
    images, _ = pictures(table["image"].tolist(), IMAGENET_SIZE)
    square = lung_crops(images)["square"]
    return cross_fitted(table, network_scorer(square, imagenet_encoder()))


def imagenet_encoder() -> nn.Module:
    """EfficientNet-Lite0 with ImageNet's weights."""
    size = (IMAGENET_SIZE, IMAGENET_SIZE)
    return EfficientNetLiteEncoder(img_size=size, pretrained=True).eval()


def pack(folder: Path, table: pd.DataFrame, file: Path) -> None:
    """Put the scores of a folder into one file, with what tables need of the list."""
    packed = {
        "image": np.array([Path(image).name for image in table["image"]]),
        "patient": table["patient"].to_numpy(str),
        "view": table["view"].to_numpy(str),
        "label": table["label"].to_numpy(np.int8),
        "fold": table["fold"].to_numpy(np.int8),
    }
    for stored in sorted(folder.glob("*.npy")):
        packed[f"run:{stored.stem}"] = np.load(stored).astype(np.float32)
    np.savez_compressed(file, **packed)


def fold_aucs(rows: pd.DataFrame, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """
    Mean over folds of the AUC within the fold ``(1 + SAMPLES,)``: of all patients, then of samples of them.

    Images of two folds are not compared with each other, since other normal images gave their scores.
    """
    found = []
    for fold in range(FOLDS):
        judged = (rows["fold"] == fold).to_numpy()
        part = rows[judged]
        weights = patient_weights(part["patient"], SAMPLES, seed=fold, include_original=True)
        labels = part[["label"]].to_numpy(float)
        found.append(bootstrap_aucs(labels, scores[judged][:, None], weights))
    return np.mean(found, axis=0)


def read_aucs(file: Path, view: str | None) -> dict[str, NDArray[np.float64]]:
    """AUCs ``(seeds, 1 + SAMPLES)`` of each arm, for the images of a view, or all."""
    found: dict[str, list[NDArray[np.float64]]] = {}
    with np.load(file) as content:
        columns = ("image", "patient", "view", "label", "fold")
        rows = pd.DataFrame({name: content[name] for name in columns})
        kept = np.ones(len(rows), bool) if view is None else (rows["view"] == view).to_numpy()
        for name in sorted(name for name in content.files if name.startswith("run:")):
            arm = name.removeprefix("run:").split("-seed_")[0]
            scores = content[name][kept].astype(float)
            found.setdefault(arm, []).append(fold_aucs(rows[kept], scores))
    return {arm: np.stack(aucs) for arm, aucs in found.items()}


def comparison(found: Mapping[str, NDArray[np.float64]]) -> pd.DataFrame:
    """A row per arm: AUC, and what AFiRe is above it; p of the secondary comparisons after Holm."""
    means = {arm: both_ways(aucs, place) for place, (arm, aucs) in enumerate(found.items())}
    first, endpoint = ENDPOINT
    rows = {first: {"runs": len(found[first]), "AUC": interval(means[first])}}
    for arm in (endpoint, *(name for name in SECONDARY if name in means)):
        difference = means[first] - means[arm]
        rows[arm] = {"runs": len(found[arm]), "AUC": interval(means[arm])}
        rows[arm] |= {"AFiRe minus it": interval(difference)}
        rows[arm] |= {"p": bootstrap_p_value(difference[1:])}
    table = pd.DataFrame(rows).T
    secondary = [arm for arm in table.index if arm not in ENDPOINT]
    table.loc[secondary, "p, Holm"] = holm(table.loc[secondary, "p"].to_numpy(float))
    return table


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--normals", type=Path, help="folder of the images to pre-train on")
    parser.add_argument("--data", type=Path, help="nih_cxr_7k")
    parser.add_argument("--output", type=Path, default=Path("results/untouched_detection"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--pack", action="store_true", help="put the scores into one file")
    parser.add_argument("--scores", type=Path, default=SCORES)
    options = parser.parse_args()
    if options.data is None:
        for view in ("PA", None):
            print(f"\n{view or 'all'} views\n")
            print(comparison(read_aucs(options.scores, view)).to_markdown(floatfmt=".3f"))
        return
    options.output = options.output.resolve()
    folder = options.output / "scores"
    folder.mkdir(parents=True, exist_ok=True)
    table = untouched_patients(options.data.resolve())
    if options.pack:
        pack(folder, table, options.scores)
        return
    for name, score in arms(options, table):
        stored = folder / f"{name}.npy"
        if not stored.is_file():
            np.save(stored, score())
            print(f"{name} is scored", flush=True)


if __name__ == "__main__":
    main()
