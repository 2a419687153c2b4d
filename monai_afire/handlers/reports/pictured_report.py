# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the reports with pictures of the worst to the best images, and the size of their pixels."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine
from numpy.typing import NDArray

from monai_afire.handlers.reports.metrics_report import MetricsReport
from monai_afire.visualize.outlines import picture_sheet

__all__ = ["PicturedReport", "input_pixel_sizes"]

Draw = Callable[[], NDArray[np.uint8]]
_SPARE = 16  # examples kept around the median, which moves while images come in


class PicturedReport(MetricsReport):
    """
    Base of the reports with a sheet of the worst, the median and the best images.

    A subclass hands each image's score and a function that draws it to :meth:`keep_example`. Memory does not depend on
    the number of images: what can be neither the worst nor the best nor, most likely, the median is forgotten.

    Args:
        items: the data set's items, for the names of the files.
        output_dir: where to write.
        table_name: file name of the table.
        sheet_name: file name of the sheet.
        num_pictures: pictures of each kind: worst, median, best.
    """

    def __init__(
        self,
        items: Sequence[Mapping[str, Any]],
        output_dir: str,
        table_name: str,
        sheet_name: str,
        num_pictures: int = 4,
    ) -> None:
        if num_pictures < 1:
            raise ValueError(f"num_pictures must be at least 1, got {num_pictures}")
        super().__init__(output_dir, table_name)
        self.items = items
        self.sheet_name = sheet_name
        self.num_pictures = num_pictures
        self.scores: list[float] = []
        self.examples: list[tuple[float, str, Draw]] = []

    def start(self, engine: Engine) -> None:
        """Forget the previous run."""
        super().start(engine)
        self.scores, self.examples = [], []

    def keep_example(self, score: float, name: str, draw: Draw) -> None:
        """
        Consider an image for the sheet.

        Args:
            score: larger is better; one of NaN is not shown.
            name: what to write over the picture.
            draw: makes the picture, ``(rows, columns, 3)`` uint8; called when the run is over.
        """
        if np.isnan(score):
            return
        insort(self.scores, score)
        self.examples.append((score, name, draw))
        if len(self.examples) > 2 * (3 * self.num_pictures + _SPARE):
            self.examples = self._extremes(_SPARE)

    def draw_sheet(self, legend: Mapping[str, tuple[int, int, int]], title: str) -> None:
        """Write the sheet, from the worst to the best; nothing without an image."""
        chosen = self._extremes(0)
        if not chosen:
            return
        titles = [f"{name}\nrank {1 + bisect_left(self.scores, s)} of {len(self.scores)}" for s, name, _ in chosen]
        pictures = [draw() for *_, draw in chosen]
        path = self.output_dir / self.sheet_name
        picture_sheet(pictures, titles, path, legend, columns=self.num_pictures, title=title)

    def item_facts(self, index: int) -> dict[str, Any]:
        """Columns of the table that describe the item itself."""
        return {"number": index, "image": self.items[index]["image"]}

    def name_of(self, index: int) -> str:
        """Name of an item in pictures."""
        return Path(str(self.items[index]["image"])).name

    def _extremes(self, spare: int) -> list[tuple[float, str, Draw]]:
        """Of the examples that are kept: the worst, those around the median of all images, the best."""
        ordered = sorted(self.examples, key=lambda example: example[0])
        number = self.num_pictures
        if len(ordered) <= 3 * number + spare:
            return ordered
        middle, half = ordered[number:-number], (len(self.scores) - 1) / 2
        nearest = sorted(range(len(middle)), key=lambda place: abs(bisect_left(self.scores, middle[place][0]) - half))
        kept = sorted(nearest[: number + spare])
        return [*ordered[:number], *(middle[place] for place in kept), *ordered[-number:]]


def input_pixel_sizes(
    items: Sequence[Mapping[str, Any]],
    batch: Mapping[str, Any],
    size: Sequence[int],
    spacing: float | Sequence[float] | None = None,
) -> torch.Tensor:
    """
    Size of a pixel of the network's input in mm, for images that were resized to it without cropping or padding.

    Args:
        items: with the "pixel_size" of the file in mm, a number or one for each axis, where it is known.
        batch: with "index" and, where files and input differ in size, "spatial_shape" ``(B, 2)`` of the files.
        size: (rows, columns) of the input, or the sides of a volume.
        spacing: of the voxels in mm where volumes were resampled to it.

    Returns:
        ``(B, dims)`` float64, along each axis; NaN where it is not known.

    Example:
        >>> batch = {"index": torch.tensor([0, 1]), "spatial_shape": torch.tensor([[512, 256], [512, 512]])}
        >>> input_pixel_sizes([{"pixel_size": 0.5}, {}], batch, (128, 128))
        tensor([[2.,  1.],
                [nan, nan]], dtype=torch.float64)
    """
    if spacing is not None:
        return torch.as_tensor(spacing, dtype=torch.float64).expand(len(batch["index"]), len(size))
    known = [items[index].get("pixel_size") for index in batch["index"].tolist()]
    file_pixels = torch.tensor(
        [
            np.broadcast_to(np.nan if value is None else np.asarray(value, dtype=float), len(size)).tolist()
            for value in known
        ],
        dtype=torch.float64,
    )
    here = torch.tensor(tuple(size), dtype=torch.float64)
    shapes = torch.as_tensor(batch["spatial_shape"]).double().cpu() if "spatial_shape" in batch else here
    return file_pixels * shapes / here
