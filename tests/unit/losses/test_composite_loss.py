# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The weighted sum of a method's terms, and what it says when the network gives too little."""

from __future__ import annotations

import pytest
import torch

from monai_afire.losses import CompositeLoss, LossTerm

OUTPUTS = {"x": torch.tensor([3.0]), "y": torch.tensor([4.0])}


def difference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x - y).mean()


def test_outputs_come_in_the_order_of_the_needs() -> None:
    terms = {
        "there": LossTerm(2.0, difference, ("x", "y")),
        "back": LossTerm(0.5, difference, ("y", "x")),
    }
    loss = CompositeLoss(terms)
    assert float(loss(OUTPUTS)) == -2 + 0.5
    assert {name: float(value) for name, value in loss.terms.items()} == {
        "total": -1.5,
        "there": -1.0,
        "back": 1.0,
    }


def test_a_term_without_weight_or_outputs_is_left_out() -> None:
    gap, off = (LossTerm(weight, difference, ("x", "z")) for weight in (1.0, 0.0))
    loss = CompositeLoss({"gap": gap, "off": off, "there": LossTerm(1.0, difference, ("x", "y"))})
    loss(OUTPUTS)
    assert set(loss.terms) == {"total", "there"}
    with pytest.raises(ValueError, match="gap"):
        CompositeLoss({"gap": gap})(OUTPUTS)


@pytest.mark.parametrize("weights", [(-1.0, 1.0), (0.0, 0.0)])
def test_impossible_weights_are_refused(weights: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        CompositeLoss(
            {str(n): LossTerm(weight, difference, ("x", "y")) for n, weight in enumerate(weights)}
        )
