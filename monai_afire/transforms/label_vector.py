# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Labels of a datalist as vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection, NdarrayOrTensor
from monai.transforms import Transform
from monai.utils import TransformBackends
from torch.nn import functional as F

from monai_afire.transforms.base import ArrayTransformd
from monai_afire.utils.uncertain_labels import check_label_kind


class LabelVector(Transform):
    """
    Turn a label into a vector: values of several findings unchanged, the number of a class one-hot.

    Values are checked as the list is read (:func:`monai_afire.data.labeled_items`).

    Args:
        num_classes: K, number of findings or classes. None for as many as a list has; a number is then that of one
            finding, 1 or 0.
        label_kind: "multilabel", or "multiclass" for exactly one class per image: a number from 0 to K - 1; -1
            (uncertain) and None (missing) are vectors of NaN.

    Raises:
        ValueError: for "multiclass" with fewer than two classes, or for another kind.

    Example:
        >>> LabelVector()([1, 0, -1, None]), LabelVector(num_classes=3)(2), LabelVector()(1)
        (tensor([ 1.,  0., -1., nan]), tensor([0., 0., 1.]), tensor([1.]))
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012  MONAI declares it so

    def __init__(self, num_classes: int | None = None, label_kind: str = "multilabel") -> None:
        check_label_kind(label_kind, 0 if num_classes is None else num_classes)
        self.num_classes = num_classes
        self.label_kind = label_kind

    def __call__(
        self, label: Sequence[float | None] | float | NdarrayOrTensor | None
    ) -> torch.Tensor:
        """
        Args:
            label: a list, array or tensor of 1 (present), 0 (absent), -1 (uncertain) and None or NaN (missing); or the
                number of a class, from 0 to K - 1; with one class, one such value. None: all are missing.

        Returns:
            ``(K,)`` float32 with 1, 0, -1 and NaN.
        """
        values = torch.as_tensor(np.asarray(label, dtype=np.float32))  # None becomes NaN
        if values.ndim or self.num_classes in (None, 1):
            return values.reshape(-1)
        if values.isnan() or (self.label_kind == "multiclass" and values == -1):
            return torch.full((self.num_classes,), torch.nan)
        return F.one_hot(values.long(), self.num_classes).float()


class LabelVectord(ArrayTransformd):
    """Dictionary version of :class:`LabelVector`, whose arguments follow the ``keys`` of the labels."""

    array = LabelVector

    def __init__(self, keys: KeysCollection = "label", *settings: Any, **named: Any) -> None:
        super().__init__(keys, *settings, **named)


LabelVectorD = LabelVectorDict = LabelVectord
