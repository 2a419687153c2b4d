# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Where a detector's loss between two sections comes from: the other section's normals, and a section's own."""

from __future__ import annotations

import pandas as pd
import torch

from monai_afire.networks import ViTEncoder
from tests.benchmarks.real_encoders import FOLDS, against_validation_normals, by_own_normals


def test_abnormal_images_are_compared_with_the_validation_normals() -> None:
    rows = pd.DataFrame(
        [("validation", 0, 1.0), ("validation", 0, 3.0), ("validation", 1, 0.0), ("test", 0, 9.0), ("test", 1, 2.0)],
        columns=["section", "label", "score"],
    )
    assert against_validation_normals(rows, "test", "score") == 0.5  # above one of two, whatever the test's normals
    assert against_validation_normals(rows, "validation", "score") == 0


def shifted_set() -> tuple[pd.DataFrame, torch.Tensor]:
    """Bright training normals; in the test dark normals, each patient twice, and abnormal ones half way."""
    generator = torch.Generator().manual_seed(0)
    parts = [("training", 0, 0.8, 40), ("test", 0, 0.2, 40), ("test", 1, 0.5, 20)]
    rows, images = [], []
    for section, label, level, count in parts:
        rows += [{"section": section, "label": label, "patient": f"{section}{label}{i // 2}"} for i in range(count)]
        images.append(level + 0.05 * torch.randn(count, 1, 16, 16, generator=generator))
    sharpness = torch.rand(len(rows), generator=generator).numpy()
    return pd.DataFrame(rows).assign(sharpness=sharpness), torch.cat(images)


def test_own_normals_make_good_for_a_shift() -> None:
    torch.manual_seed(0)
    table, images = shifted_set()
    network = ViTEncoder(img_size=16, patch_size=4, hidden_size=24, num_layers=1, num_heads=2).eval()
    with torch.no_grad():
        found = by_own_normals(table, images, network, "test", copies=0, field_of_view="image")
    assert len(found) == FOLDS
    assert all(figures.loc["fused", "AUC"] > 0.9 for figures in found)
    assert (table["section"] == "training").sum() == 40  # the table itself is left as it is
