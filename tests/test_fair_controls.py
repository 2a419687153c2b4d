# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Controls beside the detector: their fields of view, and intervals of paired differences."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from tests.benchmarks import fair_controls
from tests.benchmarks.fair_controls import DETECTOR, comparison, lung_crops, sectioned, with_interval


def test_the_box_differs_from_the_square_by_the_shape_of_the_lungs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.linspace(0, 1, 64).expand(2, 1, 64, 64)  # brighter from column to column
    monkeypatch.setattr(fair_controls, "lung_shapes", lambda batch: np.ones(len(batch)))
    crops = lung_crops(images)
    torch.testing.assert_close(crops["box"], crops["square"])
    # the second is not believed
    monkeypatch.setattr(fair_controls, "lung_shapes", lambda batch: np.array([4 / 9, 9.0]))
    slope = {name: (crop[:, 0, 32, 33] - crop[:, 0, 32, 31]) for name, crop in lung_crops(images).items()}
    torch.testing.assert_close(slope["box"] / slope["square"], torch.tensor([2 / 3, 2**0.5]), atol=0, rtol=0.1)


def scored_set(seed: int) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    label = np.arange(200) % 2
    rows = pd.DataFrame({"patient": np.arange(200) // 2, "label": label, DETECTOR: label + generator.normal(size=200)})
    return rows.assign(same=2 * rows[DETECTOR], chance=generator.normal(size=200))


def test_differences_are_paired() -> None:
    found = comparison({"a": scored_set(0), "b": scored_set(1)})
    assert found.loc["same", "detector less it, mean"] == "+0.000 (+0.000 to +0.000)"
    assert found.loc["same", "a"] == found.loc[DETECTOR, "a"]
    low = float(found.loc["chance", "detector less it, mean"].split("(")[1].split()[0])
    assert low > 0.1


def test_the_interval_leaves_the_value_itself_out() -> None:
    assert with_interval(np.array([9.0, *np.linspace(0, 1, 101)])) == "9.000 (0.025 to 0.975)"


def test_abnormal_training_images_are_scored_or_left_out_and_never_normal() -> None:
    table = pd.DataFrame({"section": ["training", "training", "test", "test"], "label": [0, 1, 0, 1]})
    assert sectioned(table, "test", True)["section"].tolist() == ["training", "test", "test", "test"]
    assert sectioned(table, "test", False)["section"].tolist() == ["training", "", "test", "test"]
