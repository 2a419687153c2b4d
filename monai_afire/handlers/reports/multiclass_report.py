# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Report of a classifier into exclusive classes, and the choice between it and that of several findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from ignite.engine import Engine
from monai.utils import CommonKeys
from numpy.typing import ArrayLike

from monai_afire.handlers.reports.classification_report import ClassificationReport
from monai_afire.handlers.reports.metrics_report import MetricsReport, refuse_nan
from monai_afire.metrics.classification import check_class_names, check_logits
from monai_afire.metrics.multiclass import UNKNOWN, confusion_matrix, multiclass_metrics
from monai_afire.utils.formatting import format_number, table_lines
from monai_afire.utils.labels import check_label_kind, check_thresholds_of_kind, class_probabilities
from monai_afire.visualize.confusion import confusion_figure
from monai_afire.visualize.curves import class_roc_figure

__all__ = ["MulticlassReport", "classification_report"]

_SUMMARY = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced",
    "quadratic_weighted_kappa": "quadratic kappa",
    "expected_calibration_error": "calibration error",
    "mean_auc": "mean AUC",
}
_COLUMNS = {"auc": "AUC", "sensitivity": "sensitivity", "precision": "precision", "f1": "F1"}


class MulticlassReport(MetricsReport):
    """
    Write ``predictions.csv``, ``metrics.json``, ``confusion.png`` and ``roc.png``, and print the metrics.

    See :func:`monai_afire.metrics.multiclass_metrics` for what is reported. The table has the columns "image", "label"
    and "decision" (names of classes; the label is empty where it is not known) and "probability_<class>".

    The evaluator's output has the logits ``(B, K)`` as "pred" and the labels ``(B, K)``, one-hot, NaN where the class
    is not known, as "label"; the batches need "index", the number in ``items``.

    Args:
        items: the data set's items, for the names of the files.
        class_names: K names, in the order of the network's outputs; of grades, in their order.
        output_dir: where to write.
        num_bootstraps: samples of the interval of the mean AUC, 0 for none.
        thresholds: of the network, which has none (NaN) if it was trained for exclusive classes; compared when the
            run is complete. None leaves it out.

    Raises:
        ValueError: for names that repeat, outputs or labels that are not one per class, or an output that is NaN; the
            image is named.

    Example:
        >>> import tempfile
        >>> output = {"pred": torch.tensor([[2.0, 0.0], [0.0, 2.0]]), "label": torch.eye(2)}
        >>> folder, engine = tempfile.mkdtemp(), Engine(lambda engine, batch: output)
        >>> MulticlassReport([{"image": "a.png"}, {"image": "b.png"}], ["none", "mild"], folder).attach(engine)
        >>> _ = engine.run([{"index": torch.arange(2)}])
        2 images: accuracy 1.000, balanced 1.000, quadratic kappa 1.000, calibration error 0.119, mean AUC 1.000
              images decided    AUC sensitivity precision     F1
        none       1       1  1.000       1.000     1.000  1.000
        mild       1       1  1.000       1.000     1.000  1.000
    """

    def __init__(
        self,
        items: Sequence[Mapping[str, Any]],
        class_names: Sequence[str],
        output_dir: str,
        num_bootstraps: int = 0,
        thresholds: ArrayLike | None = None,
    ) -> None:
        super().__init__(output_dir, "predictions.csv")
        check_class_names(class_names)
        check_label_kind("multiclass", len(class_names))
        self.items = items
        self.class_names = list(class_names)
        self.num_bootstraps = num_bootstraps
        self.thresholds = thresholds

    def start(self, engine: Engine) -> None:
        """Forget the previous run."""
        check_thresholds_of_kind(self.thresholds, "multiclass")
        super().start(engine)

    def collect(self, engine: Engine) -> None:
        """One row per image of the batch."""
        output: Any = engine.state.output
        batch: Any = engine.state.batch
        logits, labels = output[CommonKeys.PRED], torch.as_tensor(output[CommonKeys.LABEL]).cpu()
        check_logits(logits.shape, self.class_names)
        if labels.shape != logits.shape:
            raise ValueError(
                f"labels have shape {tuple(labels.shape)} and the network's output {tuple(logits.shape)}: make one-hot "
                "labels by LabelVectord with label_kind 'multiclass'"
            )
        refuse_nan(logits, batch, self.items)
        probabilities = class_probabilities(logits, "multiclass")
        names = [*self.class_names, ""]  # the last one, -1, is not known
        classes = torch.where(labels.isnan().any(1), UNKNOWN, labels.nan_to_num().argmax(1))
        rows = zip(batch["index"].tolist(), classes.tolist(), probabilities.tolist(), strict=True)
        for index, label, values in rows:
            self.rows.append(
                {
                    "image": self.items[index]["image"],
                    "label": names[label],
                    "decision": names[int(np.argmax(values))],
                    **{f"probability_{name}": value for name, value in zip(self.class_names, values, strict=True)},
                }
            )

    def evaluate(self, table: pd.DataFrame) -> dict[str, Any]:
        """See :func:`monai_afire.metrics.multiclass_metrics`."""
        return multiclass_metrics(*self._columns(table), self.class_names, self.num_bootstraps)

    def draw(self, table: pd.DataFrame) -> None:
        """The confusion matrix, and the ROC curve of each class against the others."""
        labels, values = self._columns(table)
        known = labels != UNKNOWN
        matrix = confusion_matrix(labels[known], values[known].argmax(1), len(self.class_names))
        confusion_figure(matrix, self.class_names, self.output_dir / "confusion.png")
        class_roc_figure(
            {name: (labels[known] == number).astype(float) for number, name in enumerate(self.class_names)},
            {name: values[known, number] for number, name in enumerate(self.class_names)},
            self.output_dir / "roc.png",
        )

    def lines(self, metrics: dict[str, Any]) -> list[str]:
        """The means and a table with a line per class."""
        means = ", ".join(f"{title} {format_number(metrics[name])}" for name, title in _SUMMARY.items())
        if "mean_auc_interval" in metrics:
            means += ", 95 % interval of the AUC {} to {}".format(*map(format_number, metrics["mean_auc_interval"]))
        rows = {name: _cells(entry) for name, entry in metrics["per_class"].items()}
        return [f"{metrics['num_images']} images: {means}", *table_lines(rows)]

    def _columns(self, table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        numbers = {name: number for number, name in enumerate(self.class_names)} | {"": UNKNOWN}
        columns = [f"probability_{name}" for name in self.class_names]
        return table["label"].map(numbers).to_numpy(), table[columns].to_numpy(dtype=np.float64)


def classification_report(
    items: Sequence[Mapping[str, Any]],
    class_names: Sequence[str],
    output_dir: str,
    label_kind: str = "multilabel",
    thresholds: ArrayLike | None = None,
    uncertain: str = "ignore",
    num_bootstraps: int = 0,
) -> MetricsReport:
    """
    The report of a kind of labels.

    Args:
        items: the data set's items, for the names of the files.
        class_names: K names, in the order of labels and outputs.
        output_dir: where to write.
        label_kind: "multilabel" for :class:`ClassificationReport`, "multiclass" for :class:`MulticlassReport`.
        thresholds: ``(K,)`` of the network.
        uncertain: what the label -1 counts as.
        num_bootstraps: samples of the interval of the mean AUC, 0 for none.

    Returns:
        The handler.

    Raises:
        ValueError: for another kind, or a policy that it cannot have.

    Example:
        >>> type(classification_report([], ["none", "mild"], "results", "multiclass")).__name__
        'MulticlassReport'
    """
    check_label_kind(label_kind, len(class_names), uncertain)
    if label_kind == "multiclass":
        return MulticlassReport(items, class_names, output_dir, num_bootstraps, thresholds)
    return ClassificationReport(items, class_names, output_dir, thresholds, uncertain, num_bootstraps)


def _cells(entry: Mapping[str, float]) -> dict[str, object]:
    counts = {"images": entry["num_images"], "decided": entry["num_predicted"]}
    return {**counts, **{title: format_number(entry[key]) for key, title in _COLUMNS.items()}}
