# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the methods' losses: a weighted sum of terms on the outputs of a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class LossTerm:
    """
    One term of a :class:`CompositeLoss`.

    Args:
        weight: factor in the sum; a term of weight 0 is not computed.
        function: from the network's outputs that ``needs`` names, in its order, to a scalar.
        needs: names of these outputs.
    """

    weight: float
    function: Callable[..., Tensor]
    needs: tuple[str, ...]


class CompositeLoss(nn.Module):
    """
    Weighted sum of a method's terms, each of which stays to be logged.

    A term is left out if its weight is 0, or if the network does not give what it needs, since that part of it is
    switched off. ``terms`` holds the last values, detached, with their sum as "total". In a process group the terms are
    those of the global batch, the same on every rank; call the loss on all ranks.

    Args:
        terms: by name, in the order of the sum.

    Example:
        >>> length = LossTerm(2.0, lambda x: x.abs().mean(), needs=("x",))
        >>> loss = CompositeLoss({"length": length})
        >>> loss({"x": torch.tensor([3.0])}), loss.terms
        (tensor(6.), {'total': tensor(6.), 'length': tensor(3.)})
    """

    def __init__(self, terms: Mapping[str, LossTerm]) -> None:
        super().__init__()
        self.weights = {name: term.weight for name, term in terms.items()}
        if min(self.weights.values()) < 0 or max(self.weights.values()) == 0:
            raise ValueError(f"the weights must not be negative nor all zero, got {self.weights}")
        self.active = {name: term for name, term in terms.items() if term.weight > 0}
        self.terms: dict[str, Tensor] = {}

    def forward(self, outputs: Mapping[str, Tensor], label: Tensor | None = None) -> Tensor:
        """
        Compute the weighted sum of the terms.

        Args:
            outputs: what the method's network returns in training.
            label: ignored; MONAI's trainer passes it to every loss.

        Returns:
            Scalar.
        """
        values = {
            name: term.function(*(outputs[need] for need in term.needs))
            for name, term in self.active.items()
            if all(need in outputs for need in term.needs)
        }
        if not values:
            needs = {name: term.needs for name, term in self.active.items()}
            raise ValueError(f"no term can be computed: they need {needs}, got {sorted(outputs)}")
        total = torch.stack([self.weights[name] * value for name, value in values.items()]).sum()
        self.terms = {name: value.detach() for name, value in {"total": total, **values}.items()}
        return total
