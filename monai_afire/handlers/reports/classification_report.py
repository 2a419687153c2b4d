# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Report of a classifier on labelled images: probabilities, metrics of each class, ROC curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from ignite.engine import Engine
from monai.utils import CommonKeys
from numpy.typing import ArrayLike, NDArray

from monai_afire.handlers.reports.metrics_report import MetricsReport, refuse_nan
from monai_afire.metrics.classification import (
    check_class_names,
    check_logits,
    checked_thresholds,
    classification_metrics,
    known_of_class,
)
from monai_afire.utils.formatting import format_number, table_lines
from monai_afire.utils.labels import (
    check_thresholds_of_kind,
    check_uncertain_policy,
    class_probabilities,
    resolve_uncertain,
)
from monai_afire.visualize.curves import class_roc_figure

__all__ = ["ClassificationReport"]

_COLUMNS = {
    "auc": "AUC",
    "average_precision": "AP",
    "f1": "F1",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "accuracy": "accuracy",
    "threshold": "threshold",
}


class ClassificationReport(MetricsReport):
    """
    Write ``predictions.csv``, ``metrics.json`` and ``roc.png``, and print the metrics of each class.

    See :func:`monai_afire.metrics.classification_metrics` for what is reported. The table has the columns "image",
    "label_<class>" (1, 0, -1 uncertain, empty where missing) and "probability_<class>".

    The evaluator's output has the logits ``(B, K)`` as "pred" and the labels ``(B, K)``, 1, 0, -1 or NaN, as "label";
    the batches need "index", the number in ``items``.

    Args:
        items: the data set's items, for the names of the files.
        class_names: K names, in the order of labels and outputs.
        output_dir: where to write.
        thresholds: ``(K,)`` probabilities from which a class is called present, found on other images; they are read
            when the run is complete. None: 0.5 for all.
        uncertain: what the label -1 counts as, see :func:`monai_afire.utils.resolve_uncertain`.
        num_bootstraps: samples of the interval of the mean AUC, 0 for none.

    Raises:
        ValueError: for names that repeat, an unknown policy, thresholds, outputs or labels that are not one per class,
            or an output that is NaN; the image is named.

    Example:
        >>> import tempfile
        >>> output = {"pred": torch.tensor([[2.0], [-2.0], [0.0]]), "label": torch.tensor([[1.0], [0.0], [torch.nan]])}
        >>> folder, engine = tempfile.mkdtemp(), Engine(lambda engine, batch: output)
        >>> items = [{"image": name} for name in ("a.png", "b.png", "c.png")]
        >>> ClassificationReport(items, ["Edema"], folder).attach(engine)
        >>> _ = engine.run([{"index": torch.arange(3)}])
        3 images; means of 1 of 1 classes: AUC 1.000, AP 1.000, F1 1.000
               present  absent    AUC     AP     F1 sensitivity specificity accuracy threshold
        Edema        1       1  1.000  1.000  1.000       1.000       1.000    1.000     0.500
    """

    def __init__(
        self,
        items: Sequence[Mapping[str, Any]],
        class_names: Sequence[str],
        output_dir: str,
        thresholds: ArrayLike | None = None,
        uncertain: str = "ignore",
        num_bootstraps: int = 0,
    ) -> None:
        super().__init__(output_dir, "predictions.csv")
        check_class_names(class_names)
        check_uncertain_policy(uncertain)
        checked_thresholds(thresholds, len(class_names))
        self.items = items
        self.class_names = list(class_names)
        self.thresholds = thresholds
        self.uncertain = uncertain
        self.num_bootstraps = num_bootstraps

    def start(self, engine: Engine) -> None:
        """Forget the previous run."""
        check_thresholds_of_kind(self.thresholds, "multilabel")
        super().start(engine)

    def collect(self, engine: Engine) -> None:
        """One row per image of the batch."""
        output: Any = engine.state.output
        batch: Any = engine.state.batch
        logits, labels = output[CommonKeys.PRED], torch.as_tensor(output[CommonKeys.LABEL])
        check_logits(logits.shape, self.class_names)
        if labels.shape != logits.shape:
            raise ValueError(
                f"labels have shape {tuple(labels.shape)} and the network's output {tuple(logits.shape)}: each item "
                f"needs a list of {len(self.class_names)} labels"
            )
        refuse_nan(logits, batch, self.items)
        probabilities = class_probabilities(logits).tolist()
        for index, known, values in zip(batch["index"].tolist(), labels.tolist(), probabilities, strict=True):
            self.rows.append(
                {
                    "image": self.items[index]["image"],
                    **{f"label_{name}": label for name, label in zip(self.class_names, known, strict=True)},
                    **{f"probability_{name}": value for name, value in zip(self.class_names, values, strict=True)},
                }
            )

    def evaluate(self, table: pd.DataFrame) -> dict[str, Any]:
        """See :func:`monai_afire.metrics.classification_metrics`."""
        labels, probabilities = self._columns(table, "label"), self._columns(table, "probability")
        return classification_metrics(
            labels, probabilities, self.class_names, self.thresholds, self.uncertain, self.num_bootstraps
        )

    def draw(self, table: pd.DataFrame) -> None:
        """The ROC curve of each class."""
        truth = resolve_uncertain(torch.from_numpy(self._columns(table, "label")), self.uncertain).numpy()
        columns = zip(self.class_names, truth.T, self._columns(table, "probability").T, strict=True)
        known = {name: known_of_class(labels, values) for name, labels, values in columns}
        limits = checked_thresholds(self.thresholds, len(self.class_names))
        class_roc_figure(
            {name: labels for name, (labels, _) in known.items()},
            {name: values for name, (_, values) in known.items()},
            self.output_dir / "roc.png",
            None if limits is None else dict(zip(self.class_names, limits, strict=True)),
        )

    def lines(self, metrics: dict[str, Any]) -> list[str]:
        """The means and a table with a line per class."""
        per_class = metrics["per_class"]
        defined = sum(not math.isnan(entry["auc"]) for entry in per_class.values())
        means = ", ".join(f"{_COLUMNS[name]} {format_number(metrics[f'mean_{name}'])}" for name in list(_COLUMNS)[:3])
        if "mean_auc_interval" in metrics:
            means += ", 95 % interval of the AUC {} to {}".format(*map(format_number, metrics["mean_auc_interval"]))
        summary = f"{metrics['num_images']} images; means of {defined} of {len(per_class)} classes: {means}"
        return [summary, *table_lines({name: _cells(entry) for name, entry in per_class.items()})]

    def _columns(self, table: pd.DataFrame, kind: str) -> NDArray[np.float64]:
        return table[[f"{kind}_{name}" for name in self.class_names]].to_numpy(dtype=np.float64, copy=True)


def _cells(entry: Mapping[str, float]) -> dict[str, object]:
    counts = {"present": entry["num_positive"], "absent": entry["num_negative"]}
    return {**counts, **{title: format_number(entry[key]) for key, title in _COLUMNS.items()}}
