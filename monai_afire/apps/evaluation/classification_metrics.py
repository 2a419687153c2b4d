# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of each class of a multi-label classification, and their means; labels as in ``metrics.multilabel``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray

from monai_afire.apps.evaluation.binary_metrics import average_precision, metrics_at_threshold
from monai_afire.apps.evaluation.patient_bootstrap import bootstrap_aucs, patient_weights
from monai_afire.metrics.binary_classification import NAN, mean_of_defined, roc_auc
from monai_afire.metrics.multilabel import (
    DEFAULT_THRESHOLD,
    as_array,
    check_class_names,
    checked_pairs,
    has_both_labels,
    pairs_by_class,
)

METRICS = ("auc", "average_precision", "accuracy", "f1", "sensitivity", "specificity")


def classification_metrics(
    labels: ArrayLike,
    probabilities: ArrayLike,
    class_names: Sequence[str],
    thresholds: ArrayLike | None = None,
    uncertain: str = "ignore",
    num_bootstraps: int = 0,
    patients: ArrayLike | None = None,
) -> dict[str, Any]:
    """
    Metrics of each class and their means.

    Args:
        labels: ``(M, K)`` of 1, 0, -1 and NaN; ``(M,)`` is one class (in all functions here).
        probabilities: of the same shape, in [0, 1].
        class_names: K names.
        thresholds: ``(K,)`` in [0, 1]: a class is called present when its probability is >= its threshold, which was
            found on other images than these; NaN leaves a class without decision. None: 0.5 for all.
        uncertain: what -1 counts as, see ``resolve_uncertain``.
        num_bootstraps: samples of the interval of the mean AUC, 0 for none.
        patients: ``(M,)``, the patient of each image; None for as many patients as images.

    Returns:
        A dictionary.

        * "num_images": M;
        * "mean_auc", "mean_average_precision", "mean_f1": means over the classes for which the metric is defined;
        * "mean_auc_interval": 95 % interval of the mean AUC over samples of patients, only with ``num_bootstraps``. A
          sample has all classes of its images, so that classes stay as dependent as they are;
        * "per_class": ``{name: {"auc", "average_precision", "accuracy", "f1", "sensitivity", "specificity",
          "threshold", "num_positive", "num_negative"}}``; the first six are NaN where all known labels are the same.

    Raises:
        ValueError: for shapes that do not fit, other labels, NaN probabilities or ones out of range.

    Example:
        >>> metrics = classification_metrics(
        ...     [[1, 0], [0, None], [1, 0]], [[0.8, 0.1], [0.3, 0.9], [0.4, 0.2]], ["Edema", "Fracture"]
        ... )
        >>> metrics["mean_auc"], metrics["per_class"]["Edema"]["sensitivity"], metrics["per_class"]["Fracture"]["auc"]
        (1.0, 0.5, nan)
    """
    truth, values = checked_pairs(labels, probabilities, uncertain)
    check_class_names(class_names, truth.shape[1])
    outside = np.argwhere((values < 0) | (values > 1))
    if outside.size:
        row, column = outside[0]
        first = f"{values[row, column]:g} of image {row}, class {class_names[column]!r}"
        raise ValueError(
            f"{len(outside)} probabilities are not in [0, 1], the first is {first}: apply a sigmoid"
        )
    limits = checked_thresholds(thresholds, truth.shape[1])
    if limits is None:
        limits = np.full(truth.shape[1], DEFAULT_THRESHOLD)
    per_class = {
        name: _class_metrics(*known, float(limit))
        for name, known, limit in zip(
            class_names, pairs_by_class(truth, values), limits, strict=True
        )
    }
    metrics: dict[str, Any] = {"num_images": len(truth)}
    for name in ("auc", "average_precision", "f1"):
        metrics[f"mean_{name}"] = mean_of_defined([entry[name] for entry in per_class.values()])
    if num_bootstraps:
        metrics["mean_auc_interval"] = mean_auc_interval(truth, values, num_bootstraps, patients)
    return {**metrics, "per_class": per_class}


def check_logits(shape: Sequence[int], class_names: Sequence[str]) -> None:
    """Refuse a network's output that is not one number per image and class."""
    if len(shape) != 2 or shape[1] != len(class_names):
        expected = f"(B, {len(class_names)}) logits for the classes {list(class_names)}"
        raise ValueError(
            f"the network gives {tuple(shape)} instead of {expected}: name its own classes"
        )


def checked_thresholds(
    thresholds: ArrayLike | None, num_classes: int
) -> NDArray[np.float64] | None:
    """Thresholds as a vector, one per class, each in [0, 1] or NaN; None stays None."""
    if thresholds is None:
        return None
    values = as_array(thresholds)
    if values.shape != (num_classes,) or ((values < 0) | (values > 1)).any():
        raise ValueError(
            f"thresholds {values.tolist()} are not {num_classes} numbers in [0, 1]: give one per class"
        )
    return values


def _class_metrics(truth: NDArray, values: NDArray, threshold: float) -> dict[str, float]:
    positive = int(truth.sum())
    facts = {
        "threshold": threshold,
        "num_positive": positive,
        "num_negative": truth.size - positive,
    }
    if not has_both_labels(truth):
        return {**dict.fromkeys(METRICS, NAN), **facts}
    ranked = {"auc": roc_auc(truth, values), "average_precision": average_precision(truth, values)}
    return {**ranked, **metrics_at_threshold(truth, values, threshold), **facts}


def mean_auc_interval(
    truth: NDArray, values: NDArray, num_bootstraps: int, patients: ArrayLike | None = None
) -> tuple[float, float]:
    """95 % interval over samples of patients, without which each image is one."""
    if not len(truth):
        return NAN, NAN
    weights = patient_weights(
        np.arange(len(truth)) if patients is None else patients, num_bootstraps
    )
    aucs = pd.Series(bootstrap_aucs(truth, values, weights))
    # without the samples that have no AUC
    return float(aucs.quantile(0.025)), float(aucs.quantile(0.975))


def check_thresholds_of_kind(thresholds: ArrayLike | None, label_kind: str) -> None:
    """Refuse a network that was trained for the other kind of labels; its thresholds show which."""
    if not isinstance(thresholds, torch.Tensor):
        return
    trained = "multiclass" if bool(thresholds.isnan().all()) else "multilabel"
    if trained != label_kind:
        found = f"label_kind is {label_kind!r}, but the network was trained for {trained!r}"
        raise ValueError(f"{found}: give --label_kind {trained}, or other weights")
