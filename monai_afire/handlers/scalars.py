# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Named values of a training step, for TensorBoard, MLflow and the progress bar."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from monai.utils import CommonKeys
from torch import nn
from torch.optim import Optimizer

from monai_afire.handlers.schedules import AttributeSchedule, OptimizerSchedule
from monai_afire.losses.afire import AFiReLoss
from monai_afire.metrics.pretraining import prototype_entropy, prototype_information

_LABELS = {"lr": "learning_rate"}


@dataclass(eq=False)
class TrainingScalars:
    """
    Collect the values to log of a training step.

    Called with the output of MONAI's trainer, it returns name -> number or scalar tensor. Tensors stay on their device:
    whoever logs decides when to wait for it.

    Args:
        loss_function: its ``terms`` are logged, or, if it has none, the output's "loss".
        optimizer: None leaves its settings out.
        settings: of the optimizer's groups, of which the largest value counts; "lr" is called "learning_rate".
        network: None leaves its attributes out.
        attributes: of the network.

    Example:
        >>> optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
        >>> TrainingScalars(nn.MSELoss(), optimizer)({"loss": torch.tensor(2.0)})
        {'loss': tensor(2.), 'learning_rate': 0.1}
    """

    loss_function: nn.Module
    optimizer: Optimizer | None = None
    settings: Sequence[str] = ("lr",)
    network: Any = None
    attributes: Sequence[str] = ()

    def __call__(self, output: Mapping[str, Any]) -> dict[str, float | torch.Tensor]:
        """The values of the last step."""
        terms = getattr(self.loss_function, "terms", None)
        values: dict[str, Any] = (
            {CommonKeys.LOSS.value: output[CommonKeys.LOSS]} if terms is None else dict(terms)
        )
        if self.optimizer is not None:
            groups = self.optimizer.param_groups
            values |= {
                _LABELS.get(name, name): max(group[name] for group in groups)
                for name in self.settings
            }
        values |= {name: getattr(self.network, name) for name in self.attributes}
        # PyTorch warns of tensors with a gradient that become numbers, in the middle of the progress bar
        return {
            name: v.detach() if isinstance(v, torch.Tensor) else v for name, v in values.items()
        }


def scheduled_scalars(
    loss_function: nn.Module, handlers: Iterable[Any], network: nn.Module | None = None
) -> TrainingScalars:
    """
    The loss, what the schedules of a training change, and what its method has to watch.

    Args:
        loss_function: see :class:`TrainingScalars`; with :class:`monai_afire.losses.AFiReLoss` the values are those of
            :class:`AFiReScalars`.
        handlers: of the training, among them its :class:`~monai_afire.handlers.OptimizerSchedule` and
            :class:`~monai_afire.handlers.AttributeSchedule`.
        network: also within ``DistributedDataParallel``; its attributes named by ``tracked_attributes`` are logged.

    Returns:
        The values to log.

    Example:
        >>> from monai_afire.handlers import OptimizerSchedule
        >>> optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
        >>> scalars = scheduled_scalars(nn.MSELoss(), [OptimizerSchedule(optimizer, "lr", end=0.0)])
        >>> scalars({"loss": torch.tensor(2.0)})
        {'loss': tensor(2.), 'learning_rate': 0.1}
    """
    handlers = list(handlers)
    optimizers = [handler for handler in handlers if isinstance(handler, OptimizerSchedule)]
    schedules = [handler for handler in handlers if isinstance(handler, AttributeSchedule)]
    plain = getattr(network, "module", network)
    attributes = [*getattr(plain, "tracked_attributes", ()), *(each.name for each in schedules)]
    kind = AFiReScalars if isinstance(loss_function, AFiReLoss) else TrainingScalars
    return kind(
        loss_function,
        optimizers[0].optimizer if optimizers else None,
        [schedule.name for schedule in optimizers],
        schedules[0].owner if schedules else plain,
        attributes,
    )


class AFiReScalars(TrainingScalars):
    """
    The values of AFiRe's pre-training: those of :class:`TrainingScalars`, its prototypes and its lesions.

    Adds "prototype_entropy" and "prototype_information" of the network's bank and "abnormal_fraction", the share of the
    batch's tokens that lesions cover. The arguments are those of :class:`TrainingScalars`.

    Example:
        >>> from monai_afire.losses import AFiReLoss
        >>> from monai_afire.networks import AFiRe, ViTEncoder
        >>> network = AFiRe(ViTEncoder(img_size=32, hidden_size=24, num_layers=1, num_heads=2), num_clusters=8)
        >>> scalars = AFiReScalars(AFiReLoss(), network=network)
        >>> sorted(scalars({"pred": {"abnormal": torch.tensor([True, False])}}))
        ['abnormal_fraction', 'prototype_entropy', 'prototype_information']
    """

    def __call__(self, output: Mapping[str, Any]) -> dict[str, float | torch.Tensor]:
        """The values of the last step."""
        prototypes: torch.Tensor = self.network.bank.prototypes
        return {
            **super().__call__(output),
            "prototype_entropy": prototype_entropy(prototypes),
            "prototype_information": prototype_information(prototypes),
            "abnormal_fraction": output[CommonKeys.PRED]["abnormal"].float().mean(),
        }
