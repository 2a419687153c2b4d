# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The encoder of the released detector, chosen by cross-fitting.

``python -m tests.benchmarks.released.detector --data /path/to/sets --arms released_224 "MAE=mae/mae64_0,mae/mae64_1"``
scores the patients of ``untouched_detection.npz`` by detectors of encoders, and prints their AUCs in PA views. Encoders
are words of ``load_encoder``; several runs of one arm are separated by commas. Scores that are there are kept.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from monai_afire.apps.compare.questions import StoredTokens
from monai_afire.detection import AnomalyDetector
from monai_afire.detection.field_of_view import LungView
from monai_afire.networks import load_encoder
from tests.benchmarks.released.sets import maker_parser
from tests.benchmarks.tables import SCORES, fold_aucs, interval

BATCH = 64
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


def main() -> None:
    """Run from the repository's root."""
    parser = maker_parser(__doc__, "results/detector")
    parser.add_argument("--arms", nargs="+", required=True, metavar="[NAME=]WEIGHTS[,WEIGHTS]")
    parser.add_argument("--memory_size", type=int, default=1024)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    print(choice(options.data, options.output, options.arms, options.memory_size).to_markdown())


if __name__ == "__main__":
    main()
