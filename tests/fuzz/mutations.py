# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""How good files are damaged, and how much: the same few seconds of examples in every run."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Mutation = tuple[str, float, bytes]

# derandomised: a failure is a failure of the change at hand, not of the luck of the day
bounded = settings(
    max_examples=60,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

mutations: st.SearchStrategy[list[Mutation]] = st.lists(
    st.tuples(
        st.sampled_from(["overwrite", "insert", "remove", "cut", "flip"]),
        # most of what a file says is in its first bytes
        st.one_of(st.floats(0, 1), st.floats(0, 0.05)),
        st.one_of(
            st.binary(min_size=1, max_size=8),
            st.sampled_from([b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff"]),
        ),
    ),
    min_size=1,
    max_size=4,
)


def mutated(content: bytes, steps: Sequence[Mutation]) -> bytes:
    """The content after these steps; a place is a share of the length."""
    for kind, share, data in steps:
        place = int(share * len(content))
        if kind == "overwrite":
            content = content[:place] + data + content[place + len(data) :]
        elif kind == "insert":
            content = content[:place] + data + content[place:]
        elif kind == "remove":
            content = content[:place] + content[place + len(data) :]
        elif kind == "cut":
            content = content[:place]
        elif place < len(content):
            content = (
                content[:place]
                + bytes([content[place] ^ (1 << data[0] % 8)])
                + content[place + 1 :]
            )
    return content
