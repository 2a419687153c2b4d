# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Mixed precision on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from monai.inferers import SimpleInferer

from monai_afire.utils.device import half_precision


class AutocastInferer(SimpleInferer):
    """
    Run the network under autocast on the device of its input.

    The ``amp`` option of MONAI's engines covers CUDA only, and the loss, too. This covers the network alone, on CPUs,
    too, where bfloat16 is native on many server processors. bfloat16 has the range of float32 and needs no gradient
    scaler; float16 needs one, which :class:`monai_afire.handlers.Training` adds.

    Args:
        enabled: False runs in the network's own precision.
        dtype: precision of the matrix products; None for what the device has
            (:func:`monai_afire.utils.device.half_precision`).

    Example:
        >>> AutocastInferer(dtype=torch.float16)(torch.rand(2, 3), torch.nn.Linear(3, 4)).dtype
        torch.float16
    """

    def __init__(self, enabled: bool = True, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.enabled = enabled
        self.dtype = dtype

    def precision(self, device: torch.device | str) -> torch.dtype | None:
        """The half precision that products on a device have; None for the network's own."""
        if not self.enabled:
            return None
        return half_precision(device) if self.dtype is None else self.dtype

    def __call__(
        self, inputs: torch.Tensor, network: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Call ``network(inputs, *args, **kwargs)`` under autocast."""
        dtype = self.precision(inputs.device)
        with torch.autocast(inputs.device.type, dtype=dtype, enabled=dtype is not None):
            return network(inputs, *args, **kwargs)
