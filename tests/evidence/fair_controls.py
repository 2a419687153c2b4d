# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What PCA, pixels and the shape of the lungs reach in the field of view that the detector has, with intervals.

``python -m tests.evidence.fair_controls --data /path/to/sets`` scores the validation images of ChildCXR, NIH 1k and
NIH 7k by the released encoder and by controls, in the lungs' square and in the lungs' box, whose rows and columns are
cut separately; AUCs and differences have 95 % intervals over patients. ``--section test --sets nih_cxr_7k montgomery``
scores test images. Scores are kept in ``--output``. Protocols are in docs/reports/anatomy_and_controls.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from monai_afire.apps.compare.component_errors import pca_errors
from monai_afire.apps.evaluation.patient_bootstrap import bootstrap_aucs, patient_weights
from monai_afire.detection.field_of_view import LungView, moved
from monai_afire.networks import EfficientNetLiteEncoder, released_encoder
from tests.evidence.radiograph_sets import in_section, part_of
from tests.evidence.real_detection import lung_shapes, pixel_distances, read_set
from tests.evidence.real_encoders import SHAPE, encoder, encoder_scores

SETS = ("childcxr", "nih_cxr_1k", "nih_cxr_7k")
DETECTOR = "released encoder, square"
SMALL_SETS = ("montgomery",)  # 28 test images: its abnormal training images are scored as well
IMAGENET, IMAGENET_SIZE = "ImageNet encoder, square", 128  # a token of its network spans 32 pixels
SAMPLES = 2000
SHAPES = (0.5, 2.0)  # width over height of lungs that are believed


@torch.no_grad()
def lung_crops(images: torch.Tensor) -> dict[str, torch.Tensor]:
    """The lungs' square, and a box of the same center and area in the proportion of the found lungs."""
    view, crops = LungView(), {"square": [], "box": []}
    for batch in images.split(256):
        square, (zoom, shift) = view(batch)
        shape = torch.from_numpy(lung_shapes(batch)).float().clamp(*SHAPES).sqrt()
        sides = zoom * torch.stack([1 / shape, shape], 1)
        crops["square"].append(square)
        crops["box"].append(moved(batch, sides, torch.zeros_like(shape), shift))
    return {name: torch.cat(parts) for name, parts in crops.items()}


def control_scores(table: pd.DataFrame, images: torch.Tensor) -> pd.DataFrame:
    """All but the training images, with every score; statistics of the training normals."""
    networks = {"released encoder": str(released_encoder()), "untrained encoder": ""}
    training = in_section(table, "training")
    rows = table[table["section"] != "training"].reset_index(drop=True)
    for field, crops in lung_crops(images).items():
        for name, weights in networks.items():
            network = encoder(weights, SHAPE).eval()
            rows[f"{name}, {field}"] = encoder_scores(table, crops, network, copies=0)[
                "fused"
            ].to_numpy()
        pixels = crops.flatten(1).numpy()
        parts = pixels[training], pixels[~training]
        rows[f"PCA, {field}"], rows[f"pixel neighbors, {field}"] = (
            pca_errors(*parts),
            pixel_distances(*parts),
        )
    rows["wide lungs"] = lung_shapes(images[~training])
    return rows.assign(blur=-rows["sharpness"], darkness=-rows["brightness"])


def imagenet_scores(table: pd.DataFrame, images: torch.Tensor) -> np.ndarray:
    """The detector's score of all but the training images, by ImageNet's network in the lungs' square."""
    network = EfficientNetLiteEncoder(img_size=tuple(images.shape[-2:]), pretrained=True).eval()
    crops = lung_crops(images)["square"]
    return encoder_scores(table, crops, network, copies=0)["fused"].to_numpy()


def scored(folder: Path, output: Path, section: str) -> pd.DataFrame:
    """Scores of a section of a set, those on disk if there are any."""
    stored = output / f"{folder.name}_{section}.csv"
    if not stored.is_file():
        place = output / folder.name
        place.mkdir(parents=True, exist_ok=True)
        small, large = (
            section_of_set(folder, place, size, section)
            for size in (SHAPE["image_size"], IMAGENET_SIZE)
        )
        rows = control_scores(*small)
        rows[IMAGENET] = imagenet_scores(*large)
        rows.to_csv(stored, index=False)
    return pd.read_csv(stored, dtype={"patient": str}, keep_default_na=False)


def section_of_set(
    folder: Path, place: Path, size: int, section: str
) -> tuple[pd.DataFrame, torch.Tensor]:
    """The normal training images and a section of a set, at a size."""
    table, images = read_set(folder, place, size, abnormal_training=folder.name in SMALL_SETS)
    # no statistics are taken from abnormal images
    is_abnormal_training = (table["section"] == "training") & (table["label"] == 1)
    table["section"] = table["section"].mask(is_abnormal_training, section)
    return part_of(table, images, table["section"].isin(["training", section]))


def auc_samples(rows: pd.DataFrame, name: str) -> np.ndarray:
    """AUC of all images, then of random samples of their patients."""
    weights = patient_weights(rows["patient"], SAMPLES, include_original=True)
    return bootstrap_aucs(rows[["label"]].to_numpy(dtype=float), rows[[name]].to_numpy(), weights)


def with_interval(samples: np.ndarray, sign: str = "") -> str:
    """The first value, with the 95 % interval of the others."""
    low, high = np.nanpercentile(samples[1:], [2.5, 97.5])
    return f"{samples[0]:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def comparison(sets: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """AUC of every score and what the detector is above it, for each set, and the mean difference over the sets."""
    first = next(iter(sets.values()))
    names = list(first.columns[list(first.columns).index(DETECTOR) :])
    samples = {name: {key: auc_samples(rows, name) for key, rows in sets.items()} for name in names}
    result = {}
    for name in names:
        differences = {key: samples[DETECTOR][key] - samples[name][key] for key in sets}
        row = {key: with_interval(samples[name][key]) for key in sets}
        row |= {
            f"detector less it, {key}": with_interval(each, "+")
            for key, each in differences.items()
        }
        row["detector less it, mean"] = with_interval(
            np.mean(list(differences.values()), axis=0), "+"
        )
        result[name] = row
    return pd.DataFrame(result).T


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    parser.add_argument("--sets", nargs="+", choices=[*SETS, *SMALL_SETS], default=SETS)
    parser.add_argument("--section", choices=["validation", "test"], default="validation")
    parser.add_argument("--output", type=Path, default=Path("results/fair_controls"))
    options = parser.parse_args()
    sets = {
        name: scored(options.data.resolve() / name, options.output, options.section)
        for name in options.sets
    }
    print(comparison(sets).to_markdown())


if __name__ == "__main__":
    main()
