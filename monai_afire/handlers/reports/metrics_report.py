# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the reports: a table with a row per image, and ``metrics.json``."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from ignite.engine import Engine, Events
from monai.utils import convert_to_tensor

from monai_afire.utils.files import atomic_path, check_writable
from monai_afire.utils.formatting import json_safe

__all__ = ["MetricsReport", "refuse_nan"]


class MetricsReport(ABC):
    """
    Base of the handlers that evaluate a network on labelled images.

    A subclass collects ``self.rows``, a dictionary per image, in :meth:`collect`, and turns the table of them into
    metrics in :meth:`evaluate`. Written are the table and ``metrics.json``, each complete or absent; a metric that is
    not defined (NaN) is ``null`` there. Attach it to an evaluator.

    Args:
        output_dir: where to write; checked when the evaluation starts.
        table_name: file name of the table.

    Raises:
        OSError: when the run starts and ``output_dir`` cannot be written to.

    Example:
        >>> import tempfile
        >>> class Count(MetricsReport):
        ...     def collect(self, engine):
        ...         self.rows.append({"value": engine.state.output})
        ...     def evaluate(self, table):
        ...         return {"mean": table["value"].mean(), "undefined": float("nan")}
        >>> folder, engine = tempfile.mkdtemp(), Engine(lambda engine, batch: batch)
        >>> Count(folder).attach(engine)
        >>> _ = engine.run([1.0, 3.0])
        >>> json.loads((Path(folder) / "metrics.json").read_text())
        {'mean': 2.0, 'undefined': None}
    """

    def __init__(self, output_dir: str, table_name: str = "evaluation.csv") -> None:
        self.output_dir = Path(output_dir)
        self.table_name = table_name
        self.rows: list[dict[str, Any]] = []

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        engine.add_event_handler(Events.STARTED, self.start)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.collect)
        engine.add_event_handler(Events.COMPLETED, self.report)

    def start(self, engine: Engine) -> None:
        """Forget the previous run."""
        check_writable(self.output_dir)
        self.rows = []

    @abstractmethod
    def collect(self, engine: Engine) -> None:
        """Add one row per image of the batch to ``self.rows``."""

    @abstractmethod
    def evaluate(self, table: pd.DataFrame) -> dict[str, Any]:
        """Compute the metrics from the table of all rows."""

    def report(self, engine: Engine) -> None:
        """Compute the metrics, write the files, draw and print."""
        table = pd.DataFrame(self.rows)
        metrics = self.evaluate(table)
        with atomic_path(self.output_dir / self.table_name) as temporary:
            table.to_csv(temporary, index=False)
        with atomic_path(self.output_dir / "metrics.json") as temporary:
            temporary.write_text(json.dumps(json_safe(metrics), indent=2))
        self.draw(table)
        if lines := self.lines(metrics):
            print("\n".join(lines), flush=True)

    def draw(self, table: pd.DataFrame) -> None:  # noqa: B027  a report need not have pictures
        """Pictures beside the metrics; none unless a subclass has some."""

    def lines(self, metrics: dict[str, Any]) -> list[str]:
        """The summary to print; nothing unless a subclass has something to say."""
        return []


def refuse_nan(output: torch.Tensor, batch: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> None:
    """
    Refuse a network's output with NaN, which would look like an empty mask or an absent finding.

    Args:
        output: ``(B, ...)``.
        batch: with "index" ``(B,)``, the numbers in ``items``.
        items: the data set's items.

    Raises:
        ValueError: with the name of the first such image.

    Example:
        >>> refuse_nan(torch.tensor([[0.0], [torch.nan]]), {"index": torch.tensor([3, 1])}, [{}, {"image": "a.png"}])
        Traceback (most recent call last):
        ValueError: the network's output for a.png is NaN: an exploded or wrongly loaded network
    """
    bad = convert_to_tensor(output, track_meta=False).isnan().flatten(1).any(-1).cpu()
    if bad.any():
        image = items[int(batch["index"].cpu()[bad][0])]["image"]
        raise ValueError(f"the network's output for {image} is NaN: an exploded or wrongly loaded network")
