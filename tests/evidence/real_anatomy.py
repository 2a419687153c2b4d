# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""PEAC's and ACE's claims on radiographs: encoders of equal budget beside untrained ones, pixels, copied coordinates.

``python -m tests.evidence.real_anatomy --data /path/to/sets --normals /path/to/normals`` pre-trains each arm of the
report of components once per seed, unless that is done, and measures on JSRT whether places are found in other patients
and whether organs can be handed on, and on NIH 7k whether a patch is the mean of its parts. One half of JSRT chooses,
the other is reported. Every measurement is kept in ``--output``; ``--table`` prints those that are there. The protocol
is in docs/reports/anatomy_and_controls.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch.nn import functional as F
from tqdm import tqdm

from monai_afire.apps.evaluation.patient_bootstrap import patient_weights
from monai_afire.apps.evaluation.raw_pixels import RawPixels
from monai_afire.apps.experiments import Pretraining, read_arms
from monai_afire.apps.studies import (
    compositionality,
    cosegment,
    decomposition_and_retrieval,
    landmark_correspondence,
    position_labels,
    same_place_correspondence,
    score_segments,
)
from monai_afire.apps.studies.features.dense import FeatureMaps
from monai_afire.networks import RadiographEncoder, released_encoder
from tests.evidence.jsrt_correspondence import ORGANS, SIZE, contour_points, scaled
from tests.evidence.radiograph_sets import pictures, radiograph_table
from tests.evidence.real_components import trained_encoder
from tests.evidence.real_encoders import SHAPE, encoder

FOLDER = Path("tests/evidence/real_radiographs")
ARMS = [FOLDER / "afire_components.json", FOLDER / "methods_short.json"]
METHODS = ("ACE", "PEAC", "AFiRe", "MAE", "DINO")
COPIED = "copied coordinates"
STRIDE, REFERENCES, EVERY, SEGMENTS, SAMPLES = 4, 5, 6, 32, 2000
SETTINGS = {
    "correspondence": [{"remove_position": removed} for removed in (False, True)],
    "transfer": [
        {"remove_position": removed, "neighbors": k}
        for removed in (False, True)
        for k in (1, 5, 25)
    ],
    "cosegmentation": [{"remove_position": removed} for removed in (False, True)],
}
LOWER_IS_BETTER = ("correspondence",)


@dataclass(frozen=True)
class Anatomy:
    """Images ``(M, 1, H, W)``, points ``(M, P, 2)`` in pixels and organs ``(M, O, H, W)``; the first are annotated."""

    images: torch.Tensor
    points: torch.Tensor
    organs: torch.Tensor

    def part(self, rows: Sequence[int]) -> Anatomy:
        """Some of the images."""
        return Anatomy(self.images[rows], self.points[rows], self.organs[rows])


def read_jsrt(folder: Path) -> Anatomy:
    """All images with contours of lungs and heart, from both published parts, in the order of their names."""
    found = [contour_points(folder, 10**6, EVERY, split) for split in ("train", "test")]
    files, points = (
        [file for part in found for file in part[0]],
        torch.cat([part[1] for part in found]),
    )
    order = np.argsort([Path(file).name for file in files])
    files = [files[index] for index in order]
    organs = [
        [
            np.asarray(Image.open(folder / "masks" / organ.replace("_", " ") / Path(file).name)) > 0
            for organ in ORGANS
        ]
        for file in files
    ]
    masks = (
        F.interpolate(torch.from_numpy(np.array(organs)).float(), (SIZE, SIZE), mode="area") >= 0.5
    )
    return Anatomy(pictures(files, SIZE)[0], scaled(points[torch.from_numpy(order)], SIZE), masks)


def halves(anatomy: Anatomy) -> dict[str, Anatomy]:
    """Every second image chooses, the others report; the annotated images of the choosing half come first in both."""
    choosing, reporting = (list(range(start, len(anatomy.images), 2)) for start in (0, 1))
    annotated = choosing[:: len(choosing) // REFERENCES][:REFERENCES]
    parts = {"choosing": [row for row in choosing if row not in annotated], "reporting": reporting}
    return {name: anatomy.part(annotated + rows) for name, rows in parts.items()}


def correspondence(
    network: RadiographEncoder, anatomy: Anatomy, remove_position: bool
) -> np.ndarray:
    """Mean error of each image that is not annotated, in percent of the side."""
    options = {"stride": STRIDE, "remove_position": remove_position, "progress": False}
    table = landmark_correspondence(
        network, anatomy.images, anatomy.points, range(REFERENCES), **options
    )
    return errors(table)


def errors(table: pd.DataFrame) -> np.ndarray:
    """Mean error of each image that is not annotated, in percent of the side."""
    return (
        100
        * table[table["query"] >= REFERENCES].groupby("query")["error_fraction"].mean().to_numpy()
    )


def mean_dice(found: torch.Tensor, organs: torch.Tensor) -> np.ndarray:
    """Mean Dice over the organs of each image, both ``(M, O, H, W)`` bool."""
    common, total = (found & organs).sum((2, 3)), found.sum((2, 3)) + organs.sum((2, 3))
    return (2 * common / total.clamp_min(1)).mean(1).numpy()


@torch.no_grad()
def transfer(
    network: RadiographEncoder, anatomy: Anatomy, remove_position: bool, neighbors: int
) -> np.ndarray:
    """Dice of organs that each cell takes from its nearest cells in the annotated images."""
    with tqdm(disable=True) as bar:
        maps = FeatureMaps(network, anatomy.images, STRIDE, 32, bar)
        if remove_position:
            maps.remove_mean()
        features = torch.cat([part for _, part in maps(range(len(anatomy.images)))])
    features = F.normalize(features, dim=1).flatten(2).transpose(1, 2)
    side = SIZE // STRIDE
    known = F.interpolate(anatomy.organs[:REFERENCES].float(), (side, side), mode="area")
    labels = known.flatten(2).transpose(1, 2).flatten(0, 1)
    bank = features[:REFERENCES].flatten(0, 1).T
    votes = torch.stack(
        [labels[(part @ bank).topk(neighbors).indices].mean(1) for part in features[REFERENCES:]]
    )
    votes = votes.transpose(1, 2).unflatten(2, (side, side))
    found = F.interpolate(votes, (SIZE, SIZE), mode="bilinear") > 0.5
    return mean_dice(found, anatomy.organs[REFERENCES:])


def cosegmentation(
    network: RadiographEncoder, anatomy: Anatomy, remove_position: bool
) -> np.ndarray:
    """Dice of organs that joint segments make, once the annotated images name the segments."""
    options = {"stride": STRIDE, "remove_position": remove_position, "progress": False}
    return named(cosegment(network, anatomy.images, SEGMENTS, **options), anatomy)


def named(labels: torch.Tensor, anatomy: Anatomy) -> np.ndarray:
    """Mean Dice over the organs of each image that is not annotated."""
    table, _ = score_segments(labels, anatomy.organs, range(REFERENCES))
    return table.groupby("image")["dice"].mean().to_numpy()


TASKS: dict[str, Callable[..., np.ndarray]] = {
    "correspondence": correspondence,
    "transfer": transfer,
    "cosegmentation": cosegmentation,
}


def on_jsrt(
    network: RadiographEncoder, parts: dict[str, Anatomy]
) -> tuple[dict[str, np.ndarray], dict[str, dict]]:
    """Values of the images that are reported, for each task, and the settings that the other half chose."""
    values, chosen = {}, {}
    for name, task in TASKS.items():
        sign = 1 if name in LOWER_IS_BETTER else -1
        tried = [
            sign * task(network, parts["choosing"], **setting).mean() for setting in SETTINGS[name]
        ]
        chosen[name] = SETTINGS[name][int(np.argmin(tried))]
        values[name] = task(network, parts["reporting"], **chosen[name])
    return values, chosen


def copied(anatomy: Anatomy) -> dict[str, np.ndarray]:
    """What copied coordinates reach: the mean of the annotated organs, and each cell a segment."""
    table = same_place_correspondence(anatomy.points, (SIZE, SIZE), range(REFERENCES))
    usual = (anatomy.organs[:REFERENCES].float().mean(0) > 0.5).expand(
        len(anatomy.organs) - REFERENCES, -1, -1, -1
    )
    cells = position_labels(len(anatomy.images), (SIZE // STRIDE,) * 2)
    return {
        "correspondence": errors(table),
        "transfer": mean_dice(usual, anatomy.organs[REFERENCES:]),
        "cosegmentation": named(cells, anatomy),
    }


def on_patches(network: RadiographEncoder, images: torch.Tensor) -> dict[str, np.ndarray]:
    """Of each image: is its patch nearer to its own parts, and is it chosen in the gallery?"""
    parts = compositionality(network, images, (4,), 1, progress=False)
    decomposed, retrieved = decomposition_and_retrieval(network, images, progress=False)
    return {
        "composition": (parts["similarity"] > parts["other_similarity"]).to_numpy(dtype=float),
        "similarity of parts": parts["similarity"].to_numpy(dtype=float),
        "decomposition": decomposed["correct"].to_numpy(dtype=float),
        "retrieval": retrieved["correct"].to_numpy(dtype=float),
    }


def nih_validation(folder: Path, output: Path) -> tuple[torch.Tensor, list[str]]:
    """Validation images of NIH 7k and their patients."""
    table = radiograph_table(folder)
    table, stored = table[table["section"] == "validation"], output / "nih_validation.npy"
    if not stored.is_file():
        np.save(stored, pictures(table["image"].tolist(), SIZE)[0].numpy())
    return torch.from_numpy(np.load(stored)), table["patient"].tolist()


def network_of(name: str, seed: int, arms: dict[str, Pretraining]) -> RadiographEncoder:
    """An encoder by its name: a method's, one that learned nothing, pixels, or the released one."""
    if name == "pixels":
        return RawPixels(1, (SIZE, SIZE), (8, 8))
    if name == "released":
        return encoder(str(released_encoder()), SHAPE)
    shared = json.loads(ARMS[0].read_text())["overrides"]
    return trained_encoder(arms[name] if name in METHODS else name, seed, shared).eval()


def measure(options: argparse.Namespace, runs: Sequence[tuple[str, int]]) -> None:
    """Measure all encoders whose file is not there yet."""
    shared = {"dataset_dir": str(options.normals.resolve())}
    found = [
        arm for path in ARMS for arm in read_arms(path, options.output / "pretraining", shared)
    ]
    arms = {arm.name: arm for arm in found if isinstance(arm, Pretraining)}
    parts = halves(read_jsrt(options.data / "jsrt"))
    images, _ = nih_validation(options.data / "nih_cxr_7k", options.output)
    np.savez(options.output / f"{COPIED}_0.npz", **copied(parts["reporting"]))
    for name, seed in runs:
        stored = options.output / f"{name}_{seed}.npz"
        if not stored.is_file():
            network = network_of(name, seed, arms)
            values, chosen = on_jsrt(network, parts)
            print(name, seed, chosen, flush=True)
            np.savez(stored, **values, **on_patches(network, images))


def interval(values: np.ndarray, patients: Sequence[object]) -> str:
    """Mean of the images' values with its 95 % interval over patients."""
    weights = patient_weights(patients, SAMPLES)
    low, high = np.percentile(weights @ values / weights.sum(1), [2.5, 97.5])
    return f"{values.mean():.3f} ({low:.3f} to {high:.3f})"


def table_of(options: argparse.Namespace, runs: Sequence[tuple[str, int]]) -> pd.DataFrame:
    """Each encoder's mean over seeds, and what it is above the untrained encoders of the same seeds."""
    _, patients = nih_validation(options.data / "nih_cxr_7k", options.output)
    rows = []
    for name in dict.fromkeys([name for name, _ in runs] + [COPIED]):
        seeds = [
            seed
            for seed in [*options.seeds, 0]
            if (options.output / f"{name}_{seed}.npz").is_file()
        ]
        seeds = list(dict.fromkeys(seeds))
        own, bare = (
            [np.load(options.output / f"{who}_{seed}.npz") for seed in seeds]
            for who in (name, "untrained")
        )
        for task in own[0] if own else []:
            mean, plain = (np.mean([run[task] for run in every], axis=0) for every in (own, bare))
            groups = patients if len(mean) == len(patients) else range(len(mean))
            difference = "" if name == "untrained" else interval(mean - plain, groups)
            rows.append((task, name, len(seeds), interval(mean, groups), difference))
    return pd.DataFrame(
        rows, columns=["task", "encoder", "seeds", "mean", "minus untrained"]
    ).sort_values("task", kind="stable")


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with jsrt and nih_cxr_7k")
    parser.add_argument(
        "--normals", type=Path, required=True, help="folder of the images to pre-train on"
    )
    parser.add_argument("--output", type=Path, default=Path("results/anatomy"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument(
        "--table", action="store_true", help="print the measurements that are there, nothing else"
    )
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    options.output = options.output.resolve()
    runs = [("pixels", 0), ("released", 0)]
    runs += [(name, seed) for seed in options.seeds for name in ("untrained", *options.methods)]
    if not options.table:
        measure(options, runs)
    print(table_of(options, runs).to_string(index=False))


if __name__ == "__main__":
    main()
