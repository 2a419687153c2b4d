# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of multi-label classification with uncertain and missing labels.

Labels are 1 (present), 0 (absent), -1 (uncertain) or NaN (missing, also None). The metrics of a class use the images
whose label is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from ignite.metrics import EpochMetric
from monai.utils import CommonKeys
from numpy.typing import ArrayLike, NDArray

from monai_afire.metrics.binary_classification import (
    NAN,
    average_precision,
    best_f1_threshold,
    mean_of_defined,
    metrics_at_threshold,
    roc_auc,
)
from monai_afire.metrics.patient_bootstrap import bootstrap_aucs, patient_weights
from monai_afire.utils.uncertain_labels import (
    check_label_kind,
    class_probabilities,
    resolve_uncertain,
)

DEFAULT_THRESHOLD = 0.5
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
    truth, values = _checked(labels, probabilities, uncertain)
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
        for name, known, limit in zip(class_names, _by_class(truth, values), limits, strict=True)
    }
    metrics: dict[str, Any] = {"num_images": len(truth)}
    for name in ("auc", "average_precision", "f1"):
        metrics[f"mean_{name}"] = mean_of_defined([entry[name] for entry in per_class.values()])
    if num_bootstraps:
        metrics["mean_auc_interval"] = mean_auc_interval(truth, values, num_bootstraps, patients)
    return {**metrics, "per_class": per_class}


def mean_auc(labels: ArrayLike, probabilities: ArrayLike, uncertain: str = "ignore") -> float:
    """
    Mean area under the ROC curve over the classes that have both labels.

    Args:
        labels: ``(M, K)`` of 1, 0, -1 and NaN; ``(M,)`` is one class.
        probabilities: of the same shape; logits give the same.
        uncertain: what -1 counts as, see ``resolve_uncertain``.

    Returns:
        In [0, 1]; NaN when no class has both.

    Raises:
        ValueError: for shapes that do not fit, other labels or NaN probabilities.

    Example:
        >>> mean_auc([[0], [0], [1], [1]], [[0.1], [0.4], [0.4], [0.8]])
        0.875
    """
    return _mean_auc(*_checked(labels, probabilities, uncertain))


class MeanAUC(EpochMetric):
    """
    The mean AUC (:func:`mean_auc`) of all images of a validation, as a metric of MONAI's evaluators.

    Args:
        uncertain: what the label -1 counts as, see ``resolve_uncertain``.
        label_kind: "multilabel", or "multiclass" with one-hot labels: then the softmax probability of each class
            separates it from the others.

    Example:
        >>> metric = MeanAUC()
        >>> metric.update((torch.tensor([[0.1], [0.4], [0.4], [0.8]]), torch.tensor([[0], [0], [1], [1]])))
        >>> metric.compute()
        0.875
    """

    def __init__(self, uncertain: str = "ignore", label_kind: str = "multilabel") -> None:
        check_label_kind(label_kind, uncertain=uncertain)

        def compute(logits: torch.Tensor, labels: torch.Tensor) -> float:
            # logits of several findings rank images as their sigmoids do; those of exclusive classes need each other
            scores = (
                class_probabilities(logits, label_kind) if label_kind == "multiclass" else logits
            )
            return mean_auc(labels, scores, uncertain)

        super().__init__(
            compute,  # ignite hands the predictions over first
            output_transform=lambda output: (
                output[CommonKeys.PRED].float(),
                output[CommonKeys.LABEL].float(),
            ),
            check_compute_fn=False,
        )


def best_thresholds(
    labels: ArrayLike, probabilities: ArrayLike, uncertain: str = "ignore"
) -> NDArray[np.float64]:
    """
    Threshold of the best F1 for each class.

    Args:
        labels: ``(M, K)`` of 1, 0, -1 and NaN, of the validation set.
        probabilities: ``(M, K)``.
        uncertain: what -1 counts as, see ``resolve_uncertain``.

    Returns:
        ``(K,)``, see :func:`best_f1_threshold`; 0.5 for a class that has not both labels.

    Raises:
        ValueError: for shapes that do not fit, other labels or NaN probabilities.

    Example:
        >>> best_thresholds([[0, 0], [0, 0], [1, 0], [1, 0]], [[0.1, 0.1], [0.4, 0.1], [0.35, 0.1], [0.8, 0.1]])
        array([0.35, 0.5 ])
    """
    pairs = _by_class(*_checked(labels, probabilities, uncertain))
    best = np.full(len(pairs), DEFAULT_THRESHOLD)
    for number, (known, scores) in enumerate(pairs):
        threshold = best_f1_threshold(known, scores) if _has_both(known) else NAN
        if not np.isnan(threshold):
            best[number] = threshold
    return best


def check_class_names(class_names: Sequence[str], num_classes: int | None = None) -> None:
    """Refuse names that occur twice, or as many as there are not classes."""
    repeated = sorted({str(name) for name in class_names if list(class_names).count(name) > 1})
    if repeated:
        raise ValueError(f"the class names {repeated} occur more than once: name each class once")
    if num_classes is not None and len(class_names) != num_classes:
        names = f"{len(class_names)} class names {list(class_names)} for {num_classes} classes"
        raise ValueError(
            f"{names}: give one per label of the datalist and output of the network, in their order"
        )


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
    values = _as_array(thresholds)
    if values.shape != (num_classes,) or ((values < 0) | (values > 1)).any():
        raise ValueError(
            f"thresholds {values.tolist()} are not {num_classes} numbers in [0, 1]: give one per class"
        )
    return values


def known_of_class(truth: NDArray, values: NDArray) -> tuple[NDArray, NDArray]:
    """Labels and scores of the images whose label, 0, 1 or NaN, is known."""
    known = ~np.isnan(truth)
    return truth[known], values[known]


def _as_array(values: ArrayLike) -> NDArray[np.float64]:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)


def _checked(labels: ArrayLike, scores: ArrayLike, uncertain: str) -> tuple[NDArray, NDArray]:
    """Labels as 0, 1 and NaN, and scores without NaN, both (M, K)."""
    truth, values = _as_array(labels), _as_array(scores)
    if truth.ndim == values.ndim == 1:  # ignite's metrics squeeze a single class
        truth, values = truth[:, None], values[:, None]
    if truth.ndim != 2 or truth.shape != values.shape or len(truth) == 0:
        shapes = f"{truth.shape} and probabilities {values.shape}"
        raise ValueError(f"labels have shape {shapes} instead of both (M, K) with M > 0")
    bad = np.argwhere(np.isnan(values))
    if bad.size:
        images = sorted({int(row) for row, _ in bad})
        raise ValueError(
            f"probabilities of {len(images)} images are NaN (image {images[0]} is the first)"
        )
    return resolve_uncertain(torch.from_numpy(truth), uncertain).numpy(), values


def _by_class(truth: NDArray, values: NDArray) -> list[tuple[NDArray, NDArray]]:
    return [known_of_class(*columns) for columns in zip(truth.T, values.T, strict=True)]


def _has_both(truth: NDArray) -> bool:
    return np.unique(truth).size == 2


def _mean_auc(truth: NDArray, values: NDArray) -> float:
    return mean_of_defined(
        [roc_auc(*pair) for pair in _by_class(truth, values) if _has_both(pair[0])]
    )


def _class_metrics(truth: NDArray, values: NDArray, threshold: float) -> dict[str, float]:
    positive = int(truth.sum())
    facts = {
        "threshold": threshold,
        "num_positive": positive,
        "num_negative": truth.size - positive,
    }
    if not _has_both(truth):
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
