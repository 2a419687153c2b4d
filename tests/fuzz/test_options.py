# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Whatever is given as an option is taken, or refused by an error that names it; never anything else."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from monai.bundle import ConfigParser

from monai_afire.apps.runs import OPTIONS, BundleCall, OptionError, check_call

CONFIG = Path(__file__).resolve().parents[2] / "bundles" / "afire" / "configs" / "train.json"
# "%", "@" and "$" begin what MONAI itself resolves before any check
LETTERS = st.characters(categories=["L", "N", "Z"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(LETTERS, max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(LETTERS, max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@cache
def content() -> dict[str, Any]:
    return ConfigParser.load_config_files([str(CONFIG)])


def given_options() -> list[str]:
    return sorted(name for name in content() if name in OPTIONS)


@pytest.mark.parametrize("name", given_options())
@settings(max_examples=15, derandomize=True)
@given(value=VALUES)
def test_any_value_is_taken_or_refused_by_name(name: str, value: Any) -> None:
    message = ""
    try:
        check_call(BundleCall({"train.json": content()}, {name: value}))
    except OptionError as error:
        message = str(error)
    assert not message or f"--{name}" in message


@settings(max_examples=50, derandomize=True)
@given(name=st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=12))
def test_a_name_is_known_or_refused(name: str) -> None:
    if name in content():
        return
    with pytest.raises(OptionError, match="--"):
        check_call(BundleCall({"train.json": content()}, {name: 1}))
