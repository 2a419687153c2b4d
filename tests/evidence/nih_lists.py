# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lists of NIH 7k and the other sets for the commands of the reports.

``python -m tests.evidence.nih_lists --data /path/to/sets`` writes ``images.json`` (what encoders are pre-trained on,
and 128 validation images) and ``nih.json`` (twelve findings, for ``monai-afire compare``). No test image is in them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pandas as pd

from tests.evidence.nih_findings import FINDINGS, SECTIONS, findings_of
from tests.evidence.radiograph_sets import images_beside_nih

WATCHED = 128  # validation images that a pre-training draws


def nih_items(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Training and validation images of NIH 7k with their twelve findings, patient and view."""
    rows = pd.read_csv(folder / "manifest.csv", dtype={"patient_id": str})
    items = pd.DataFrame(
        {
            "image": [str(folder / name) for name in rows["image"]],
            "label": findings_of(rows).astype(int).tolist(),
            "abnormal": (rows["findings"] != "No Finding").astype(int),
            "patient_id": rows["patient_id"],
            "view": rows["view"],
        }
    )
    return {
        section: items[rows["split"] == split].to_dict("records")
        for split, section in SECTIONS.items()
        if section != "test"
    }


def unlabeled(
    folder: Path, nih: dict[str, list[dict[str, Any]]]
) -> dict[str, list[dict[str, str]]]:
    """What encoders are pre-trained on, and the first validation images."""
    own = [item["image"] for item in nih["training"]]
    watched = [item["image"] for item in nih["validation"][:WATCHED]]
    paths = {"training": [*own, *images_beside_nih(folder)], "validation": watched}
    return {section: [{"image": path} for path in files] for section, files in paths.items()}


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help="folder with nih_cxr_7k, adult_normals and childcxr",
    )
    parser.add_argument("--output", type=Path, default=Path("results/nih_lists"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    nih = nih_items(options.data / "nih_cxr_7k")
    lists = {
        "images": unlabeled(options.data, nih),
        "nih": {"finding_names": list(FINDINGS), **nih},
    }
    for name, content in lists.items():
        file = options.output / f"{name}.json"
        file.write_text(json.dumps(content), encoding="utf-8")
        print(
            f"{file}: {len(content['training'])} training and {len(content['validation'])} validation images"
        )


if __name__ == "__main__":
    main()
