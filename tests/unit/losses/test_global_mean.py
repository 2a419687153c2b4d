# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The mean of what counts; over several processes see ``tests/integration/distributed``."""

from __future__ import annotations

import torch

from monai_afire.losses import global_mean
from monai_afire.losses.global_mean import global_weighted_mean


def test_neither_mean_nor_gradient_sees_what_does_not_count() -> None:
    values = torch.tensor([[1.0, torch.nan], [torch.inf, 4.0]], requires_grad=True)
    mean = global_mean(values, torch.tensor([[True, False], [False, True]]))
    assert mean == 2.5
    mean.backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[0.5, 0.0], [0.0, 0.5]]
    assert global_mean(values, torch.zeros(2, 2, dtype=torch.bool)) == 0
    assert global_mean(torch.tensor([1.0, 2.0, 6.0])) == 3


def test_weighted_mean_by_hand() -> None:
    values, weight = torch.tensor([1.0, 5.0, 2.0]), torch.tensor([3.0, 1.0, 0.0])
    assert global_weighted_mean(values, weight) == 2
