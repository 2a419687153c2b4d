# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Mixed precision on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from monai.inferers import SimpleInferer

from monai_afire.utils.device import has_bfloat16


class AutocastInferer(SimpleInferer):
    """
    Run the network under autocast on the device of its input.

    The ``amp`` option of MONAI's engines covers CUDA only. This covers CPUs too, where bfloat16 is native on many
    server processors; a device that lacks it (:func:`monai_afire.utils.has_bfloat16`) computes in the network's own
    precision. bfloat16 has the range of float32 and needs no gradient scaler; for float16 use ``amp``.

    Args:
        enabled: False runs in the network's own precision.
        dtype: precision of the matrix products.

    Example:
        >>> AutocastInferer(dtype=torch.float16)(torch.rand(2, 3), torch.nn.Linear(3, 4)).dtype
        torch.float16
    """

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.enabled = enabled
        self.dtype = dtype

    def __call__(self, inputs: torch.Tensor, network: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``network(inputs, *args, **kwargs)`` under autocast."""
        is_possible = self.dtype != torch.bfloat16 or has_bfloat16(inputs.device)
        with torch.autocast(inputs.device.type, dtype=self.dtype, enabled=self.enabled and is_possible):
            return network(inputs, *args, **kwargs)
