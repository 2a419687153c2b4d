# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""TensorBoard writer of distributed training."""

from __future__ import annotations

from typing import Any

from torch.utils.tensorboard import SummaryWriter

from monai_afire.utils.distributed import global_rank


class MainRankSummaryWriter(SummaryWriter):
    """
    TensorBoard writer of a distributed run: the main rank writes, on the others scalars and pictures are dropped.

    Args:
        log_dir: folder of the log.

    Example:
        >>> import tempfile
        >>> writer = MainRankSummaryWriter(tempfile.mkdtemp())
        >>> writer.add_scalar("loss", 0.5, global_step=1)
        >>> writer.close()
    """

    def __init__(self, log_dir: str) -> None:
        self.is_main = global_rank() == 0
        if self.is_main:
            super().__init__(log_dir)

    def add_scalar(self, *args: Any, **kwargs: Any) -> None:
        """Write a scalar, see ``SummaryWriter``."""
        if self.is_main:
            super().add_scalar(*args, **kwargs)

    def add_image(self, *args: Any, **kwargs: Any) -> None:
        """Write a picture, see ``SummaryWriter``."""
        if self.is_main:
            super().add_image(*args, **kwargs)

    def flush(self) -> None:
        """Write what is pending."""
        if self.is_main:
            super().flush()

    def close(self) -> None:
        """Close the log."""
        if self.is_main:
            super().close()
