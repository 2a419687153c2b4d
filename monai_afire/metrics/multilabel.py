# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of multi-label classification with uncertain and missing labels.

Labels are 1 (present), 0 (absent), -1 (uncertain) or NaN (missing, also None). The metrics of a class use the images
whose label is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from ignite.metrics import EpochMetric
from monai.utils import CommonKeys
from numpy.typing import ArrayLike, NDArray

from monai_afire.metrics.binary_classification import (
    best_f1_threshold,
    mean_of_defined,
    roc_auc,
)
from monai_afire.utils.uncertain_labels import (
    check_label_kind,
    class_probabilities,
    resolve_uncertain,
)

DEFAULT_THRESHOLD = 0.5


def mean_auc(labels: ArrayLike, probabilities: ArrayLike, uncertain: str = "ignore") -> float:
    """
    Mean area under the ROC curve over the classes that have both labels.

    Args:
        labels: ``(M, K)`` of 1, 0, -1 and NaN; ``(M,)`` is one class.
        probabilities: of the same shape; logits give the same.
        uncertain: what -1 counts as, see ``resolve_uncertain``.

    Returns:
        In [0, 1]; NaN when no class has both.

    Example:
        >>> mean_auc([[0], [0], [1], [1]], [[0.1], [0.4], [0.4], [0.8]])
        0.875
    """
    pairs = pairs_by_class(*checked_pairs(labels, probabilities, uncertain))
    return mean_of_defined([roc_auc(*pair) for pair in pairs if has_both_labels(pair[0])])


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
        self.uncertain, self.label_kind = uncertain, label_kind
        super().__init__(
            self.of_logits, output_transform=_logits_and_labels, check_compute_fn=False
        )

    def of_logits(self, logits: torch.Tensor, labels: torch.Tensor) -> float:
        """The mean AUC; ignite hands the predictions over first."""
        # logits of several findings rank images as their sigmoids do; those of exclusive classes need each other
        multiclass = self.label_kind == "multiclass"
        scores = class_probabilities(logits, self.label_kind) if multiclass else logits
        return mean_auc(labels, scores, self.uncertain)


def _logits_and_labels(output: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return output[CommonKeys.PRED].float(), output[CommonKeys.LABEL].float()


def best_thresholds(
    labels: ArrayLike, probabilities: ArrayLike, uncertain: str = "ignore"
) -> NDArray[np.float64]:
    """
    Threshold of the best F1 for each class, see :func:`best_f1_threshold`; 0.5 for a class that has not both labels.

    Args:
        labels: ``(M, K)`` of 1, 0, -1 and NaN, of the validation set.
        probabilities: ``(M, K)``.
        uncertain: what -1 counts as, see ``resolve_uncertain``.

    Returns:
        ``(K,)``.
    """
    pairs = pairs_by_class(*checked_pairs(labels, probabilities, uncertain))
    best = [
        best_f1_threshold(*pair) if has_both_labels(pair[0]) else DEFAULT_THRESHOLD
        for pair in pairs
    ]
    return np.array(best, dtype=np.float64)


def check_class_names(class_names: Sequence[str], num_classes: int | None = None) -> None:
    """Refuse names that occur twice, or as many as there are not classes."""
    repeated = sorted({str(name) for name in class_names if list(class_names).count(name) > 1})
    if repeated:
        raise ValueError(f"the class names {repeated} occur more than once: name each class once")
    if num_classes is not None and len(class_names) != num_classes:
        names = f"{len(class_names)} class names {list(class_names)} for {num_classes} classes"
        raise ValueError(f"{names}: give one per output of the network, in their order")


def known_of_class(truth: NDArray, values: NDArray) -> tuple[NDArray, NDArray]:
    """Labels and scores of the images whose label, 0, 1 or NaN, is known."""
    known = ~np.isnan(truth)
    return truth[known], values[known]


def as_array(values: ArrayLike) -> NDArray[np.float64]:
    """Tensors and lists as float64."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)


def checked_pairs(labels: ArrayLike, scores: ArrayLike, uncertain: str) -> tuple[NDArray, NDArray]:
    """Labels as 0, 1 and NaN, and scores without NaN, both (M, K)."""
    truth, values = as_array(labels), as_array(scores)
    if truth.ndim == values.ndim == 1:  # ignite's metrics squeeze a single class
        truth, values = truth[:, None], values[:, None]
    if truth.ndim != 2 or truth.shape != values.shape or len(truth) == 0:
        shapes = f"{truth.shape} and probabilities {values.shape}"
        raise ValueError(f"labels have shape {shapes} instead of both (M, K) with M > 0")
    bad = np.isnan(values).any(1)
    if bad.any():
        found = f"probabilities of {bad.sum()} images are NaN"
        raise ValueError(f"{found} (image {int(bad.argmax())} is the first)")
    return resolve_uncertain(torch.from_numpy(truth), uncertain).numpy(), values


def pairs_by_class(truth: NDArray, values: NDArray) -> list[tuple[NDArray, NDArray]]:
    """Labels and scores of each class whose label is known."""
    return [known_of_class(*columns) for columns in zip(truth.T, values.T, strict=True)]


def has_both_labels(truth: NDArray) -> bool:
    """Whether some labels are 0 and some 1."""
    return np.unique(truth).size == 2
