# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""MONAI's sine-cosine position embeddings without what PyTorch says of their making."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_meshgrid_warning"]


@contextmanager
def without_meshgrid_warning() -> Iterator[None]:
    """
    Leave out PyTorch's warning of the missing ``indexing``, which MONAI's code causes and no user can mend.

    Example:
        >>> import torch
        >>> with without_meshgrid_warning():
        ...     rows, columns = torch.meshgrid(torch.arange(2), torch.arange(3))
        >>> tuple(rows.shape)
        (2, 3)
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.meshgrid")
        yield
