# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Intervals over draws and patients hold where those over patients alone are too narrow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from tests.evidence.draws_and_patients import (
    arms_table,
    both_ways,
    differences_table,
    pack,
    read_aucs,
    resampled_means,
)


def test_means_over_draws_are_those_of_a_loop() -> None:
    random = np.random.default_rng(0)
    aucs, chosen = random.uniform(size=(5, 40)), random.integers(5, size=(40, 5))
    expected = [np.mean([aucs[draw, sample] for draw in chosen[sample]]) for sample in range(40)]
    np.testing.assert_allclose(resampled_means(aucs, chosen), expected)


def test_the_interval_covers_the_truth_where_draws_differ() -> None:
    """Twelve draws around 0.6, without noise of test patients: patients alone would give intervals of width zero."""
    random, covered = np.random.default_rng(1), 0
    for repeat in range(200):
        means = 0.6 + 0.03 * random.normal(size=12)
        aucs = {str(draw): np.full(501, mean) for draw, mean in enumerate(means)}
        low, high = np.quantile(
            both_ways(np.stack([aucs[draw] for draw in sorted(aucs)]), seed=repeat)[1:],
            [0.025, 0.975],
        )
        covered += low <= 0.6 <= high
    assert 0.85 <= covered / 200 <= 0.99


def test_scores_that_differ_by_little_keep_their_order(tmp_path: Path) -> None:
    table = pd.DataFrame({"image": [f"{n}.png" for n in range(40)], "split": "test"})
    table["patient_id"] = table["image"]
    table["findings"] = ["Mass" if n % 2 else "No Finding" for n in range(40)]
    table.to_csv(tmp_path / "manifest.csv", index=False)
    order = np.random.default_rng(0).permutation(40)
    scores = -3 + 1e-5 * np.tile(order[:, None], (1, 12))
    np.savez(tmp_path / "untrained_0.1_0.npz", scores=scores, rows=np.arange(40))
    pack(tmp_path, tmp_path, tmp_path / "packed.npz")
    with np.load(tmp_path / "packed.npz") as content:
        packed = content["run:untrained_0.1_0"]
    assert packed.dtype == np.float16
    assert (packed.argsort(axis=0) == scores.argsort(axis=0)).all()


def test_runs_are_packed_and_compared(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    table = pd.DataFrame(
        {"image": [f"{n}.png" for n in range(90)], "patient_id": [f"p{n // 2}" for n in range(90)]}
    )
    table["split"] = ["train"] * 30 + ["val"] * 20 + ["test"] * 40
    table["findings"] = ["Mass" if n % 3 else "Edema|Nodule" for n in range(90)]
    table.to_csv(tmp_path / "manifest.csv", index=False)
    labels = table["findings"].str.get_dummies("|")["Mass"].to_numpy()
    held_out = np.arange(30, 90)
    for arm, strength in (
        ("vit_tiny_probe", 3.0),
        ("imagenet_probe", 0.0),
        ("released_probe", 0.0),
    ):
        for draw in range(3):
            scores = random.normal(size=(60, 12)) + strength * labels[held_out, None]
            np.savez(tmp_path / f"{arm}_0.1_{draw}.npz", scores=scores, rows=held_out)
    pack(tmp_path, tmp_path, tmp_path / "packed.npz")
    found = read_aucs(tmp_path / "packed.npz", samples=200)
    assert {arm for _, arm in found} == {"vit_tiny_probe", "imagenet_probe", "released_probe"}
    assert list(arms_table(found)["draws"]) == [3, 3, 3]
    differences = differences_table(found).set_index("difference")
    assert differences.loc["vit_tiny_probe - imagenet_probe", "labels"] == "0.1"
    assert (differences["p, Holm"] >= differences["p"]).all()
