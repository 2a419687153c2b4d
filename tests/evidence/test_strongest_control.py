# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The record names the strongest control, and says "higher" only where the paired interval allows it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from tests.evidence.fair_controls import DETECTOR
from tests.evidence.strongest_control import CONTROLS, SCORE_NAMES, SCORES, pack, record, verdict


def scored_set(strength: dict[str, float], seed: int = 0) -> pd.DataFrame:
    """100 patients with an image each; a score is noise plus ``strength`` times the label."""
    generator = np.random.default_rng(seed)
    label = np.arange(100) % 2
    rows = pd.DataFrame({"set": "a", "image": "a.png", "patient": np.arange(100), "label": label})
    for name in SCORE_NAMES:
        rows[name] = strength.get(name, 0.0) * label + generator.normal(size=100)
    return rows


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.01, 0.1, "higher"), (-0.1, -0.01, "lower"), (-0.01, 0.1, "not shown")],
)
def test_the_verdict_is_that_of_the_interval_and_not_of_the_value(
    low: float, high: float, expected: str
) -> None:
    assert verdict(np.array([9.0, *np.linspace(low, high, 101)])) == expected


@pytest.mark.parametrize("strongest", [CONTROLS[0], CONTROLS[-1]])
def test_the_control_is_the_one_with_the_highest_auc(strongest: str) -> None:
    rows = scored_set({DETECTOR: 1.0, strongest: 4.0})
    line = record(rows).iloc[0]
    expected = roc_auc_score(rows["label"], rows[strongest])
    assert line["strongest simple control"].startswith(f"{strongest} {expected:.3f}")
    assert line["detector minus control"].endswith("lower")
    assert line["detector minus untrained"].endswith("higher")


def test_packed_scores_keep_their_order_and_tall_is_the_reverse_of_wide(tmp_path: Path) -> None:
    rows = scored_set({DETECTOR: 1.0, "tall lungs": 1.0})
    stored = rows.drop(columns=["set", "tall lungs"]).assign(**{"wide lungs": -rows["tall lungs"]})
    stored.to_csv(tmp_path / "a_test.csv", index=False)
    pack(tmp_path, tmp_path / "packed.csv")
    packed = pd.read_csv(tmp_path / "packed.csv")
    assert packed["set"].unique() == ["a"]
    np.testing.assert_allclose(packed[list(SCORE_NAMES)], rows[list(SCORE_NAMES)], rtol=1e-5)


def test_committed_scores_have_no_gaps_and_both_classes() -> None:
    rows = pd.read_csv(SCORES, dtype={"patient": str}, keep_default_na=False)
    assert np.isfinite(rows[list(SCORE_NAMES)].to_numpy(float)).all()
    assert not rows.duplicated(["set", "image"]).any()
    assert (rows.groupby("set")["label"].nunique() == 2).all()
