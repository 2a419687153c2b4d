# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What the methods' whole losses have in common: weighted terms on the outputs of a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

__all__ = ["CompositeLoss"]


class CompositeLoss(nn.Module):
    """
    Base of a method's loss: the weighted sum of its terms, each of which stays to be logged.

    A subclass has a method ``_<name>(outputs)`` for each term; one of weight 0 is not called. ``terms`` holds the last
    values, detached, with their sum as "total". In a process group the terms are those of the global batch, the same on
    every rank; call the loss on all ranks.

    Args:
        weights: of each term, in the order of the sum.
        remedy: how to build the network so that it gives what the terms need, for the message.

    Raises:
        ValueError: when a weight is negative or all are zero.

    Example:
        >>> class Distance(CompositeLoss):
        ...     def _length(self, outputs):
        ...         return outputs["x"].abs().mean()
        >>> loss = Distance({"length": 2.0}, "build it with x")
        >>> loss({"x": torch.tensor([3.0])}), loss.terms
        (tensor(6.), {'total': tensor(6.), 'length': tensor(3.)})
    """

    def __init__(self, weights: Mapping[str, float], remedy: str) -> None:
        super().__init__()
        self.weights = dict(weights)
        if min(self.weights.values()) < 0 or max(self.weights.values()) == 0:
            raise ValueError(f"the weights must not be negative nor all zero, got {self.weights}")
        self.remedy = remedy
        self.terms: dict[str, torch.Tensor] = {}

    def forward(self, outputs: Mapping[str, torch.Tensor], label: torch.Tensor | None = None) -> torch.Tensor:
        """
        Compute the weighted sum of the terms.

        Args:
            outputs: what the method's network returns in training.
            label: ignored; MONAI's trainer hands it to every loss.

        Returns:
            Scalar.

        Raises:
            ValueError: when an output that a term needs is missing.
        """
        active = [name for name, weight in self.weights.items() if weight > 0]
        try:
            terms = {name: self._term(name)(outputs) for name in active}
        except KeyError as error:
            raise ValueError(
                f"the losses {active} need the network's output {error}, but it gives {sorted(outputs)}: set the "
                f"term's weight to 0 or {self.remedy}"
            ) from error
        total = torch.stack([self.weights[name] * term for name, term in terms.items()]).sum()
        self.terms = {name: term.detach() for name, term in {"total": total, **terms}.items()}
        return total

    def _term(self, name: str) -> Callable[[Mapping[str, torch.Tensor]], torch.Tensor]:
        return getattr(self, f"_{name}")
