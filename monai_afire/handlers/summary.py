# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What TensorBoard shows: the writer of distributed training, and curves in groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from monai.utils import is_scalar
from torch.utils.tensorboard import SummaryWriter

from monai_afire.utils.distributed import global_rank


class MainRankSummaryWriter(SummaryWriter):
    """
    TensorBoard writer of a distributed run: the main rank writes, on the others scalars and pictures are dropped.

    The file is made when something is written, so a run that has nothing to do leaves none.

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
        self.is_open = False
        self.log_dir = log_dir

    def add_scalar(self, *args: Any, **kwargs: Any) -> None:
        """Write a scalar, see ``SummaryWriter``."""
        if self.is_main:
            self._open()
            super().add_scalar(*args, **kwargs)

    def add_image(self, *args: Any, **kwargs: Any) -> None:
        """Write a picture, see ``SummaryWriter``."""
        if self.is_main:
            self._open()
            super().add_image(*args, **kwargs)

    def flush(self) -> None:
        """Write what is pending."""
        if self.is_open:
            super().flush()

    def close(self) -> None:
        """Close the log."""
        if self.is_open:
            super().close()

    def _open(self) -> None:
        if not self.is_open:
            super().__init__(self.log_dir)
            self.is_open = True


@dataclass(eq=False)
class ScalarCurves:
    """
    Curves below one name of TensorBoard's, as MONAI's ``TensorBoardStatsHandler`` takes their writers.

    Args:
        group: what comes before each name, such as "train".
        values: called with the output of the engine for the values of a step.

    Example:
        >>> import tempfile
        >>> from types import SimpleNamespace
        >>> writer = MainRankSummaryWriter(tempfile.mkdtemp())
        >>> state = SimpleNamespace(epoch=3, metrics={"auc": 0.8})
        >>> ScalarCurves("validation").write_metrics(SimpleNamespace(state=state), writer)
    """

    group: str
    values: Callable[[Any], Mapping[str, Any]] | None = None

    def write_step(self, engine: Any, writer: SummaryWriter) -> None:
        """Write the values of a training step by its iteration."""
        values = {} if self.values is None else self.values(engine.state.output)
        self._write(writer, values, engine.state.iteration)

    def write_metrics(self, engine: Any, writer: SummaryWriter) -> None:
        """Write the metrics of a validation by its epoch."""
        self._write(writer, engine.state.metrics, engine.state.epoch)

    def _write(self, writer: SummaryWriter, values: Mapping[str, Any], step: int) -> None:
        for name, value in values.items():
            if is_scalar(value):
                writer.add_scalar(f"{self.group}/{name}", float(value), step)
        writer.flush()
