# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Report of landmark detection on labeled images: radial errors, success rates, pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from ignite.engine import Engine
from monai.utils import CommonKeys
from numpy.typing import NDArray

from monai_afire.apps.evaluation.landmark_metrics import rescaled_positions
from monai_afire.apps.results.metrics_report import PicturedReport
from monai_afire.apps.results.pictures.draw import CLASS_COLORS, TRUTH_COLOR, landmark_picture
from monai_afire.apps.results.report_text import format_number
from monai_afire.metrics.landmark_errors import landmark_positions, radial_errors
from monai_afire.metrics.multilabel import check_class_names

# suffixes of columns and metrics
_UNITS = ("", "_pixels", "_mm")


@dataclass(eq=False, repr=False)
class LandmarkReport(PicturedReport):
    """
    Write ``landmarks.csv``, ``metrics.json`` and ``landmarks.png``, and print the metrics.

    The evaluator's output has "pred", heat maps ``(B, P, *S)``. The batches need "index", "image" ``(B, C, *S)`` and
    "landmarks" ``(B, P, 2)``, the truth in pixels of "image", 0 at the center of the
    first pixel, NaN where it is not known; for errors in mm the items need "pixel_size", see
    :meth:`PicturedReport.pixel_sizes`. Heat maps may be coarser than the image. ``decollate`` must be False.

    ``metrics.json`` has

    * "mean_radial_error" as a fraction of the image's side (rows of its height, columns of its width), which does not
      depend on how the image was resized, "mean_radial_error_pixels" in pixels of "image", and, where the size of
      pixels is known, "mean_radial_error_mm": means over all known landmarks of all images that were found;
    * "success_rate_<r>%" for each radius: share of the known landmarks within r % of the side;
    * "num_known", the number of known landmarks, and "num_not_found", of those the number whose map points nowhere,
      which count as failures at every radius;
    * "per_landmark": the same for each.

    The sheet shows the images with the worst and the best mean error.

    Args:
        items: the data set's items.
        landmark_names: of the P landmarks.
        output_dir: where to write.
        radii: of the success rates, as fractions of the side.
        window: see ``landmark_positions``.

    Raises:
        ValueError: for landmark names that are not P different ones, an empty data set, or an output that is NaN; the
            image is named.
    """

    table_name = "landmarks.csv"
    sheet_name = "landmarks.png"

    items: Sequence[Mapping[str, Any]]
    landmark_names: Sequence[str]
    output_dir: str
    radii: Sequence[float] = (0.01, 0.02, 0.03, 0.04)
    window: int = 5

    def __post_init__(self) -> None:
        check_class_names(self.landmark_names)

    def collect(self, engine: Engine) -> None:
        """One row per image of the batch."""
        batch: Any = engine.state.batch
        maps = engine.state.output[CommonKeys.PRED].as_subclass(torch.Tensor)  # type: ignore[index]
        check_class_names(self.landmark_names, maps.shape[1])
        self.refuse_nan(maps, batch)
        images = batch[CommonKeys.IMAGE].float().mean(1).cpu().numpy()
        size = images.shape[1:]
        positions = rescaled_positions(
            landmark_positions(maps, self.window).cpu().double(), maps.shape[2:], size
        )
        truth = torch.as_tensor(batch["landmarks"]).as_subclass(torch.Tensor).double().cpu()
        sizes = self.pixel_sizes(batch, size)
        fraction = (1 / torch.tensor(size, dtype=torch.float64)).expand_as(sizes)
        errors = [radial_errors(positions, truth, unit) for unit in (fraction, None, sizes)]
        for row, index in enumerate(batch["index"].tolist()):
            name = self.items[index]["image"]
            columns = self._columns(positions[row], [e[row] for e in errors])
            self.rows.append({"number": index, "image": name, **columns})
            mean, missed = columns["mean_radial_error"], bool(errors[0][row].isinf().any())
            found, known, image = positions[row].numpy(), truth[row].numpy(), images[row]
            drawing = partial(landmark_picture, image.astype(np.float16), found, known)
            error = f"mean error {format_number(100 * mean, 2)} % of the side{', some not found' * missed}"
            self.keep_example(-np.inf if missed else -mean, f"{Path(name).name}\n{error}", drawing)

    def evaluate(self, table: pd.DataFrame) -> dict[str, Any]:
        """Means over all known landmarks, and of each."""
        per_landmark = {name: self._metrics(table, [name]) for name in self.landmark_names}
        return {
            "num_images": len(table),
            **self._metrics(table, self.landmark_names),
            "per_landmark": per_landmark,
        }

    def draw(self, table: pd.DataFrame, metrics: dict[str, Any]) -> None:
        """The sheet."""
        legend = {"truth": TRUTH_COLOR, "prediction": CLASS_COLORS[0]}
        self.draw_sheet(legend, "mean radial error")

    def _columns(self, positions: torch.Tensor, errors: Sequence[torch.Tensor]) -> dict[str, float]:
        """Columns of an image, from its positions ``(P, 2)`` and its errors ``(P,)`` in each of ``_UNITS``."""
        columns = {"mean_radial_error": _mean_found(errors[0].numpy())}
        for number, name in enumerate(self.landmark_names):
            columns[f"{name}_row"], columns[f"{name}_column"] = positions[number].tolist()
            for unit, values in zip(_UNITS, errors, strict=True):
                columns[f"{name}_error{unit}"] = float(values[number])
        return columns

    def _metrics(self, table: pd.DataFrame, names: Sequence[str]) -> dict[str, Any]:
        """Of some landmarks together."""
        metrics: dict[str, Any] = {}
        for unit in _UNITS:
            values = table[[f"{name}_error{unit}" for name in names]].to_numpy()
            if unit != "_mm" or not np.isnan(values).all():
                metrics[f"mean_radial_error{unit}"] = _mean_found(values)
        errors = table[[f"{name}_error" for name in names]].to_numpy()
        known = errors[~np.isnan(errors)]
        for radius in self.radii:
            rate = float((known <= radius).mean()) if known.size else float("nan")
            metrics[f"success_rate_{100 * radius:g}%"] = rate
        metrics["num_known"] = known.size
        metrics["num_not_found"] = int(np.isinf(errors).sum())
        return metrics


def _mean_found(errors: NDArray) -> float:
    found = errors[np.isfinite(errors)]
    return float(found.mean()) if found.size else float("nan")
