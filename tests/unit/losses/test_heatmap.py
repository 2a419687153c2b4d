# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The loss of heat maps, against a loop over the pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monai_afire.losses import HeatmapLoss

NAN = float("nan")


def naive_loss(
    pred: torch.Tensor, label: torch.Tensor, valid: np.ndarray, weight: float
) -> torch.Tensor:
    losses = []
    for b, p in np.argwhere(valid):
        total, mass = torch.zeros((), dtype=torch.float64), 0.0
        for place in np.ndindex(*pred.shape[2:]):
            y = float(label[b, p][place])
            w = 1 + (weight - 1) * min(max(y, 0.0), 1.0)
            total = total + w * (pred[b, p][place] - y) ** 2
            mass += w
        losses.append(total / mass)
    return sum(losses) / len(losses) if losses else (0 * pred).nan_to_num().sum()  # type: ignore[return-value]


@settings(max_examples=25)
@given(
    st.integers(0, 9999),
    st.floats(0.1, 200),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(1, 5), (3, 4)]),
)
def test_equals_a_loop_with_gradients(
    seed: int, weight: float, mask: bool, missing: bool, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(seed)
    pred = torch.from_numpy(rng.normal(size=(2, 3, *shape))).requires_grad_()
    label = torch.from_numpy(rng.uniform(-0.2, 1.2, size=(2, 3, *shape)))
    known = rng.random((2, 3)) < 0.6 if mask else np.ones((2, 3), dtype=bool)
    label[~torch.from_numpy(known)] = NAN
    if missing:
        label[0, 1] = NAN
        label.flatten(2)[1, 2, 0] = NAN  # a single one makes the map unknown
        known[0, 1] = known[1, 2] = False
    other = pred.detach().clone().requires_grad_()
    loss = HeatmapLoss(weight)(pred, label)
    expected = naive_loss(other, label, known, weight)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(pred.grad, other.grad)
    assert (pred.grad[~torch.from_numpy(known)] == 0).all()  # type: ignore[index]


def test_unknown_maps_may_hold_anything() -> None:
    pred = (
        torch.tensor([[NAN, 1.0], [float("inf"), 1.0], [0.5, 0.0]])
        .view(1, 3, 1, 2)
        .requires_grad_()
    )
    label = torch.tensor([[NAN, NAN], [NAN, 1.0], [1.0, 0.0]]).view(1, 3, 1, 2)
    loss = HeatmapLoss()(pred, label)
    loss.backward()
    assert loss.isfinite()
    assert pred.grad is not None
    assert pred.grad[0, :2].eq(0).all()
    assert pred.grad[0, 2, 0, 0] < 0


def test_shapes_must_fit() -> None:
    with pytest.raises(ValueError, match="label"):
        HeatmapLoss()(torch.rand(2, 3, 4, 4), torch.rand(2, 1, 4, 4))
