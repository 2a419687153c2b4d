# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Where a detector's loss between two sections comes from: the other section's normals, and a section's own."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
import pytest
import torch
from evidence.made_child_set import SHAPE, make_child_set

from tests.evidence.radiograph_sets import file_kind
from tests.evidence.real_encoders import encoder
from tests.evidence.section_shift import FOLDS, by_kind, by_own_normals, crossed, reported


def two_sections() -> pd.DataFrame:
    rows = [
        ("validation", 0, 1.0, "IM"),
        ("validation", 0, 3.0, "NORMAL2"),
        ("validation", 1, 0.0, "virus"),
        ("test", 0, 9.0, "IM"),
        ("test", 1, 2.0, "virus"),
        ("test", 1, 10.0, "bacteria"),
    ]
    return pd.DataFrame(rows, columns=["section", "label", "fused", "file_kind"])


def test_abnormal_images_of_one_section_against_the_normals_of_the_other() -> None:
    found = crossed(two_sections())
    # 2 is above one of two, 10 above both
    assert found.loc["normals of validation"].tolist() == [
        0.0,
        0.75,
    ]
    assert found.loc["normals of test"].tolist() == [0.0, 0.5]


def test_kinds_of_abnormal_files_are_judged_against_all_normals_of_their_section() -> None:
    found = by_kind(two_sections())
    assert found.loc["test, virus", "AUC"] == 0
    assert found.loc["test, bacteria", "AUC"] == 1
    assert found.loc["validation, NORMAL2", "median"] == 3
    assert found.loc["validation, all normals"].tolist()[:2] == [2, 2]  # images, and their median
    assert found["images"].sum() == 6 + 3  # normals are counted once more together


def test_a_file_of_another_set_has_no_kind() -> None:
    with pytest.raises(ValueError, match=r"00000013_005\.png is not named"):
        file_kind("images/00000013_005.png")


def shifted_set() -> tuple[pd.DataFrame, torch.Tensor]:
    """Bright training normals; in the test dark normals, each patient twice, and abnormal ones half way."""
    generator = torch.Generator().manual_seed(0)
    parts = [("training", 0, 0.8, 40), ("test", 0, 0.2, 40), ("test", 1, 0.5, 20)]
    rows, images = [], []
    for section, label, level, count in parts:
        rows += [
            {"section": section, "label": label, "patient": f"{section}{label}{i // 2}"}
            for i in range(count)
        ]
        images.append(level + 0.05 * torch.randn(count, 1, 16, 16, generator=generator))
    sharpness = torch.rand(len(rows), generator=generator).numpy()
    return pd.DataFrame(rows).assign(sharpness=sharpness), torch.cat(images)


def test_own_normals_make_good_for_a_shift() -> None:
    table, images = shifted_set()
    network = encoder("", SHAPE).eval()
    with torch.no_grad():
        found = by_own_normals(table, images, network, "test", copies=0, field_of_view="image")
    assert len(found) == FOLDS
    assert all(figures.loc["fused", "AUC"] > 0.9 for figures in found)
    assert (table["section"] == "training").sum() == 40  # the table itself is left as it is


def test_the_command_reports_all_tables(tmp_path: Path) -> None:
    data = make_child_set(tmp_path / "set")
    options = argparse.Namespace(
        data=data, output=tmp_path / "output", weights="", field_of_view="image", **SHAPE
    )
    crosses, kinds, others, own = reported(options)
    assert "normals of test" in crosses
    # four kinds of file, and all normals
    assert kinds.count("test, ") == kinds.count("validation, ") == 5
    assert "statistics of NORMAL2" in others
    assert "fused" in own
