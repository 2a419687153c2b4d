# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""SIIM-ACR's run-length codes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monai_afire.apps.readers import decode_rle


def decode_slowly(code: str, rows: int, columns: int) -> list[list[int]]:
    """Pixel by pixel, from the challenge's description."""
    mask = [[0] * columns for _ in range(rows)]
    numbers = [int(word) for word in code.split()]
    position = 0
    for offset, length in zip(numbers[::2], numbers[1::2], strict=True):
        position += offset
        for _ in range(length):
            mask[position % rows][position // rows] = 1
            position += 1
    return mask


RUNS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=6)


@given(RUNS, st.integers(1, 9))
def test_as_the_challenge_describes_it(runs: list[tuple[int, int]], rows: int) -> None:
    code = " ".join(f"{offset} {length}" for offset, length in runs)
    columns = -(-sum(map(sum, runs)) // rows)
    assert decode_rle(code, (rows, columns)).tolist() == decode_slowly(code, rows, columns)


def test_codes_by_hand() -> None:
    mask = np.zeros((1024, 1024))
    mask[10:30, 100:103] = 1
    np.testing.assert_array_equal(decode_rle("102410 20 1004 20 1004 20"), mask)
    assert decode_rle("1048570 6")[1018:, 1023].tolist() == [1] * 6
    assert not decode_rle(" -1 ").any()
    assert decode_rle("1 2 0 1", (3, 2)).tolist() == [[0, 1], [1, 0], [1, 0]]


@pytest.mark.parametrize(
    "code",
    ["1 2 3", "1 x", "-1 2", "3 0", "0 13"],
)
def test_wrong_codes_are_refused(code: str) -> None:
    with pytest.raises(ValueError, match=r"run-length code|int\(\)"):
        decode_rle(code, (3, 4))
