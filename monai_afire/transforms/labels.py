# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Labels of a datalist as vectors."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from monai.config import KeysCollection, NdarrayOrTensor
from monai.transforms import MapTransform, Transform
from monai.utils import TransformBackends

from monai_afire.utils.labels import check_label_kind
from monai_afire.utils.text import image_name

_VALUES = (1.0, 0.0, -1.0)


class LabelVector(Transform):
    """
    Turn a label into a vector: values of several findings as they are, the number of a class one-hot.

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

    def __call__(self, label: Sequence[float | None] | float | NdarrayOrTensor | None) -> torch.Tensor:
        """
        Args:
            label: a list, array or tensor of 1 (present), 0 (absent), -1 (uncertain) and None or NaN (missing); or the
                number of a class, from 0 to K - 1; with one class, one such value. None: all are missing.

        Returns:
            ``(K,)`` float32 with 1, 0, -1 and NaN.

        Raises:
            ValueError: for another value, or another number of them.
        """
        if self.label_kind == "multiclass":
            return self._only_class(label)
        if isinstance(label, (list, tuple)) or getattr(label, "ndim", 0) == 1:
            return self._findings(list(label))  # type: ignore[arg-type]
        if getattr(label, "ndim", 0) > 1:
            raise ValueError(f"a label is a number or a list of them, got an array of shape {tuple(label.shape)}")  # type: ignore[union-attr]
        if self.num_classes is None or self.num_classes == 1:
            return torch.tensor([_value(label)])
        if _is_missing(label):
            return torch.full((self.num_classes,), torch.nan)
        return self._one_hot(label)

    def _findings(self, values: list[Any]) -> torch.Tensor:
        if not values or self.num_classes not in (None, len(values)):
            raise ValueError(f"{self.num_classes or 'some'} labels are expected, got {len(values)}: {values}")
        return torch.tensor([_value(value) for value in values], dtype=torch.float32)

    def _only_class(self, label: Any) -> torch.Tensor:
        if isinstance(label, (list, tuple)) or getattr(label, "ndim", 0) > 0:
            raise ValueError(
                f"label_kind 'multiclass' takes one class number per image, got {label!r}: lists of findings are "
                "'multilabel'"
            )
        if _is_missing(label) or _as_float(label) == -1:
            return torch.full((self.num_classes or 0,), torch.nan)
        return self._one_hot(label)

    def _one_hot(self, label: Any) -> torch.Tensor:
        number = _as_float(label)
        if number not in range(self.num_classes or 0):
            raise ValueError(f"a class from 0 to {(self.num_classes or 0) - 1} is expected, got {label!r}")
        vector = torch.zeros(self.num_classes or 0)
        vector[int(number)] = 1.0
        return vector


class LabelVectord(MapTransform):
    """
    Dictionary version of :py:class:`LabelVector`.

    Args:
        keys: keys of the labels.
        num_classes: as for :py:class:`LabelVector`.
        allow_missing_keys: skip keys that an item lacks instead of raising.
        label_kind: as for :py:class:`LabelVector`.

    Raises:
        ValueError: for a label that cannot be; the message names the item's image.

    Example:
        >>> LabelVectord("label")({"label": [1, None]})
        {'label': tensor([1., nan])}
    """

    backend = LabelVector.backend

    def __init__(
        self,
        keys: KeysCollection = "label",
        num_classes: int | None = None,
        allow_missing_keys: bool = False,
        label_kind: str = "multilabel",
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.convert = LabelVector(num_classes, label_kind)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Convert the labels of one item; the item itself is left as it is."""
        item = dict(data)
        for key in self.key_iterator(item):
            try:
                item[key] = self.convert(data[key])
            except ValueError as error:
                raise ValueError(f"{image_name(data)}: {key!r}: {error}") from error
        return item


LabelVectorD = LabelVectorDict = LabelVectord


def _is_missing(value: Any) -> bool:
    return value is None or bool(value != value)


def _as_float(value: Any) -> float:
    """A number that is no truth value, else NaN, which equals nothing."""
    value = value.item() if hasattr(value, "item") else value
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else float("nan")


def _value(value: Any) -> float:
    if _is_missing(value):
        return float("nan")
    number = _as_float(value)
    if number not in _VALUES:
        raise ValueError(f"1 (present), 0 (absent), -1 (uncertain) or None (missing) is expected, got {value!r}")
    return number
