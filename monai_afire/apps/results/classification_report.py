# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Reports of classifiers on labeled images: probabilities, metrics of each class, ROC curves, confusion matrix."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

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
from monai_afire.apps.results.patient_groups import (
    few_patients_lines,
    item_groups,
    reported_patients,
    subgroup_lines,
)
from monai_afire.apps.results.pictures.plots import class_roc_figure, confusion_figure
from monai_afire.apps.results.prediction_writer import check_logits, check_thresholds_of_kind
from monai_afire.apps.results.report_text import format_number, table_lines
from monai_afire.metrics.multilabel import check_class_names, known_of_class
from monai_afire.utils.text import counted
from monai_afire.utils.uncertain_labels import (
    check_label_kind,
    class_probabilities,
    resolve_uncertain,
)

_TITLES = {"auc": "AUC", "average_precision": "AP", "f1": "F1"}  # others have their names


@dataclass(eq=False, repr=False)
class _ProbabilityReport(MetricsReport):
    """Base of the reports of classifiers: a table with the probabilities of each image's classes."""

    table_name = "predictions.csv"
    label_kind: ClassVar[str]
    labels_wanted: ClassVar[str]
    summary: ClassVar[Mapping[str, str]]
    columns: ClassVar[Sequence[str]]

    items: Sequence[Mapping[str, Any]]
    class_names: Sequence[str]
    output_dir: str
    thresholds: ArrayLike | None = None
    uncertain: str = "ignore"
    num_bootstraps: int = 0

    def __post_init__(self) -> None:
        check_class_names(self.class_names)
        check_label_kind(self.label_kind, len(self.class_names), self.uncertain)
        checked_thresholds(self.thresholds, len(self.class_names))

    def start(self, engine: Engine) -> None:
        """Forget the previous run."""
        check_thresholds_of_kind(self.thresholds, self.label_kind)
        super().start(engine)
        self.patients = reported_patients(self.items)

    def collect(self, engine: Engine) -> None:
        """One row per image of the batch."""
        output: Any = engine.state.output
        batch: Any = engine.state.batch
        logits, labels = output[CommonKeys.PRED], torch.as_tensor(output[CommonKeys.LABEL])
        check_logits(logits.shape, self.class_names)
        if labels.shape != logits.shape:
            shapes = f"labels have shape {tuple(labels.shape)} and the network's output {tuple(logits.shape)}"
            raise ValueError(f"{shapes}: {self.labels_wanted.format(len(self.class_names))}")
        self.refuse_nan(logits, batch)
        probabilities = class_probabilities(logits, self.label_kind).tolist()
        for index, known, values in zip(
            batch["index"].tolist(), labels.tolist(), probabilities, strict=True
        ):
            item = self.items[index]
            row = {"image": item["image"], "patient_id": self.patients[index], **item_groups(item)}
            row |= self.label_cells(known, values)
            self.rows.append(
                row | {f"probability_{n}": v for n, v in zip(self.class_names, values, strict=True)}
            )

    @abstractmethod
    def label_cells(
        self, labels: Sequence[float], probabilities: Sequence[float]
    ) -> dict[str, Any]:
        """Cells of an image's row that come from its labels."""

    def patients_and_groups(
        self, table: pd.DataFrame, labels: NDArray, thresholds: Sequence[float]
    ) -> dict[str, Any]:
        """How many patients there are, and the metrics of groups of them, see ``subgroup_metrics``."""
        values = self.values(table, "probability")
        subgroups = subgroup_metrics(
            table, labels, values, thresholds, self.class_names, self.num_bootstraps
        )
        return {"num_patients": table["patient_id"].nunique(), "subgroups": subgroups}

    def means(self, metrics: dict[str, Any]) -> str:
        """The metrics of the summary, with the interval of the AUC if there is one."""
        text = ", ".join(
            f"{title} {format_number(metrics[name])}" for name, title in self.summary.items()
        )
        if "mean_auc_interval" in metrics:
            text += ", 95 % interval of the AUC {} to {}".format(
                *map(format_number, metrics["mean_auc_interval"])
            )
        return text

    def class_lines(self, metrics: dict[str, Any], counts: Mapping[str, str]) -> list[str]:
        """A table with a line per class: its counts, and its metrics."""
        rows: dict[str, dict[str, object]] = {}
        for name, entry in metrics["per_class"].items():
            texts = {_TITLES.get(key, key): format_number(entry[key]) for key in self.columns}
            rows[name] = {**{title: entry[key] for key, title in counts.items()}, **texts}
        return table_lines(rows)

    def patient_lines(self, metrics: dict[str, Any]) -> list[str]:
        """Where there are intervals, what the number of patients means for them; then a line per group of patients."""
        few = few_patients_lines(metrics["num_patients"]) if self.num_bootstraps else []
        return [*few, *subgroup_lines(metrics["subgroups"])]

    def values(self, table: pd.DataFrame, kind: str) -> NDArray[np.float64]:
        """Columns of one kind, ``(images, K)``."""
        return table[[f"{kind}_{name}" for name in self.class_names]].to_numpy(
            dtype=np.float64, copy=True
        )


class ClassificationReport(_ProbabilityReport):
    """
    Write ``predictions.csv``, ``metrics.json`` and ``roc.png``, and print the metrics of each class.

    See :func:`monai_afire.apps.evaluation.classification_metrics` and, for groups of patients,
    ``subgroup_metrics`` for what is reported. The table has the columns "image", "patient_id",
    "sex", "age", "view", "manufacturer" (from the items or DICOM headers, empty where unknown), "label_<class>" (1, 0,
    -1 uncertain, empty where missing) and "probability_<class>".

    The evaluator's output has the logits ``(B, K)`` as "pred" and the labels ``(B, K)``, 1, 0, -1 or NaN, as "label";
    the batches need "index", the number in ``items``.

    Args:
        items: the data set's items, for the names of the files.
        class_names: K names, in the order of labels and outputs.
        output_dir: where to write.
        thresholds: ``(K,)`` probabilities from which a class is called present, found on other images; they are read
            when the run is complete. None: 0.5 for all.
        uncertain: what the label -1 counts as, see ``resolve_uncertain``.
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
        not known of any image: sex, age, view, manufacturer
    """

    label_kind = "multilabel"
    labels_wanted = "each item needs a list of {} labels"
    summary: ClassVar = {f"mean_{name}": title for name, title in _TITLES.items()}
    columns = (
        "auc",
        "average_precision",
        "f1",
        "sensitivity",
        "specificity",
        "accuracy",
        "threshold",
    )

    def label_cells(
        self, labels: Sequence[float], probabilities: Sequence[float]
    ) -> dict[str, Any]:
        """The label of each class."""
        return {
            f"label_{name}": label for name, label in zip(self.class_names, labels, strict=True)
        }

    def evaluate(self, table: pd.DataFrame) -> dict[str, Any]:
        """See :func:`monai_afire.apps.evaluation.classification_metrics`; "subgroups" are added."""
        labels, probabilities = self.values(table, "label"), self.values(table, "probability")
        settings = self.thresholds, self.uncertain, self.num_bootstraps
        metrics = classification_metrics(
            labels, probabilities, self.class_names, *settings, table["patient_id"]
        )
        limits = [entry["threshold"] for entry in metrics["per_class"].values()]
        return {**metrics, **self.patients_and_groups(table, self._truth(table), limits)}

    def draw(self, table: pd.DataFrame, metrics: dict[str, Any]) -> None:
        """The ROC curve of each class."""
        truth = self._truth(table)
        labels, values = {}, {}
        for name, column, probabilities in zip(
            self.class_names, truth.T, self.values(table, "probability").T, strict=True
        ):
            labels[name], values[name] = known_of_class(column, probabilities)
        limits = checked_thresholds(self.thresholds, len(self.class_names))
        thresholds = None if limits is None else dict(zip(self.class_names, limits, strict=True))
        class_roc_figure(labels, values, self.folder / "roc.png", thresholds)

    def lines(self, metrics: dict[str, Any]) -> list[str]:
        """The means and a table with a line per class."""
        per_class = metrics["per_class"]
        defined = sum(not math.isnan(entry["auc"]) for entry in per_class.values())
        summary = f"{counted(metrics['num_images'], 'image')}; means of {defined} of {len(per_class)} classes: "
        counts = {"num_positive": "present", "num_negative": "absent"}
        lines = [summary + self.means(metrics), *self.class_lines(metrics, counts)]
        return [*lines, *self.patient_lines(metrics)]

    def _truth(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """Labels of 1 and 0, NaN where they do not count."""
        return resolve_uncertain(
            torch.from_numpy(self.values(table, "label")), self.uncertain
        ).numpy()


class MulticlassReport(_ProbabilityReport):
    """
    Write ``predictions.csv``, ``metrics.json``, ``confusion.png`` and ``roc.png``, and print the metrics.

    See :func:`monai_afire.apps.evaluation.multiclass_metrics` for what is reported, beside groups of patients as in
    :class:`ClassificationReport`. The table has the columns "image", those of the groups, "label" and "decision" (names
    of classes; the label is empty where it is not known) and "probability_<class>".

    The evaluator's output has the logits ``(B, K)`` as "pred" and the labels ``(B, K)``, one-hot, NaN where the class
    is not known, as "label"; the batches need "index", the number in ``items``.

    Args:
        items: the data set's items, for the names of the files.
        class_names: K names, in the order of the network's outputs; of grades, in their order.
        output_dir: where to write.
        thresholds: of the network, NaN if it was trained for exclusive classes; checked when the run starts. None
            for no check.
        uncertain: "ignore"; an unknown class is neither present nor absent.
        num_bootstraps: samples of the interval of the mean AUC, 0 for none.

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
        not known of any image: sex, age, view, manufacturer
    """

    label_kind = "multiclass"
    labels_wanted = "make one-hot labels by LabelVectord with label_kind 'multiclass'"
    summary: ClassVar = {
        "accuracy": "accuracy",
        "balanced_accuracy": "balanced",
        "quadratic_weighted_kappa": "quadratic kappa",
        "expected_calibration_error": "calibration error",
        "mean_auc": "mean AUC",
    }
    columns = ("auc", "sensitivity", "precision", "f1")

    def label_cells(
        self, labels: Sequence[float], probabilities: Sequence[float]
    ) -> dict[str, Any]:
        """The names of the labeled class, empty where it is not known, and of the most probable one."""
        label = "" if np.isnan(labels).any() else self.class_names[int(np.argmax(labels))]
        return {"label": label, "decision": self.class_names[int(np.argmax(probabilities))]}

    def evaluate(self, table: pd.DataFrame) -> dict[str, Any]:
        """See :func:`monai_afire.apps.evaluation.multiclass_metrics`; "subgroups" have the AUC alone."""
        labels, values = self._columns(table)
        truth = np.where(
            labels[:, None] == UNKNOWN, np.nan, labels[:, None] == np.arange(len(self.class_names))
        )
        metrics = multiclass_metrics(
            labels, values, self.class_names, self.num_bootstraps, table["patient_id"]
        )
        limits = [np.nan] * len(self.class_names)
        return {**metrics, **self.patients_and_groups(table, truth, limits)}

    def draw(self, table: pd.DataFrame, metrics: dict[str, Any]) -> None:
        """The confusion matrix, and the ROC curve of each class against the others."""
        labels, values = self._columns(table)
        known = labels != UNKNOWN
        path = self.folder / "confusion.png"
        confusion_figure(metrics["confusion_matrix"], self.class_names, path)
        class_roc_figure(
            {
                name: (labels[known] == number).astype(float)
                for number, name in enumerate(self.class_names)
            },
            {name: values[known, number] for number, name in enumerate(self.class_names)},
            self.folder / "roc.png",
        )

    def lines(self, metrics: dict[str, Any]) -> list[str]:
        """The means and a table with a line per class."""
        counts = {"num_images": "images", "num_predicted": "decided"}
        first = f"{counted(metrics['num_images'], 'image')}: {self.means(metrics)}"
        return [first, *self.class_lines(metrics, counts), *self.patient_lines(metrics)]

    def _columns(self, table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        numbers = {name: number for number, name in enumerate(self.class_names)} | {"": UNKNOWN}
        return table["label"].map(numbers).to_numpy(), self.values(table, "probability")


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
    check_label_kind(label_kind)
    report = MulticlassReport if label_kind == "multiclass" else ClassificationReport
    return report(items, class_names, output_dir, thresholds, uncertain, num_bootstraps)
