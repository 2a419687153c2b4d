# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Labels as vectors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from monai_afire.transforms import LabelVector

VALUES = st.sampled_from([1, 0, -1, None, 1.0, 0.0, -1.0, float("nan")])


@given(st.lists(VALUES, min_size=1, max_size=20))
def test_findings_are_kept_and_missing_ones_are_nan(values: list[float | None]) -> None:
    for vector in (LabelVector()(values), LabelVector(len(values))(tuple(values))):
        assert vector.dtype == torch.float32
        assert vector.shape == (len(values),)
        for got, value in zip(vector.tolist(), values, strict=True):
            assert math.isnan(got) if value is None or value != value else got == value


def test_class_number_is_one_hot_and_a_missing_one_nan() -> None:
    for label in (2, np.float32(2), torch.tensor(2)):
        assert LabelVector(4)(label).tolist() == [0.0, 0.0, 1.0, 0.0]
    for num_classes in (None, 1, 3):
        missing = LabelVector(num_classes)(None)
        assert missing.shape == (num_classes or 1,)
        assert missing.isnan().all()


def test_exclusive_classes_are_numbers_or_unknown() -> None:
    convert = LabelVector(3, "multiclass")
    assert convert(2).tolist() == [0, 0, 1]
    for unknown in (-1, -1.0, None, float("nan")):
        assert convert(unknown).isnan().all()
    with pytest.raises(RuntimeError, match="num_classes"):
        convert(3)
    for number in (None, 1):
        with pytest.raises(ValueError, match="num_classes"):
            LabelVector(number, "multiclass")
