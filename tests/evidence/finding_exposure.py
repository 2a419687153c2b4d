# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""How well exposure alone, without any label, tells the single findings of NIH's test images.

``python -m tests.evidence.finding_exposure --data /path/to/sets`` prints for each finding of ``real_tasks`` the AUC
of darkness, sharpness and the sharpness of the standardized picture, each in whichever direction tells more on the
test images: an upper bound, to be read beside what networks reach.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from monai_afire.metrics.binary_classification import roc_auc
from tests.evidence.radiograph_sets import pictures
from tests.evidence.real_tasks import FINDINGS, listed_findings

SIZE = 64
MEASURES = ("brightness", "sharpness", "standard_sharpness")


def exposure_bounds(labels: np.ndarray, measured: pd.DataFrame) -> pd.DataFrame:
    """AUC of each measure, in the better direction, for labels ``(M, findings)``; the best of them last."""
    rows = {}
    for number, name in enumerate(FINDINGS):
        aucs = {measure: roc_auc(labels[:, number], measured[measure]) for measure in MEASURES}
        values = {measure: max(auc, 1 - auc) for measure, auc in aucs.items()}
        rows[name] = {"positive": labels[:, number].sum(), **values, "best": max(values.values())}
    return pd.DataFrame(rows).T


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "datalist.json"
        listed_findings(options.data.resolve(), listed)
        items = json.loads(listed.read_text())["test"]
        _, measured = pictures([str(listed.parent / item["image"]) for item in items], SIZE)
    print(
        exposure_bounds(np.array([item["label"] for item in items]), measured).round(3).to_string()
    )


if __name__ == "__main__":
    main()
