# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The false discovery rate, by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from monai_afire.apps.evaluation.discoveries import discoveries
from monai_afire.detection import conformal_p_values


def test_few_of_the_discoveries_are_normal() -> None:
    random = np.random.default_rng(0)
    false = []
    for _ in range(200):
        scores = np.concatenate([random.normal(size=80), random.normal(4, 1, size=20)])
        found = discoveries(conformal_p_values(scores, random.normal(size=500)), rate=0.1)
        false.append(found[:80].sum() / max(1, found.sum()))
        assert found[80:].sum() > 5
    assert np.mean(false) < 0.1


def test_unknown_p_values_are_no_discoveries() -> None:
    assert discoveries([np.nan, 0.001], 0.1).tolist() == [False, True]
    with pytest.raises(ValueError, match="false discovery rate"):
        discoveries([0.5], 0.0)
