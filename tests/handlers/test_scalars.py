# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Values that are shown and logged while training."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from monai_afire.handlers import AttributeSchedule
from monai_afire.handlers.scalars import AFiReScalars, TrainingScalars, scheduled_scalars
from monai_afire.losses import AFiReLoss
from monai_afire.networks import ACE, AFiRe, ViTEncoder


class Temperature(nn.Module):
    """Has a parameter that is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.5))


class LossOfTerms(nn.MSELoss):
    """Keeps its terms with their gradients."""

    def __init__(self, terms: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.terms = terms


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("has_terms", [False, True])
def test_what_is_shown_becomes_a_number_without_a_warning(has_terms: bool) -> None:
    loss = torch.tensor(2.0, requires_grad=True) * 1.5
    function = LossOfTerms({"loss": loss}) if has_terms else nn.MSELoss()
    scalars = TrainingScalars(function, network=Temperature(), attributes=["temperature"])
    values = {name: float(value) for name, value in scalars({"loss": loss}).items()}
    assert values == {"loss": 3.0, "temperature": 0.5}
    assert loss.requires_grad  # the output itself is as it was


def test_what_a_method_watches_is_chosen_by_its_loss_and_network() -> None:
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    ace, afire = ACE(encoder), AFiRe(encoder, 8, 16, 16, 1, 2)
    schedule = AttributeSchedule(ace, "teacher_decay", end=1.0)
    wrapped = nn.ModuleDict({"module": ace})  # as DistributedDataParallel holds it
    for network in (ace, wrapped):
        scalars = scheduled_scalars(nn.MSELoss(), [schedule], network)
        found = scalars({"loss": torch.tensor(2.0)})
        assert set(found) == {"loss", "logit_scale", "teacher_decay"}
    assert isinstance(scheduled_scalars(AFiReLoss(), [], afire), AFiReScalars)
    assert not isinstance(scheduled_scalars(nn.MSELoss(), [], afire), AFiReScalars)
