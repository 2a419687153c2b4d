# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Report of a segmentation on labeled images: Dice, Hausdorff distance, pictures."""

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

from monai_afire.apps.evaluation.segmentation_metrics import segmentation_metrics
from monai_afire.apps.results.metrics_report import PicturedReport
from monai_afire.apps.results.pictures.draw import TRUTH_COLOR, class_color, outline_picture
from monai_afire.metrics.multilabel import check_class_names
from monai_afire.utils.precision import at_least_float32


@dataclass(eq=False, repr=False)
class SegmentationReport(PicturedReport):
    """
    Write ``evaluation.csv``, ``metrics.json`` and ``segmentation.png``, and print the metrics.

    The evaluator's output has "pred", logits ``(B, C, *S)`` of C classes that may overlap, and "label", masks
    ``(B, C, *S)``; a mask with a NaN in it is not known and does not count. The batches need "index" and "image"
    ``(B, C, *S)``, and for distances in mm the items "pixel_size", see :meth:`PicturedReport.pixel_sizes`. S is the
    network's input, and distances in pixels are in its pixels. ``decollate`` must be False.

    ``metrics.json`` has

    * "mean_dice" and "mean_hd95" (pixels), and "mean_hd95_mm" where the size of pixels is known: means over classes;
    * "per_class": for each class "dice", "hd95" and "hd95_mm", means over images, see
      :func:`monai_afire.apps.evaluation.segmentation_metrics` for what empty masks count; "dice_where_present", the
      mean over the images whose truth is not empty; "num_images" and "num_present", the numbers of images with a truth
      and with one that is not empty.

    The sheet shows the images with the worst and the best mean Dice.

    Args:
        items: the data set's items.
        class_names: of the C classes.
        output_dir: where to write.
        threshold: smallest probability inside a mask, in (0, 1).

    Raises:
        ValueError: for a threshold out of range, class names that are not C different ones, an empty data set, or an
            output that is NaN; the image is named.
    """

    sheet_name = "segmentation.png"

    items: Sequence[Mapping[str, Any]]
    class_names: Sequence[str]
    output_dir: str
    threshold: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold must be in (0, 1), got {self.threshold}")
        check_class_names(self.class_names)

    def collect(self, engine: Engine) -> None:
        """One row per image of the batch."""
        batch: Any = engine.state.batch
        output: Any = engine.state.output
        pred, label = (output[key].as_subclass(torch.Tensor) for key in ("pred", "label"))
        check_class_names(self.class_names, pred.shape[1])
        self.refuse_nan(pred, batch)
        masks, truth = at_least_float32(pred).sigmoid() >= self.threshold, label > 0.5
        known = ~label.isnan().flatten(2).any(-1)
        columns = self._measure(batch, masks, truth, known)
        drawn = [stack.cpu().numpy() for stack in (truth, masks)]
        images = batch[CommonKeys.IMAGE].float().mean(1).cpu().numpy()
        for row, index in enumerate(batch["index"].tolist()):
            values = {name: float(column[row]) for name, column in columns.items()}
            name = self.items[index]["image"]
            self.rows.append({"number": index, "image": name, **values})
            true, predicted = (stack[row] for stack in drawn)
            drawing = partial(outline_picture, images[row].astype(np.float16), predicted, true)
            dice = values["mean_dice"]
            self.keep_example(dice, f"{Path(name).name}\nmean Dice {dice:.3f}", drawing)

    def evaluate(self, table: pd.DataFrame) -> dict[str, Any]:
        """Means over images, then over classes."""
        kinds, per_class = ["dice", "hd95"], {}
        if f"hd95_mm_{self.class_names[0]}" in table:
            kinds.append("hd95_mm")
        for name in self.class_names:
            dice, present = table[f"dice_{name}"], table[f"truth_pixels_{name}"] > 0
            per_class[name] = {
                **{kind: table[f"{kind}_{name}"].mean() for kind in kinds},
                "dice_where_present": dice[present].mean(),
                "num_images": int(dice.notna().sum()),
                "num_present": int(present.sum()),
            }
        means = pd.DataFrame(per_class).loc[kinds].mean(axis=1).add_prefix("mean_").to_dict()
        return {"num_images": len(table), **means, "per_class": per_class}

    def draw(self, table: pd.DataFrame, metrics: dict[str, Any]) -> None:
        """The sheet."""
        colors = {name: class_color(number) for number, name in enumerate(self.class_names)}
        self.draw_sheet({"truth": TRUTH_COLOR, **colors}, "mean Dice")

    def _measure(
        self, batch: Any, masks: torch.Tensor, truth: torch.Tensor, known: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Columns of the table, ``(B,)`` each."""
        measured = segmentation_metrics(masks, truth)
        sizes = self.pixel_sizes(batch, masks.shape[2:])
        if not sizes.isnan().all():
            measured["hd95_mm"] = segmentation_metrics(masks, truth, sizes)["hd95"]
        measured["truth_pixels"] = truth.flatten(2).sum(-1).float()
        measured = {k: values.masked_fill(~known, torch.nan) for k, values in measured.items()}
        measured["predicted_pixels"] = masks.flatten(2).sum(-1)
        columns = {"mean_dice": measured["dice"].double().nanmean(1)}
        for kind, values in measured.items():
            for name, column in zip(self.class_names, values.T, strict=True):
                columns[f"{kind}_{name}"] = column
        return columns
