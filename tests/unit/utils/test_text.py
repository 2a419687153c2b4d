# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lists of things, and names of items, in messages."""

from __future__ import annotations

from typing import Any

import pytest

from monai_afire.utils.text import known_text


@pytest.mark.parametrize(
    ("value", "text"),
    [(7, "7"), (57.0, "57"), (1.5, "1.5"), (0, "0"), (" PA ", "PA"), (float("nan"), ""), (" ", "")],
)
def test_known_text(value: Any, text: str) -> None:
    assert known_text(value) == text
