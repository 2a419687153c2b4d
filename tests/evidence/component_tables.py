# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The tables of docs/reports/component_ablation.md from the runs of real_components.

``python -m tests.evidence.component_tables`` prints them from ``components.csv``, or from another file of rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tests.evidence.real_components import METRICS, comparison

ROWS = Path("tests/evidence/real_radiographs/components.csv")
# AUC, ACC and F1 in per cent, AFiRe's Tables 1 and 4
PUBLISHED = {
    "AFiRe": (89.4, 83.8, 84.5),
    "AnatPaste": (88.9, 83.2, 83.6),
    "without_prototypes": (83.1, 75.8, 79.7),
    "without_contrast": (76.9, 67.2, 75.9),
    "without_category": (87.7, 79.8, 78.4),
    "without_structure": (84.5, 74.9, 76.9),
    "without_restoration": (86.2, 80.8, 81.5),
    "feature_contrast": (84.8, 81.6, 80.9),
    "without_mask_tokens": (85.7, 80.4, 81.2),
    "abnormal_pairs": (77.9, 70.4, 72.4),
}
HEADINGS = {
    "auc": "AUC",
    "accuracy": "ACC",
    "f1": "F1",
    "detection_validation": "detector, validation",
    "detection_test": "detector, test",
    "between_images": "between images",
}
COMPARED = ("auc", "detection_test")


def markdown(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(
        "| " + " | ".join(cells) + " |" for cells in [headings, ["---"] * len(headings), *lines]
    )


def spread(row: pd.Series) -> str:
    """Mean ± deviation, or the one value."""
    return f"{row['mean']:.3f}" + ("" if np.isnan(row["sd"]) else f" ± {row['sd']:.3f}")


def probability(value: float) -> str:
    """Of a test."""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def arms_table(compared: Mapping[tuple[str, str], pd.Series], arms: Sequence[str]) -> str:
    """What each arm reaches, with the published figures."""
    lines = []
    for arm in arms:
        cells = [spread(compared[metric, arm]) for metric in METRICS]
        published = ", ".join(f"{value:.1f}" for value in PUBLISHED.get(arm, ()))
        lines.append([arm, str(compared["auc", arm]["n"]), *cells, published])
    return markdown(
        ["arm", "seeds", *(HEADINGS[metric] for metric in METRICS), "paper: AUC, ACC, F1"], lines
    )


def differences_table(compared: Mapping[tuple[str, str], pd.Series], arms: Sequence[str]) -> str:
    """Each arm less the first: difference, tests, how many seeds are higher, and the published difference of AUC."""
    lines = []
    for arm in arms[1:]:
        cells = [arm]
        for metric in COMPARED:
            row = compared[metric, arm]
            tests = (
                ""
                if row["pairs"] < 2
                else f"{probability(row['p_value'])}; {probability(row['paired_p_value'])}"
            )
            cells += [f"{row['difference']:+.3f}", tests, f"{row['higher']} of {row['pairs']}"]
        published = (
            f"{(PUBLISHED[arm][0] - PUBLISHED[arms[0]][0]) / 100:+.3f}" if arm in PUBLISHED else ""
        )
        lines.append([*cells[:4], published, *cells[4:]])
    headings = ["against the full method", "AUC", "p; paired", "higher", "paper", "detector, test"]
    return markdown([*headings, "p; paired", "higher"], lines)


def tables(rows: pd.DataFrame) -> tuple[str, str]:
    """Both tables; the first arm of the rows is the full method."""
    by_name = {
        (row["metric"], row["initialization"]): row for _, row in comparison(rows).iterrows()
    }
    arms = list(rows["arm"].unique())
    return arms_table(by_name, arms), differences_table(by_name, arms)


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=Path, default=ROWS, help="rows.csv of real_components")
    print("\n\n".join(tables(pd.read_csv(parser.parse_args().rows))))


if __name__ == "__main__":
    main()
