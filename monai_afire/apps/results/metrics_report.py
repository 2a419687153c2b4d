# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Bases of the reports: a table with a row per image, ``metrics.json``, and a sheet with the worst and best images."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from ignite.engine import Engine, Events
from monai.utils import convert_to_tensor
from numpy.typing import NDArray

from monai_afire.apps.results.pictures.draw import Color
from monai_afire.apps.results.pictures.grid import image_grid
from monai_afire.apps.results.report_text import metrics_lines
from monai_afire.data.datalist.scanning import mark_results
from monai_afire.utils.distributed import world_size
from monai_afire.utils.files import check_writable, refuse_existing, write_text
from monai_afire.utils.formatting import json_safe


class MetricsReport(ABC):
    """
    Base of the handlers that evaluate a network on labeled images, attached to an evaluator.

    A subclass collects ``self.rows``, a dictionary per image, in :meth:`collect`, and turns the table of them into
    metrics in :meth:`evaluate`. Written are the table and ``metrics.json``, each complete or absent; a metric that is
    not defined (NaN) is ``null`` there. A folder with those of another run is refused.

    Attributes:
        items: the data set's items, for the names of the files; each subclass has them as an argument.
        output_dir: where to write, likewise; checked when the evaluation starts.
        table_name: file name of the table.
    """

    items: Sequence[Mapping[str, Any]]
    output_dir: str
    table_name: str = "evaluation.csv"

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        engine.add_event_handler(Events.STARTED, self.start)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.collect)
        engine.add_event_handler(Events.COMPLETED, self.report)

    def start(self, engine: Engine) -> None:
        """Forget the previous run."""
        if world_size() > 1:
            remedy = "start it without torchrun and overlays for several GPUs"
            raise RuntimeError(f"an evaluation needs one process: {remedy}")
        self.folder = check_writable(self.output_dir)
        refuse_existing(self.folder / self.table_name, self.folder / "metrics.json")
        mark_results(self.folder, (item["image"] for item in self.items))
        self.rows: list[dict[str, Any]] = []

    @abstractmethod
    def collect(self, engine: Engine) -> None:
        """Add one row per image of the batch to ``self.rows``."""

    @abstractmethod
    def evaluate(self, table: pd.DataFrame) -> dict[str, Any]:
        """Compute the metrics from the table of all rows."""

    def report(self, engine: Engine) -> None:
        """Compute the metrics, write the files, draw and print."""
        if not self.rows:
            raise ValueError("no image was evaluated: the section of the datalist is empty")
        table = pd.DataFrame(self.rows)
        metrics = json_safe(self.evaluate(table))
        write_text(self.folder / self.table_name, table.to_csv(index=False))
        write_text(self.folder / "metrics.json", json.dumps(metrics, indent=2))
        self.draw(table, metrics)
        print("\n".join(metrics_lines(metrics)), flush=True)

    def refuse_nan(self, output: torch.Tensor, batch: Mapping[str, Any]) -> None:
        """Refuse a network's output with NaN, which would look like an empty mask or an absent finding."""
        bad = convert_to_tensor(output, track_meta=False).isnan().flatten(1).any(-1).cpu()
        if bad.any():
            image = self.items[int(batch["index"].cpu()[bad][0])]["image"]
            reason = "an exploded or wrongly loaded network"
            raise ValueError(f"the network's output for {image} is NaN: {reason}")

    def draw(self, table: pd.DataFrame, metrics: dict[str, Any]) -> None:  # noqa: B027  a report need not have pictures
        """Pictures beside the metrics; none unless a subclass has some."""


Draw = Callable[[], NDArray[np.uint8]]


class PicturedReport(MetricsReport):
    """
    Base of the reports with a sheet of the worst and the best images.

    A subclass calls :meth:`keep_example` with the score of each image and a function that draws it. Memory does not
    depend on the number of images.

    Attributes:
        sheet_name: file name of the sheet.
        num_pictures: pictures of each kind: worst, best.
    """

    sheet_name: str
    num_pictures = 4

    def start(self, engine: Engine) -> None:
        """Forget the previous run."""
        super().start(engine)
        self.num_scored = 0
        self.examples: list[tuple[float, str, Draw]] = []  # the worst and the best by rising score

    def keep_example(self, score: float, name: str, draw: Draw) -> None:
        """Consider an image for the sheet: larger scores are better, NaN is not shown; drawn when the run is over."""
        if np.isnan(score):
            return
        self.num_scored += 1
        insort(self.examples, (score, name, draw), key=lambda example: example[0])
        del self.examples[self.num_pictures : -self.num_pictures]

    def draw_sheet(self, legend: Mapping[str, Color], measure: str) -> None:
        """Write the sheet, from the worst to the best by a measure; nothing without an image."""
        if not self.examples:
            return
        worst = range(1, 1 + min(self.num_pictures, len(self.examples)))
        best = range(1 + self.num_scored - len(self.examples) + len(worst), 1 + self.num_scored)
        titles = [
            f"{name}\nrank {rank} of {self.num_scored}"
            for rank, (_, name, _) in zip((*worst, *best), self.examples, strict=True)
        ]
        pictures = [draw() for *_, draw in self.examples]
        path, title = self.folder / self.sheet_name, f"Worst and best images by {measure}"
        image_grid(pictures, titles, path, legend, columns=self.num_pictures, title=title)

    def pixel_sizes(self, batch: Mapping[str, Any], size: Sequence[int]) -> torch.Tensor:
        """
        Size of a pixel of the network's input in mm, ``(B, len(size))`` float64, NaN where it is not known.

        It follows from "pixel_size" of the items and "spatial_shape" of the batch, of images that were resized without
        cropping or padding.
        """
        known = [self.items[index].get("pixel_size") for index in batch["index"].tolist()]
        file_sizes = [np.broadcast_to(np.nan if v is None else v, len(size)) for v in known]
        input_shape = torch.tensor(tuple(size), dtype=torch.float64)
        shapes = torch.as_tensor(batch.get("spatial_shape", input_shape)).double().cpu()
        return torch.as_tensor(np.array(file_sizes, dtype=float)) * shapes / input_shape
