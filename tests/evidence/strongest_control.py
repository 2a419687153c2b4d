# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The detector beside its strongest simple control, from committed scores.

``python -m tests.evidence.strongest_control`` prints the tables of docs/evidence.md from
``tests/evidence/scores/detector_test.csv``. ``--pack results/fair_controls`` makes that file of the scores that
``tests.evidence.fair_controls --section test`` keeps. The protocol is part 6 of docs/reports/anatomy_and_controls.md.

The control is the one with the highest AUC on the same test images, so it is a strict rival: the choice favors it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from tests.evidence.fair_controls import DETECTOR, IMAGENET, auc_samples, with_interval

SCORES = Path(__file__).parent / "scores" / "detector_test.csv"
UNTRAINED = "untrained encoder, square"
CONTROLS = (
    "PCA, square",
    "PCA, box",
    "pixel neighbors, square",
    "pixel neighbors, box",
    "tall lungs",
    "blur",
    "darkness",
)
SCORE_NAMES = (
    DETECTOR,
    IMAGENET,
    "released encoder, box",
    UNTRAINED,
    "untrained encoder, box",
    *CONTROLS,
)


def pack(folder: Path, file: Path) -> None:
    """Put the test scores of all sets of a folder into one file, in six digits."""
    parts = []
    for stored in sorted(folder.glob("*_test.csv")):
        rows = pd.read_csv(stored, dtype={"patient": str}, keep_default_na=False)
        rows["tall lungs"] = -rows["wide lungs"]
        rows["image"] = [Path(image).name for image in rows["image"]]
        rows.insert(0, "set", stored.stem.removesuffix("_test"))
        parts.append(rows[["set", "image", "patient", "label", *SCORE_NAMES]])
    pd.concat(parts).to_csv(file, index=False, float_format="%.6g")


def verdict(difference: np.ndarray) -> str:
    """What the paired 95 % interval allows to say of the detector."""
    low, high = np.percentile(difference[1:], [2.5, 97.5])
    if low > 0:
        return "higher"
    if high < 0:
        return "lower"
    return "not shown"


def record(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per set: AUCs of detector, untrained encoder and strongest control, and the paired differences."""
    lines = []
    for name, part in rows.groupby("set"):
        samples = {
            score: auc_samples(part, score) for score in (DETECTOR, IMAGENET, UNTRAINED, *CONTROLS)
        }
        strongest = max(CONTROLS, key=lambda control: samples[control][0])
        less_untrained = samples[DETECTOR] - samples[UNTRAINED]
        less_imagenet = samples[DETECTOR] - samples[IMAGENET]
        less_control = samples[DETECTOR] - samples[strongest]
        lines.append(
            {
                "set": f"{name} ({len(part)} images)",
                "detector": with_interval(samples[DETECTOR]),
                "ImageNet": with_interval(samples[IMAGENET]),
                "untrained": with_interval(samples[UNTRAINED]),
                "strongest simple control": f"{strongest} {with_interval(samples[strongest])}",
                "detector minus untrained": f"{with_interval(less_untrained, '+')}, {verdict(less_untrained)}",
                "detector minus ImageNet": f"{with_interval(less_imagenet, '+')}, {verdict(less_imagenet)}",
                "detector minus control": f"{with_interval(less_control, '+')}, {verdict(less_control)}",
            }
        )
    return pd.DataFrame(lines)


def every_score(rows: pd.DataFrame) -> pd.DataFrame:
    """AUC of each score in each set."""
    found = {
        name: {score: with_interval(auc_samples(part, score)) for score in SCORE_NAMES}
        for name, part in rows.groupby("set")
    }
    return pd.DataFrame(found)


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pack", type=Path, help="folder of the scores that fair_controls keeps")
    parser.add_argument("--scores", type=Path, default=SCORES)
    options = parser.parse_args()
    if options.pack:
        pack(options.pack, options.scores)
        return
    rows = pd.read_csv(options.scores, dtype={"patient": str}, keep_default_na=False)
    print(record(rows).to_markdown(index=False))
    print()
    print(every_score(rows).to_markdown())


if __name__ == "__main__":
    main()
