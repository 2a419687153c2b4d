# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The controls of the detection benchmark see what the detector sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from monai_afire.detection.field_of_view import LungView
from monai_afire.networks import released_encoder
from tests.evidence.radiograph_sets import radiograph_table
from tests.evidence.real_detection import (
    controls,
    in_field_of_view,
    new_network,
    pixel_distances,
)
from tests.evidence.real_encoders import SHAPE, encoder


def test_controls_are_in_the_detectors_field_of_view() -> None:
    images = torch.rand(70, 1, 64, 64)
    assert in_field_of_view(images, "image") is images
    torch.testing.assert_close(in_field_of_view(images, "lungs"), LungView()(images)[0])


def test_distances_of_pixels() -> None:
    normal = np.arange(6.0)[:, None]
    assert pixel_distances(normal, np.array([[0.0], [7.0]])) == pytest.approx([2.0, 4.0])


def test_every_control_has_a_row() -> None:
    table = pd.DataFrame(
        {
            "section": ["training"] * 40 + ["test"] * 8,
            "label": [0] * 44 + [1] * 4,
            "brightness": np.linspace(0, 1, 48),
            "sharpness": np.linspace(1, 0, 48),
            "standard_sharpness": np.linspace(1, 0, 48),
        }
    )
    found = controls(table, torch.rand(48, 1, 64, 64), "test", "lungs")
    names = ["PCA", "pixel neighbors", "wide lungs", "darkness", "blur", "blur of the standardized"]
    assert list(found.index) == names
    assert found["AUC"]["blur"] == 1.0
    assert found["AUC"]["darkness"] == 0.0


def test_a_manifest_with_findings_has_labels(tmp_path: Path) -> None:
    rows = {
        "image": ["a.png", "b.png"],
        "patient_id": ["1", "2"],
        "view": "PA",
        "split": ["train", "test"],
    }
    pd.DataFrame({**rows, "findings": ["No Finding", "Mass|Nodule"]}).to_csv(
        tmp_path / "manifest.csv", index=False
    )
    assert radiograph_table(tmp_path)["label"].tolist() == [0, 1]


def test_montgomery_has_its_own_names_of_the_columns(tmp_path: Path) -> None:
    rows = {
        "image": ["a.png", "b.png"],
        "patient_id": ["1", "2"],
        "published_split": ["train", "test"],
    }
    pd.DataFrame({**rows, "tuberculosis": [0, 1]}).to_csv(tmp_path / "manifest.csv", index=False)
    table = radiograph_table(tmp_path)
    assert table["section"].tolist() == ["training", "test"]
    assert table["label"].tolist() == [0, 1]
    assert table["view"].tolist() == ["", ""]


def test_the_released_encoder_has_the_shape_of_the_tables() -> None:
    assert encoder(str(released_encoder())).hidden_size == SHAPE["hidden_size"] == 192
    assert new_network(0).encoder.hidden_size == 192
