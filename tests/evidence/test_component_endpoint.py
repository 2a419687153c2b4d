# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The comparison of AFiRe's components: corrected p-values and the table of differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.evidence.component_endpoint import holm, report


def test_p_values_are_corrected_as_by_hand() -> None:
    # 0.01 x 4, 0.02 x 3, then 0.03 x 2 = 0.06, and 0.04 x 1 is not below the one before
    assert holm(np.array([0.03, 0.01, 0.04, 0.02])) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm(np.array([0.6, 0.5])) == pytest.approx([1.0, 1.0])


def test_the_table_finds_the_arm_that_is_worse(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 2
    table = pd.DataFrame({"section": "validation", "label": labels, "patient": np.arange(300) // 2})
    signal = {
        "AFiRe": 1.5,
        "without_contrast": 1.5,
        "without_structure": 1.5,
        "without_restoration": 0.3,
        "untrained": 0,
    }
    shared = rng.normal(size=300)
    for name, strength in signal.items():
        for seed in range(2):
            scores = strength * labels + shared + 0.05 * rng.normal(size=300)
            np.savez(
                tmp_path / f"{name}-seed_{seed}.npz",
                validation=scores.argsort().argsort().astype(np.uint16),
            )
    found = report(table, tmp_path, "validation", 200)
    assert found["seeds"].tolist() == [2] * 5
    assert (found["low"] < found["AUC"]).all()
    assert (found["AUC"] < found["high"]).all()
    assert (found.loc[["without_restoration", "untrained"], "p, Holm"] < 0.05).all()
    assert (found.loc[["without_contrast", "without_structure"], "p, Holm"] > 0.05).all()
    assert found.loc["untrained", "to"] < 0
    assert np.isnan(found.loc["AFiRe", "p"])
