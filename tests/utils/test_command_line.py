# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Switches of the command line."""

from __future__ import annotations

import pytest

from monai_afire.utils import as_bool


@pytest.mark.parametrize("value", [True, 1, "true", "True", "TRUE", "yes", "on", "1", " true "])
def test_true(value: bool | int | str) -> None:
    assert as_bool(value) is True


@pytest.mark.parametrize("value", [False, 0, "false", "False", "no", "off", "0", "False\n"])
def test_false(value: bool | int | str) -> None:
    assert as_bool(value) is False


@pytest.mark.parametrize("value", ["", "maybe", "2", 2, -1, None, "truefalse", []])
def test_anything_else_is_refused(value: bool | int | str) -> None:
    with pytest.raises(ValueError, match="expected true or false, got"):
        as_bool(value)
