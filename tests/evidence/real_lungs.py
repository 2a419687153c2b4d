# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lungs of another hospital: networks that learned to segment JSRT, on Montgomery's radiographs without training there.

``python -m tests.evidence.real_lungs --data /path/to/sets --runs results/real_tasks/jsrt/fine_tuned/runs`` goes on
after ``real_tasks``: every run's masks of right and left lung together are compared with Montgomery's, in the pixels
of its files.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from monai.bundle import run
from PIL import Image

INFERENCE = "bundles/radiograph_segmentation/configs/inference.json"
LUNGS = ("lung_right", "lung_left")


def mask(path: Path) -> np.ndarray:
    """A mask file as bool."""
    with Image.open(path) as picture:
        return np.asarray(picture.convert("L")) > 0


def dice(prediction: np.ndarray, truth: np.ndarray) -> float:
    """Of two masks of one size, of which one at least is not empty."""
    return 2 * float((prediction & truth).sum()) / float(prediction.sum() + truth.sum())


def lung_dice(weights: Path, data: Path) -> list[float]:
    """Dice of every radiograph of Montgomery."""
    truths = sorted((data / "montgomery" / "lungs").glob("*.png"))
    with tempfile.TemporaryDirectory() as folder:
        run(
            config_file=INFERENCE,
            ckpt_path=str(weights),
            dataset_dir=str(data / "montgomery" / "images"),
            output_dir=folder,
        )
        masks = {name: next(Path(folder).rglob(f"masks/{name}")) for name in LUNGS}
        return [
            dice(
                np.logical_or(*(mask(masks[name] / f"{path.stem}.png") for name in LUNGS)),
                mask(path),
            )
            for path in truths
        ]


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs on JSRT")
    options = parser.parse_args()
    values = {
        weights.parent.parent.name: lung_dice(weights, options.data)
        for weights in sorted(options.runs.glob("*/models/model.pt"))
    }
    table = pd.DataFrame(values).describe().T[["mean", "50%", "min"]]
    print(table.rename(columns={"50%": "median"}).round(4).to_string())


if __name__ == "__main__":
    main()
