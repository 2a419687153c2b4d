# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Named values of a training step, for TensorBoard, MLflow and the progress bar."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from monai.utils import CommonKeys
from torch import nn

from monai_afire.handlers.schedules import AttributeSchedule, OptimizerSchedule
from monai_afire.losses.afire import AFiReLoss
from monai_afire.metrics.pretraining import prototype_entropy, prototype_information


def step_scalars(
    output: Mapping[str, Any], loss_function: nn.Module, handlers: Iterable[Any], network: Any
) -> dict[str, float]:
    """
    The loss of a step, what the schedules of the training change, and what its method has to watch.

    Args:
        output: of MONAI's trainer.
        loss_function: its ``terms`` count, or, if it has none, the output's "loss". With ``AFiReLoss`` there are values
            of the prototypes, too.
        handlers: of the training. Of the groups of an optimizer the largest value of a scheduled setting counts.
        network: unwrapped; its attributes named by ``tracked_attributes`` count.

    Returns:
        The values by name. The host waits for the device.
    """
    terms = getattr(loss_function, "terms", None)
    values: dict[str, Any] = dict({"loss": output[CommonKeys.LOSS]} if terms is None else terms)
    handlers = list(handlers)
    for each in handlers:
        if isinstance(each, OptimizerSchedule):
            name = "learning_rate" if each.name == "lr" else each.name
            values[name] = max(group[each.name] for group in each.optimizer.param_groups)
    for name in getattr(network, "tracked_attributes", ()):
        values[name] = getattr(network, name)
    for each in handlers:
        if isinstance(each, AttributeSchedule):
            values[each.name] = getattr(each.owner, each.name)
    if isinstance(loss_function, AFiReLoss):
        trained = getattr(
            network, "network", network
        )  # a detector holds the network that is trained
        values |= _of_prototypes(trained.bank.prototypes, output[CommonKeys.PRED]["abnormal"])
    # PyTorch warns of tensors with a gradient that become numbers, in the middle of the progress bar
    return {
        name: float(value.detach() if isinstance(value, torch.Tensor) else value)
        for name, value in values.items()
    }


def _of_prototypes(prototypes: torch.Tensor, abnormal: torch.Tensor) -> dict[str, torch.Tensor]:
    """What AFiRe watches: its prototypes ``(L, K)``, and the share of the tokens that lesions cover."""
    return {
        "prototype_entropy": prototype_entropy(prototypes),
        "prototype_information": prototype_information(prototypes),
        "abnormal_fraction": abnormal.float().mean(),
    }
