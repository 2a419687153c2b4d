# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""How often normal radiographs get small p-values: like those a detector was calibrated on, and others.

``python -m tests.evidence.detector_calibration --data /path/to/sets`` scores the adult normals that the released
detector was not trained on. Random halves of them calibrate it, and the others are tested. Then it tests normal images
of other sets, and detectors of the released encoder that are fitted to NIH 7k. ``--write FILE`` saves the detector
with the scores of all held-out adult normals. Test images are never read.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest

from monai_afire.data import load_radiograph_datalist
from monai_afire.detection import AnomalyDetector, conformal_p_values, load_detector, save_detector
from monai_afire.networks.weights.model_file import ModelFile
from tests.evidence.radiograph_sets import pictures, radiograph_table, validation_normals
from tests.evidence.real_detection import detector_scores, fitted_detector

RELEASED = Path("bundles/afire/released/detector.safetensors")
SIZE = 64
HALVES = 200  # random ones
NOTES = {
    "data": "8,722 adult normals (NIH ChestX-ray14 images, RSNA 2018 labels)",
    "use": "research only, not for clinical use",
}
LEVELS = (0.01, 0.05, 0.1)
FUSED = -1  # the last score of a detector


def halves(scores: NDArray, patients: NDArray, number: int = HALVES) -> NDArray[np.float64]:
    """
    Shares ``(number, levels)`` of images whose p-value is at most each level, when other patients calibrate.

    One image per patient, drawn anew each time: images of one patient are not exchangeable with those of others.
    """
    generator = np.random.default_rng(0)
    shares = []
    for _ in range(number):
        order = generator.permutation(len(scores))
        _, first = np.unique(patients[order], return_index=True)
        chosen = generator.permutation(order[first])
        calibrating, tested = np.array_split(scores[chosen], 2)
        shares.append(
            [(conformal_p_values(tested, calibrating) <= level).mean() for level in LEVELS]
        )
    return np.array(shares)


def repeated(name: str, scores: NDArray, patients: NDArray) -> dict[str, object]:
    """A row of the table: shares by random halves, their mean and the central 95 % of them."""
    shares = halves(scores, patients)
    row: dict[str, object] = {"normal images": name, "tested": len(np.unique(patients)) // 2}
    for level, column in zip(LEVELS, shares.T, strict=True):
        low, high = np.quantile(column, [0.025, 0.975])
        row[f"p <= {level}"] = f"{column.mean():.3f} ({low:.3f} to {high:.3f})"
    return row


def once(name: str, scores: NDArray, calibration: NDArray) -> dict[str, object]:
    """A row of the table: shares of images of another set, with exact intervals."""
    p_values = conformal_p_values(scores, calibration)
    row: dict[str, object] = {"normal images": name, "tested": len(scores)}
    for level in LEVELS:
        found = binomtest(int((p_values <= level).sum()), len(scores))
        interval = found.proportion_ci()
        row[f"p <= {level}"] = f"{found.statistic:.3f} ({interval.low:.3f} to {interval.high:.3f})"
    return row


def held_out_normals(data: Path) -> list[str]:
    """The tenth of the adult normals that the bundle's split with seed 0 keeps for validation."""
    items = load_radiograph_datalist(
        dataset_dir=str(data / "adult_normals" / "images"), section="validation"
    )
    return [item["image"] for item in items]


def other_sets(data: Path) -> dict[str, list[str]]:
    """Normal images of other sets, without test images and without those that are among the adult normals."""
    manifest = pd.read_csv(data / "nih_cxr_7k" / "manifest.csv")
    known = manifest["same_image_in_adult_normals"].notna() | (
        manifest["same_image_in_nih_cxr_1k"] == 1
    )
    kept = (manifest["split"] == "val") & (manifest["findings"] == "No Finding") & ~known
    sets = {}
    for view, names in manifest[kept].groupby("view")["image"]:
        sets[f"NIH 7k, {view}"] = [str(data / "nih_cxr_7k" / name) for name in names]
    for title, folder in (("NIH 1k", "nih_cxr_1k"), ("ChildCXR", "childcxr")):
        table = radiograph_table(data / folder)
        sets[title] = table.loc[validation_normals(table), "image"].tolist()
    table = radiograph_table(data / "montgomery")  # without a validation section
    sets["Montgomery"] = table.loc[
        (table["section"] == "training") & (table["label"] == 0), "image"
    ].tolist()
    return sets


def scores_of(detector: AnomalyDetector, paths: list[str]) -> NDArray:
    """``(M, scores)`` of the radiographs in files."""
    return detector_scores(detector, pictures(paths, SIZE)[0])


def fitted_to_nih(data: Path, detector: AnomalyDetector) -> tuple[NDArray, NDArray]:
    """Scores and patients of the normal validation images of NIH 7k, with statistics of its training normals."""
    table = radiograph_table(data / "nih_cxr_7k")
    training = table[(table["section"] == "training") & (table["label"] == 0)].sample(
        1500, random_state=0
    )
    validation = table[validation_normals(table)]
    normal, _ = pictures(training["image"].tolist(), SIZE)
    fitted = fitted_detector(detector.network.encoder, normal, {"memory_size": 512})
    scores = scores_of(fitted, validation["image"].tolist())
    return scores[:, FUSED], validation["patient"].to_numpy()


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with adult_normals, nih_cxr_7k, ..."
    )
    parser.add_argument("--detector", type=Path, default=RELEASED)
    parser.add_argument("--write", type=Path, help="a new detector file")
    options = parser.parse_args()
    detector = load_detector(options.detector)
    scores = scores_of(detector, held_out_normals(options.data))
    fused = scores[:, FUSED]
    rows = [repeated("held-out adult normals, other half calibrates", fused, np.arange(len(fused)))]
    for name, paths in other_sets(options.data).items():
        rows.append(once(name, scores_of(detector, paths)[:, FUSED], fused))
    rows.append(
        repeated(
            "NIH 7k, detector fitted to it, other half calibrates",
            *fitted_to_nih(options.data, detector),
        )
    )
    print(pd.DataFrame(rows).to_markdown(index=False))
    if options.write:
        detector.keep_calibration(torch.from_numpy(scores))
        file = ModelFile(options.detector)
        description = {"preprocessing": asdict(file.preprocessing), "settings": file.settings}
        save_detector(detector, options.write, description, NOTES)


if __name__ == "__main__":
    main()
