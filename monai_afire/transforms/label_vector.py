# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Labels of a datalist as vectors."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection, NdarrayOrTensor
from monai.transforms import Transform
from monai.utils import TransformBackends
from torch.nn import functional

from monai_afire.transforms.base import ArrayTransformd
from monai_afire.utils.text import image_name
from monai_afire.utils.uncertain_labels import check_label_kind

_VALUES = (1.0, 0.0, -1.0)
_KNOWN_VALUES = "1 (present), 0 (absent), -1 (uncertain) or None (missing)"


class LabelVector(Transform):
    """
    Turn a label into a vector: values of several findings unchanged, the number of a class one-hot.

    Args:
        num_classes: K, number of findings or classes. None for as many as a list has; a number is then that of one
            finding, 1 or 0.
        label_kind: "multilabel", or "multiclass" for exactly one class per image: a number from 0 to K - 1; -1
            (uncertain) and None (missing) are vectors of NaN, lists are refused.

    Raises:
        ValueError: when ``num_classes`` is below 1, for "multiclass" below 2 or None, or for another kind.

    Example:
        >>> LabelVector()([1, 0, -1, None]), LabelVector(num_classes=3)(2), LabelVector()(1)
        (tensor([ 1.,  0., -1., nan]), tensor([0., 0., 1.]), tensor([1.]))
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012  MONAI declares it so

    def __init__(self, num_classes: int | None = None, label_kind: str = "multilabel") -> None:
        check_label_kind(label_kind, 0 if num_classes is None else num_classes)
        if num_classes is not None and num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, or None, got {num_classes}")
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

        Raises:
            ValueError: for another value, or another number of them.
        """
        values: Any = (
            label.tolist() if isinstance(label, (np.ndarray, np.generic, torch.Tensor)) else label
        )
        several = isinstance(values, (list, tuple))
        if isinstance(label, (np.ndarray, torch.Tensor)) and label.ndim > 1:
            raise ValueError(
                f"a label is a number or a list of them, got an array of shape {tuple(label.shape)}"
            )
        if several and self.label_kind == "multiclass":
            found = f"label_kind 'multiclass' takes one class number per image, got {values!r}"
            raise ValueError(f"{found}: lists of findings are 'multilabel'")
        if several or self.num_classes in (None, 1):
            return self._findings(list(values) if several else [values])
        if _is_missing(values) or (self.label_kind == "multiclass" and _number(values) == -1):
            return torch.full((self.num_classes or 0,), torch.nan)
        return self._one_hot(values)

    def _findings(self, values: list[Any]) -> torch.Tensor:
        """The values of findings, NaN for missing ones."""
        if not values or self.num_classes not in (None, len(values)):
            raise ValueError(
                f"{self.num_classes or 'some'} labels are expected, got {len(values)}: {values}"
            )
        for value in values:
            if not _is_missing(value) and _number(value) not in _VALUES:
                raise ValueError(f"{_KNOWN_VALUES} is expected, got {value!r}")
        return torch.tensor([_number(value) for value in values])

    def _one_hot(self, number: Any) -> torch.Tensor:
        """The vector of one class."""
        classes = range(self.num_classes or 0)
        if _number(number) not in classes:
            raise ValueError(f"a class from 0 to {classes[-1]} is expected, got {number!r}")
        return functional.one_hot(torch.tensor(int(number)), len(classes)).float()


class LabelVectord(ArrayTransformd):
    """
    Dictionary version of :py:class:`LabelVector`.

    Args:
        keys: keys of the labels.
        settings: as for :py:class:`LabelVector`.
        allow_missing_keys: skip missing keys instead of raising.

    Raises:
        ValueError: for an invalid label; the message names the item's image.

    Example:
        >>> LabelVectord("label")({"label": [1, None]})
        {'label': tensor([1., nan])}
    """

    array_class = LabelVector

    def __init__(
        self,
        keys: KeysCollection = "label",
        *settings: Any,
        allow_missing_keys: bool = False,
        **named_settings: Any,
    ) -> None:
        super().__init__(keys, *settings, allow_missing_keys=allow_missing_keys, **named_settings)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Convert the labels of one item. The item itself does not change."""
        item = dict(data)
        for key in self.key_iterator(item):
            try:
                item[key] = self.transform(data[key])
            except ValueError as error:
                raise ValueError(f"{image_name(data)}: {key!r}: {error}") from error
        return item


LabelVectorD = LabelVectorDict = LabelVectord


def _is_missing(value: Any) -> bool:
    """Whether a label is None or NaN."""
    return value is None or bool(value != value)


def _number(value: Any) -> float:
    """A number as float; anything else, truth values included, as NaN, which equals nothing."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number else float("nan")
