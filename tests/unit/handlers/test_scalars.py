# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Values that are shown and logged while training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from monai_afire.handlers import AttributeSchedule, OptimizerSchedule
from monai_afire.handlers.scalars import step_scalars
from monai_afire.losses import AFiReLoss
from monai_afire.networks import AFiRe, ViTEncoder


class Temperature(nn.Module):
    """Has a parameter that is shown."""

    tracked_attributes = ("temperature",)

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.5))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("has_terms", [False, True])
def test_what_is_shown_becomes_a_number_without_a_warning(has_terms: bool) -> None:
    loss = torch.tensor(2.0, requires_grad=True) * 1.5
    function: Any = nn.MSELoss()
    if has_terms:
        function.terms = {"loss": loss}
    network = Temperature()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    handlers = [
        OptimizerSchedule(optimizer, "lr", end=0.0),
        AttributeSchedule(SimpleNamespace(decay=0.9), "decay", end=1.0),
    ]
    values = step_scalars({"loss": loss}, function, handlers, network)
    assert values == {"loss": 3.0, "learning_rate": 0.1, "temperature": 0.5, "decay": 0.9}
    assert loss.requires_grad  # the output itself is as it was


def test_afire_shows_its_prototypes() -> None:
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    output = {"pred": {"abnormal": torch.tensor([True, False, False, False])}}
    values = step_scalars(output, AFiReLoss(), [], AFiRe(encoder, 8, 16, 16, 1, 2))
    assert values["abnormal_fraction"] == 0.25
    assert {"prototype_entropy", "prototype_information"} < set(values)
