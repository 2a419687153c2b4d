# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Training and evaluation mode of networks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

__all__ = ["eval_mode"]


@contextmanager
def eval_mode(network: nn.Module) -> Iterator[None]:
    """
    Put a network into evaluation mode for a while.

    Each part is given back its own mode, which may differ from the whole's: frozen layers, teachers. MONAI's
    ``eval_mode`` gives all parts that of the whole.

    Args:
        network: with all its parts.

    Example:
        >>> network = nn.Sequential(nn.Dropout(), nn.Dropout().eval())
        >>> with eval_mode(network):
        ...     [module.training for module in network]
        [False, False]
        >>> [module.training for module in network]
        [True, False]
    """
    previous = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in previous:
            module.training = training
