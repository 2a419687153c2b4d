# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lists of things, and names of items, in messages."""

from __future__ import annotations

from typing import Any

import pytest

from monai_afire.utils.text import known_text


@pytest.mark.parametrize("value", [None, float("nan"), "", "  ", "unknown", " Unknown ", "NaN"])
def test_unknown_has_no_text(value: Any) -> None:
    assert known_text(value) == ""


def test_known_text() -> None:
    assert [known_text(value) for value in (7, 57.0, 1.5, 0, " PA ", False)] == [
        "7",
        "57",
        "1.5",
        "0",
        "PA",
        "False",
    ]
