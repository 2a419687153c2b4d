# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The encoder of the released detector, chosen by cross-fitting.

``python -m tests.benchmarks.released.detector --data /path/to/sets --arms released_224 "MAE=mae/mae64_0,mae/mae64_1"``
scores the patients of ``untouched_detection.npz`` by detectors of encoders, and prints their AUCs in PA views. Encoders
are words of ``load_encoder``; several runs of one arm are separated by commas. Scores that are there are kept.
``--test N`` scores the test images of ``detector_test.csv`` instead, and adds a column per arm to this table.
``--write RUN`` writes the released file from a run of ``fit``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from monai_afire.apps.compare.questions import StoredTokens
from monai_afire.detection import AnomalyDetector, load_detector, save_detector
from monai_afire.detection.field_of_view import LungView
from monai_afire.networks import ModelFile, find_weights, load_encoder
from tests.benchmarks.released.sets import maker_parser
from tests.benchmarks.tables import SCORES, fold_aucs, interval

BATCH = 64
TEST = SCORES / "detector_test.csv"
DETECTOR = Path("bundles/afire/released/detector.safetensors")
NOTES = {
    "data": "8,721 adult normals (NIH ChestX-ray14 images, RSNA 2018 labels)",
    "use": "research only, not for clinical use",
}
MEASURED = ("token_mean_density", "token_neighbors", "token_density")
FUSIONS = {"M, N": (0, 1), "M": (0,), "M, D": (0, 2), "N": (1,)}


class Encoded:
    """Images of a set, each encoded once in the square around its lungs."""

    @torch.no_grad()
    def __init__(self, weights: str, paths: list[str]) -> None:
        self.encoder, transform = load_encoder(weights)
        view, tokens = LungView(), []
        for start in tqdm(range(0, len(paths), BATCH), weights):
            images = torch.stack([transform(path) for path in paths[start : start + BATCH]])
            tokens.append(self.encoder(view(images)[0]).half())
        self.tokens = torch.cat(tokens)

    def scores(self, normal: NDArray, judged: NDArray, memory_size: int = 1024) -> NDArray:
        """``MEASURED`` ``(M, 3)`` of judged images, in standard deviations of the normal ones."""
        network = StoredTokens(self.encoder.grid_size, self.encoder.hidden_size)
        detector = AnomalyDetector(network, memory_size=memory_size).eval()
        detector.fit(self.tokens[torch.from_numpy(normal)].float().split(BATCH))
        batches = self.tokens[torch.from_numpy(judged)].split(BATCH)
        with torch.no_grad():
            found = torch.cat([detector(batch.float())["scores"] for batch in batches])[:, :-1]
        standard = (found - detector.score_mean) / detector.score_std
        return standard[:, [detector.score_names.index(name) for name in MEASURED]].numpy()


def cross_fitted(encoded: Encoded, rows: pd.DataFrame, memory_size: int) -> NDArray:
    """Scores ``(M, 3)`` of each fold by statistics of the normal images of the others."""
    scores = np.full((len(rows), len(MEASURED)), np.nan)
    for fold in sorted(set(rows["fold"])):
        judged = (rows["fold"] == fold).to_numpy()
        normal = ~judged & (rows["label"] == 0).to_numpy()
        scores[judged] = encoded.scores(normal, judged, memory_size)
    return scores


def choice(data: Path, output: Path, arms: list[str], memory_size: int) -> pd.DataFrame:
    """AUC in PA views of each arm, as the mean over single runs and as one detector of all runs, by fusion."""
    with np.load(SCORES / "untouched_detection.npz") as content:
        columns = ("image", "patient", "view", "label", "fold")
        rows = pd.DataFrame({name: content[name] for name in columns})
    paths = [str(data / "nih_cxr_7k" / "images" / name) for name in rows["image"]]
    pa = (rows["view"] == "PA").to_numpy()
    found = {}
    for arm in arms:
        title, _, words = arm.rpartition("=")
        runs = []
        for word in words.split(","):
            file = output / f"{word.replace('/', '-')}_{memory_size}.npy"
            if not file.is_file():
                np.save(file, cross_fitted(Encoded(word, paths), rows, memory_size))
            runs.append(np.load(file))
        for name, columns in FUSIONS.items():
            fused = [run[:, columns].mean(1) for run in runs]
            aucs = [fold_aucs(rows[pa], scores[pa]) for scores in fused]
            of_all = fold_aucs(rows[pa], np.mean(fused, axis=0)[pa])
            found[f"{title or words}: {name}"] = {
                "runs": len(runs),
                "single": interval(np.mean(aucs, axis=0)),
                "together": interval(of_all),
            }
    return pd.DataFrame(found).T


def normal_training_images(folder: Path) -> list[Path]:
    """Normal images of a set that its statistics are fitted to: none of them is a test image."""
    if folder.name == "childcxr":
        return sorted(folder.glob("train/NORMAL/*.jpeg"))
    table = pd.read_csv(folder / "manifest.csv")
    if folder.name == "nih_cxr_7k":
        normal = (table["split"] != "test") & (table["findings"] == "No Finding")
    elif folder.name == "nih_cxr_1k":
        normal = (table["split"] == "train") & (table["label"] == 0)
    else:
        normal = (table["published_split"] == "train") & (table["tuberculosis"] == 0)
    return [folder / name for name in table["image"][normal]]


def tested(data: Path, weights: str, memory_size: int, columns: tuple[int, ...]) -> NDArray:
    """Fused scores of the rows of ``detector_test.csv``, by statistics of each set's normal training images."""
    rows = pd.read_csv(TEST, usecols=["set", "image"])
    scores = np.full(len(rows), np.nan)
    for name in sorted(set(rows["set"])):
        own = (rows["set"] == name).to_numpy()
        files = (path for path in (data / name).rglob("*.*") if path.parent.name != "lungs")
        places = {path.name: path for path in files}
        normal = normal_training_images(data / name)
        paths = [*normal, *(places[image] for image in rows["image"][own])]
        judged = np.arange(len(paths)) >= len(normal)
        encoded = Encoded(weights, list(map(str, paths)))
        scores[own] = encoded.scores(~judged, judged, memory_size)[:, columns].mean(1)
    return scores


def write(run: str) -> Path:
    """The detector of a run, with weights and memory in half precision."""
    file = ModelFile(find_weights(run, "anomaly detector"))
    about = {name: getattr(file.description, name) for name in ("preprocessing", "trained_on")}
    return save_detector(load_detector(file.path), DETECTOR, about, NOTES)


def main() -> None:
    """Run from the repository's root."""
    parser = maker_parser(__doc__, "results/detector")
    parser.add_argument("--write", metavar="RUN", help="write the released file")
    parser.add_argument("--arms", nargs="+", default=[], metavar="[NAME=]WEIGHTS[,WEIGHTS]")
    parser.add_argument("--memory_size", type=int, default=1024)
    parser.add_argument("--test", choices=FUSIONS, help="the scores that are fused")
    options = parser.parse_args()
    if options.write:
        print(write(options.write))
        return
    if options.test:
        rows = pd.read_csv(TEST, dtype={"patient": str})
        for arm in options.arms:
            title, _, weights = arm.rpartition("=")
            found = tested(options.data, weights, options.memory_size, FUSIONS[options.test])
            rows.insert(
                rows.columns.get_loc("label") + 1,
                title or weights,
                [f"{score:.6g}" for score in found],
            )
        rows.to_csv(TEST, index=False)
        return
    options.output.mkdir(parents=True, exist_ok=True)
    print(choice(options.data, options.output, options.arms, options.memory_size).to_markdown())


if __name__ == "__main__":
    main()
