# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Report of a classifier on labeled images: probabilities, metrics of each class, ROC curves, confusion matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from ignite.engine import Engine
from monai.utils import CommonKeys
from numpy.typing import ArrayLike, NDArray

from monai_afire.apps.evaluation.metrics import (
    UNKNOWN,
    checked_thresholds,
    classification_metrics,
    multiclass_metrics,
    subgroup_metrics,
)
from monai_afire.apps.results.metrics_report import MetricsReport
from monai_afire.apps.results.patient_groups import item_groups, reported_patients
from monai_afire.apps.results.pictures.plots import class_roc_figure, confusion_figure
from monai_afire.metrics.multilabel import check_class_names
from monai_afire.utils.uncertain_labels import (
    check_label_kind,
    class_probabilities,
    resolve_uncertain,
)


@dataclass(eq=False, repr=False)
class ClassificationReport(MetricsReport):
    """
    Write ``predictions.csv``, ``metrics.json`` and ``roc.png``, and print the metrics of each class.

    The table has the columns "image", "patient_id", "sex", "age", "view", "manufacturer" (from the items or DICOM
    headers, empty where unknown), "probability_<class>", and the labels: of findings "label_<class>" (1, 0, -1
    uncertain, empty where missing), of exclusive classes "label" and "decision" (names, the label empty where it is not
    known). The metrics are those of :func:`monai_afire.apps.evaluation.classification_metrics`, or of
    :func:`monai_afire.apps.evaluation.multiclass_metrics` with ``confusion.png``, and "subgroups" of patients.

    The evaluator's output has the logits ``(B, K)`` as "pred" and as "label" the labels ``(B, K)``, 1, 0, -1 or NaN,
    of exclusive classes one-hot; the batches need "index", the number in ``items``.

    Args:
        items: the data set's items, for the names of the files.
        class_names: K names, in the order of labels and outputs; of grades, in their order.
        output_dir: where to write.
        label_kind: "multilabel" for findings, "multiclass" for exclusive classes.
        thresholds: ``(K,)`` probabilities from which a finding is called present, found on other images; they are read
            when the run is complete. None: 0.5 for all. A network for exclusive classes has NaN.
        uncertain: what the label -1 counts as, see ``resolve_uncertain``.
        num_bootstraps: samples of the interval of the mean AUC, 0 for none.

    Raises:
        ValueError: for names that repeat, an unknown kind or policy, thresholds, outputs or labels that are not one per
            class, or an output that is NaN; the image is named.

    Example:
        >>> import tempfile
        >>> output = {"pred": torch.tensor([[2.0], [-2.0], [0.0]]), "label": torch.tensor([[1.0], [0.0], [torch.nan]])}
        >>> folder, engine = tempfile.mkdtemp(), Engine(lambda engine, batch: output)
        >>> items = [{"image": name} for name in ("a.png", "b.png", "c.png")]
        >>> ClassificationReport(items, ["Edema"], folder).attach(engine)
        >>> _ = engine.run([{"index": torch.arange(3)}])
        num_images 3, mean_auc 1.000, mean_average_precision 1.000, mean_f1 1.000, num_patients 3
        ...
    """

    table_name = "predictions.csv"

    items: Sequence[Mapping[str, Any]]
    class_names: Sequence[str]
    output_dir: str
    label_kind: str = "multilabel"
    thresholds: ArrayLike | None = None
    uncertain: str = "ignore"
    num_bootstraps: int = 0

    def __post_init__(self) -> None:
        check_class_names(self.class_names)
        check_label_kind(self.label_kind, len(self.class_names), self.uncertain)
        checked_thresholds(self.thresholds, len(self.class_names))
        self.exclusive = self.label_kind == "multiclass"

    def start(self, engine: Engine) -> None:
        """Forget the previous run."""
        super().start(engine)
        self.patients = reported_patients(self.items)

    def collect(self, engine: Engine) -> None:
        """One row per image of the batch."""
        output: Any = engine.state.output
        batch: Any = engine.state.batch
        logits, labels = output[CommonKeys.PRED], torch.as_tensor(output[CommonKeys.LABEL])
        check_class_names(self.class_names, logits.shape[1])
        if labels.shape != logits.shape:
            raise ValueError(
                f"labels have shape {tuple(labels.shape)} and the network's output {tuple(logits.shape)}: each item "
                f"needs a list of {len(self.class_names)} labels, of which LabelVectord makes the vector"
            )
        self.refuse_nan(logits, batch)
        probabilities = class_probabilities(logits, self.label_kind).tolist()
        for index, known, values in zip(
            batch["index"].tolist(), labels.tolist(), probabilities, strict=True
        ):
            item = self.items[index]
            row = {"image": item["image"], "patient_id": self.patients[index], **item_groups(item)}
            row |= self._label_cells(known, values)
            row |= {f"probability_{n}": v for n, v in zip(self.class_names, values, strict=True)}
            self.rows.append(row)

    def _label_cells(
        self, labels: Sequence[float], probabilities: Sequence[float]
    ) -> dict[str, Any]:
        """The label of each finding; or the names of the class, "" where it is not known, and of the most probable."""
        if not self.exclusive:
            return {f"label_{n}": label for n, label in zip(self.class_names, labels, strict=True)}
        label = "" if np.isnan(labels).any() else self.class_names[int(np.argmax(labels))]
        return {"label": label, "decision": self.class_names[int(np.argmax(probabilities))]}

    def evaluate(self, table: pd.DataFrame) -> dict[str, Any]:
        """Metrics of the classes, and "subgroups"; of exclusive classes these have the AUC alone."""
        values, patients = self._values(table, "probability"), table["patient_id"]
        if self.exclusive:
            numbers = table["label"].map({n: k for k, n in enumerate(self.class_names)})
            labels = numbers.fillna(UNKNOWN).to_numpy(dtype=int)
            metrics = multiclass_metrics(
                labels, values, self.class_names, self.num_bootstraps, patients
            )
            limits = [math.nan] * len(self.class_names)
        else:
            settings = self.thresholds, self.uncertain, self.num_bootstraps, patients
            labels = self._values(table, "label")
            metrics = classification_metrics(labels, values, self.class_names, *settings)
            limits = [entry["threshold"] for entry in metrics["per_class"].values()]
        subgroups = subgroup_metrics(
            table, self._truth(table), values, limits, self.class_names, self.num_bootstraps
        )
        return {**metrics, "num_patients": patients.nunique(), "subgroups": subgroups}

    def draw(self, table: pd.DataFrame, metrics: dict[str, Any]) -> None:
        """The ROC curve of each class, and the confusion matrix of exclusive classes."""
        labels, scores = self._truth(table), self._values(table, "probability")
        limits = checked_thresholds(self.thresholds, len(self.class_names))
        class_roc_figure(labels, scores, self.class_names, limits, self.folder / "roc.png")
        if self.exclusive:
            path = self.folder / "confusion.png"
            confusion_figure(metrics["confusion_matrix"], self.class_names, path)

    def _truth(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """Labels ``(images, K)`` of 1 and 0, NaN where they do not count."""
        if self.exclusive:
            names = table["label"].to_numpy()[:, None]
            return np.where(names == "", np.nan, names == np.array(self.class_names, dtype=object))
        labels = torch.from_numpy(self._values(table, "label"))
        return resolve_uncertain(labels, self.uncertain).numpy()

    def _values(self, table: pd.DataFrame, kind: str) -> NDArray[np.float64]:
        """Columns of one kind, ``(images, K)``."""
        columns = [f"{kind}_{name}" for name in self.class_names]
        return table[columns].to_numpy(dtype=np.float64, copy=True)
