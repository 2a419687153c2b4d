# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

import numpy as np
import pytest
import torch
from apps.studies.stub_encoders import PositionEncoder

from monai_afire.apps.studies import StudyImages, symmetry_study
from monai_afire.apps.studies.study import NothingToCompareError
from monai_afire.apps.studies.symmetry import (
    landmark_symmetry,
    symmetric_pairs,
)
from monai_afire.data.phantom import LANDMARK_NAMES

PAIRS = [(0, 1), (2, 3)]


def test_pairs_of_the_phantom() -> None:
    pairs = symmetric_pairs(LANDMARK_NAMES)
    assert pairs == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert symmetric_pairs(
        ["Left lung", "heart", "right lung", "right_heart", "bright", "bleft"]
    ) == [(2, 0)]


def test_like_one_landmark_at_a_time() -> None:
    generator = torch.Generator().manual_seed(1)
    features, mirrored = torch.randn(2, 6, 5, 4, generator=generator)
    features[2, 1] = mirrored[2, 1] = torch.nan
    features[3, 4] = mirrored[3, 4] = torch.nan
    table = landmark_symmetry(features, mirrored, PAIRS)
    assert len(table) == 2 * (6 * 4 - 2)  # pair 0 of image 2 is not known
    for row in table.itertuples():
        others = (mirrored if row.mirrored else features)[row.image]
        cosine = {
            k: float(torch.cosine_similarity(features[row.image, row.landmark], others[k], dim=0))
            for k in range(5)
            if k != row.landmark and not others[k].isnan().any()
        }
        assert row.found == max(cosine, key=cosine.get)
        assert row.correct == (row.found == row.partner)
        assert row.chance == pytest.approx(1 / len(cosine))
        assert row.partner_cosine == pytest.approx(cosine.pop(row.partner), abs=1e-5)
        assert row.others_cosine == pytest.approx(np.mean(list(cosine.values())), abs=1e-5)


def test_symmetry_needs_partners() -> None:
    encoders = {"positions": PositionEncoder((32, 32), (8, 8))}
    known = {"image": torch.rand(2, 1, 32, 32), "landmarks": torch.full((2, 2, 2), 9.0)}
    with pytest.raises(NothingToCompareError, match="left"):
        symmetry_study(encoders, StudyImages(**known, landmark_names=["carina", "aortic_knob"]))
    images = StudyImages(**known, landmark_names=["right hilum", "left hilum"])
    table = symmetry_study(encoders, images).table
    assert table.loc["positions", "partner_found"] == 1  # it is the only other
