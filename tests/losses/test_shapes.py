# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Shapes that fit their letters, and those that do not."""

from __future__ import annotations

import pytest
import torch

from monai_afire.losses.loss_shapes import check_shapes


@pytest.mark.parametrize(
    ("shapes", "fits"),
    [
        ({"a": ((2, 3), "B, L"), "b": ((2,), "B")}, True),
        ({"a": ((2, 3), "B, L"), "b": ((3,), "B")}, False),
        ({"a": ((2, 3), "B, B")}, False),
        ({"a": ((2, 3), "B")}, False),
        ({"a": ((2,), "B, L")}, False),
        ({"a": ((4, 3, 5, 6), "B, P, *S"), "b": ((4, 3, 5, 6), "B, P, *S")}, True),
        ({"a": ((4, 3, 5, 6), "B, P, *S"), "b": ((4, 3, 5, 7), "B, P, *S")}, False),
        ({"a": ((4, 3), "B, P, *S")}, False),
        ({"a": ((2, 7, 4, 3), "*B, L, P"), "b": ((2, 7, 4), "*B, L")}, True),
        ({"a": ((2, 7, 4, 3), "*B, L, P"), "b": ((2, 4, 4), "*B, L")}, False),
        ({"a": ((2, 7, 4, 3), "*B, L, P"), "b": ((14, 4), "*B, L")}, False),
    ],
)
def test_letters_are_sizes(shapes: dict[str, tuple[tuple[int, ...], str]], fits: bool) -> None:
    expected = {name: (torch.zeros(shape), axes) for name, (shape, axes) in shapes.items()}
    if fits:
        check_shapes(**expected)
        return
    with pytest.raises(ValueError, match=r"expected a \(.*\), got \(.*\): take others"):
        check_shapes("take others", **expected)
