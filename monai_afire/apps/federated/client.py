# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A client of federated learning that trains with several processes, of which only the main one knows the server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist
from monai.fl.client import MonaiAlgo
from monai.fl.utils.exchange_object import ExchangeObject

from monai_afire.utils import global_rank
from monai_afire.utils.distributed import world_size

# the others wait while the main process waits for the server, which waits for the slowest client
LONGEST_ROUND = timedelta(days=30)


class DistributedMonaiAlgo(MonaiAlgo):
    """
    MONAI's client, as one of the processes that ``torchrun`` starts on a site, one per GPU.

    What the main process is given goes to all, each of which runs the same round under ``DistributedDataParallel``;
    only the main one has weights to send. All processes call the same methods in the same order. MONAI's class leaves
    open how the weights reach the other processes (MONAI#5133), and knows no devices but CUDA's.

    Args:
        args: of :class:`monai.fl.client.MonaiAlgo`.
        kwargs: likewise.

    Example:
        >>> client = DistributedMonaiAlgo("bundles/afire", config_train_filename=["configs/train.json"])
        >>> client.from_main("a single process is the main one")
        'a single process is the main one'
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._exchange: Any = None

    def initialize(self, extra: dict | None = None) -> None:
        """
        Build trainer and evaluator, and join the processes of this site.

        Args:
            extra: of the system of federated learning, on every process.

        Raises:
            RuntimeError: when ``torchrun`` did not start this process.
        """
        super().initialize(extra)
        if not dist.is_initialized():
            remedy = "start them with torchrun, or use MonaiAlgo for one process"
            raise RuntimeError(f"the processes of this client are not in a group: {remedy}")
        # waits on the CPU: a GPU would spin for as long as the other clients train, and give up after a while
        self._exchange = dist.new_group(backend="gloo", timeout=LONGEST_ROUND)

    def from_main(self, value: Any) -> Any:
        """
        What the main process has, on all; for instance whether there is another round.

        Args:
            value: of the main process; what the others give is ignored. Tensors are to be on the CPU.

        Returns:
            The main process's value.
        """
        if world_size() == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self._exchange)
        return values[0]

    def train(self, data: ExchangeObject | None = None, extra: dict | None = None) -> None:
        """
        Train with all processes from the weights that the main one was given.

        Args:
            data: global weights, on the main process.
            extra: of the system of federated learning.
        """
        super().train(self.from_main(data), extra)

    def evaluate(
        self, data: ExchangeObject | None = None, extra: dict | None = None
    ) -> ExchangeObject:
        """
        Evaluate with all processes the weights that the main one was given.

        Args:
            data: global weights, on the main process.
            extra: of the system of federated learning.

        Returns:
            The metrics.
        """
        return super().evaluate(self.from_main(data), extra)

    def get_weights(self, extra: dict | None = None) -> ExchangeObject:
        """
        Take the weights of this client.

        Args:
            extra: of the system of federated learning.

        Returns:
            As MONAI's client on the main process, filtered; an empty object on the others.
        """
        return super().get_weights(extra) if global_rank() == 0 else ExchangeObject()

    def _set_cuda_device(self) -> None:
        """Nothing: the overlay has set the device of this process, which need not be one of CUDA."""
