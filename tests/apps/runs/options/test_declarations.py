# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundles' configs and the declarations of their options name the same, and the defaults pass the check."""

from __future__ import annotations

from typing import Any

import pytest
from apps.runs.bundle_configs import call_of, config_files, runs
from monai_afire.apps.runs import OPTIONS, SECTIONS, check_call
from monai_afire.apps.runs.overlays import FOLLOWS

from monai_afire_cli.bundles.configs import all_entries

# null where an overlay puts something
SLOTS = {"process_group", "best_of"}


def is_option(name: str, value: Any) -> bool:
    """Whether an entry of a config is a value that a person sets, rather than a part of the application."""
    if isinstance(value, list) and value:
        return all(is_option(name, each) for each in value)
    is_value = (
        value is None
        or isinstance(value, (bool, int, float))
        or not str(value).startswith(("$", "@", "%"))
    )
    of_the_files = name == FOLLOWS  # says how configs are combined
    return (
        is_value
        and not isinstance(value, dict)
        and name not in SLOTS
        and "::" not in name
        and not of_the_files
    )


@pytest.mark.parametrize("key", config_files())
def test_every_plain_value_of_a_config_is_declared(key: str) -> None:
    values = [name for name, value in config_files()[key].items() if is_option(name, value)]
    assert set(values) <= set(OPTIONS), "declare it in monai_afire/options"


def test_every_declared_option_is_in_a_config() -> None:
    used = {id for config in config_files().values() for id, _ in all_entries(config)}
    assert set(OPTIONS) <= used, "nothing uses it: remove it from monai_afire/options"


def test_there_are_few_options() -> None:
    """A setting that people seldom change has no name of its own: it is overridden by its path."""
    assert len([name for name in OPTIONS if "::" not in name]) <= 52


def test_names_are_declared_once() -> None:
    assert len(OPTIONS) == sum(len(options) for options in SECTIONS.values())


@pytest.mark.parametrize("option", OPTIONS.values(), ids=list(OPTIONS))
def test_a_meaning_is_one_line(option: Any) -> None:
    assert 3 < len(option.meaning) < 100
    assert not option.meaning.endswith(".")
    assert "\n" not in option.meaning


@pytest.mark.parametrize("run", runs(), ids=" ".join)
def test_defaults_pass_the_check(run: list[str]) -> None:
    check_call(call_of(run))


@pytest.mark.parametrize(
    "key", [key for key, config in config_files().items() if "initialize" in config]
)
def test_the_check_is_the_first_to_happen(key: str) -> None:
    assert config_files()[key]["initialize"][0] == {
        "_target_": "monai_afire.apps.runs.start_bundle"
    }
