# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Controls beside the detector: their fields of view, and intervals of paired differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from tests.evidence import fair_controls
from tests.evidence.fair_controls import DETECTOR, comparison, lung_crops, scored, with_interval


def test_the_box_differs_from_the_square_by_the_shape_of_the_lungs_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images = torch.linspace(0, 1, 64).expand(2, 1, 64, 64)  # brighter from column to column
    monkeypatch.setattr(fair_controls, "lung_shapes", lambda batch: np.ones(len(batch)))
    crops = lung_crops(images)
    torch.testing.assert_close(crops["box"], crops["square"])
    # the second is not believed
    monkeypatch.setattr(fair_controls, "lung_shapes", lambda batch: np.array([4 / 9, 9.0]))
    slope = {
        name: (crop[:, 0, 32, 33] - crop[:, 0, 32, 31]) for name, crop in lung_crops(images).items()
    }
    torch.testing.assert_close(
        slope["box"] / slope["square"], torch.tensor([2 / 3, 2**0.5]), atol=0, rtol=0.1
    )


def scored_set(seed: int) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    label = np.arange(200) % 2
    rows = pd.DataFrame(
        {
            "patient": np.arange(200) // 2,
            "label": label,
            DETECTOR: label + generator.normal(size=200),
        }
    )
    return rows.assign(same=2 * rows[DETECTOR], chance=generator.normal(size=200))


def test_differences_are_paired() -> None:
    found = comparison({"a": scored_set(0), "b": scored_set(1)})
    assert found.loc["same", "detector less it, mean"] == "+0.000 (+0.000 to +0.000)"
    assert found.loc["same", "a"] == found.loc[DETECTOR, "a"]
    low = float(found.loc["chance", "detector less it, mean"].split("(")[1].split()[0])
    assert low > 0.1


def test_the_interval_leaves_the_value_itself_out() -> None:
    assert with_interval(np.array([9.0, *np.linspace(0, 1, 101)])) == "9.000 (0.025 to 0.975)"


@pytest.mark.parametrize(
    ("name", "sections"),
    [
        ("montgomery", ["training", "test", "test", "test"]),
        ("nih_cxr_7k", ["training", "test", "test"]),
    ],
)
def test_abnormal_training_images_are_scored_or_left_out_and_never_normal(
    name: str, sections: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    files = ["normal.png", "abnormal.png", "other_normal.png", "other_abnormal.png"]
    for file in files:
        Image.fromarray(np.arange(4096, dtype=np.uint8).reshape(64, 64)).save(folder / file)
    rows = {"image": files, "patient_id": list("abcd"), "split": ["train", "train", "test", "test"]}
    pd.DataFrame({**rows, "label": [0, 1, 0, 1]}).to_csv(folder / "manifest.csv", index=False)
    monkeypatch.setattr(fair_controls, "control_scores", lambda table, images: table)
    monkeypatch.setattr(fair_controls, "imagenet_scores", lambda table, images: np.ones(len(table)))
    found = scored(folder, tmp_path / "output", "test")
    assert found["section"].tolist() == sections
    assert found.loc[found["section"] == "training", "label"].tolist() == [0]
