# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Uncertain and missing labels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from monai_afire.utils.uncertain_labels import (
    check_label_kind,
    class_probabilities,
    resolve_uncertain,
)

NAN = torch.nan


@pytest.mark.parametrize(("policy", "value"), [("ignore", NAN), ("ones", 1.0), ("zeros", 0.0)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_policies(policy: str, value: float, dtype: torch.dtype) -> None:
    labels = torch.tensor([[1.0, 0.0, -1.0, NAN], [-1.0, -1.0, 0.0, 1.0]], dtype=dtype)
    before = labels.clone()
    expected = torch.tensor([[1.0, 0.0, value, NAN], [value, value, 0.0, 1.0]], dtype=dtype)
    torch.testing.assert_close(
        resolve_uncertain(labels, policy), expected, rtol=0, atol=0, equal_nan=True
    )
    assert torch.equal(labels.nan_to_num(7), before.nan_to_num(7))


def test_types_without_nan_become_float() -> None:
    assert resolve_uncertain(torch.tensor([1, 0, -1]), "zeros").tolist() == [1.0, 0.0, 0.0]
    assert resolve_uncertain(torch.tensor([True, False])).tolist() == [1.0, 0.0]
    assert resolve_uncertain(torch.empty(0, 3)).shape == (0, 3)


@pytest.mark.parametrize("wrong", [0.5, float("inf")])
def test_other_values_are_named(wrong: float) -> None:
    with pytest.raises(ValueError, match=r"\(1, 0\)"):
        resolve_uncertain(torch.tensor([[1.0, NAN], [wrong, 0.0], [wrong, -1.0]]))


def test_values_are_not_read_where_that_would_stop_the_device() -> None:
    # the meta device has no values: reading one, as a check or boolean indexing would, is an error
    assert resolve_uncertain(torch.empty(2, 3, device="meta"), "ones").shape == (2, 3)


def test_kinds_of_labels() -> None:
    logits = torch.tensor([[0.0, 1000.0], [-1000.0, -1000.0]])
    assert class_probabilities(logits).tolist() == [[0.5, 1.0], [0.0, 0.0]]
    assert class_probabilities(logits, "multiclass").tolist() == [[0.0, 1.0], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("softmax",), "label_kind"),
        (("multiclass", 1), "num_classes"),
        (("multiclass", 3, "ones"), "uncertain"),
        (("multilabel", 1, "never"), "uncertain"),
    ],
)
def test_kinds_that_cannot_be_are_refused(arguments: tuple[Any, ...], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        check_label_kind(*arguments)
