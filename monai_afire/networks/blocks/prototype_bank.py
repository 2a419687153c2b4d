# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Spatial-aware prototypes: one running cluster distribution per token position."""

from __future__ import annotations

import torch
from torch import nn

from monai_afire.networks.blocks.ema import check_momentum
from monai_afire.utils.distributed import all_reduce


class PrototypeBank(nn.Module):
    r"""
    Running mean of the teacher's cluster distribution at each position of normal radiographs (AFiRe, Eq. 7).

    .. math::
        \bar q_{jk} = \frac1B \sum_i q_{ijk}, \qquad
        c_{jk} \leftarrow \begin{cases} \bar q_{jk} & \text{first update} \\
        m\, c_{jk} + (1 - m)\, \bar q_{jk} & \text{afterwards} \end{cases}

    The prototypes are buffers: they are saved with the network and never trained by gradients. Their rows are
    probability vectors at all times (uniform before the first update), as long as the rows of q are. In a process
    group the average runs over the images of all ranks, so that every rank holds the same bank.

    Args:
        num_tokens: L, number of token positions.
        num_clusters: K, length of each prototype.
        momentum: m in [0, 1); 0 keeps no memory, each update replaces the prototypes.

    Example:
        >>> bank = PrototypeBank(num_tokens=1, num_clusters=2, momentum=0.75)
        >>> bank.update(torch.tensor([[[1.0, 0.0]]]))
        >>> bank.update(torch.tensor([[[0.0, 1.0]]]))
        >>> bank.prototypes
        tensor([[0.7500, 0.2500]])
    """

    prototypes: torch.Tensor
    num_updates: torch.Tensor

    def __init__(self, num_tokens: int, num_clusters: int, momentum: float = 0.9) -> None:
        super().__init__()
        check_momentum("momentum", momentum)
        self.momentum = momentum
        self.register_buffer(
            "prototypes", torch.full((num_tokens, num_clusters), 1.0 / num_clusters)
        )
        self.register_buffer("num_updates", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def update(self, q: torch.Tensor) -> None:
        """Move the prototypes towards the mean of q ``(B, L, K)``, teacher assignments of normal images."""
        if q.ndim != 3 or q.shape[1:] != self.prototypes.shape:
            raise ValueError(
                f"q must be (B, L, K) with (L, K) = {tuple(self.prototypes.shape)}, got {tuple(q.shape)}"
            )
        total = q.to(self.prototypes.dtype).sum(0)
        count = all_reduce(torch.full((), q.shape[0], dtype=total.dtype, device=total.device))
        total = all_reduce(total)
        # decided on the device, and the momentum filled in there: a copy of it would stop a GPU
        keep = torch.full_like(count, self.momentum) * (self.num_updates > 0)
        self.prototypes.mul_(keep).add_(total * ((1 - keep) / count))
        self.num_updates += 1
