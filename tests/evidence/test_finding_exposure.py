# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Exposure's bounds: the better direction of each measure, the best measure last."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.evidence.finding_exposure import FINDINGS, MEASURES, exposure_bounds


def test_each_measure_counts_in_its_better_direction() -> None:
    labels = np.tile([[0], [0], [1], [1]], (1, len(FINDINGS)))
    values = ([4.0, 3.0, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 3.0, 2.0, 4.0])
    bounds = exposure_bounds(labels, pd.DataFrame(dict(zip(MEASURES, values, strict=True))))
    for name in FINDINGS:
        assert bounds.loc[name].tolist() == pytest.approx([2, 1, 0.5, 0.75, 1])
