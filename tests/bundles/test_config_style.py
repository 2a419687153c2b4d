# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundles' configs hold settings, not programs: counts of expressions, bounded by the Model Zoo's medians."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bundles.bundle_runs import REPOSITORY_ROOT
from monai.bundle import ConfigParser

BUNDLES = (
    *("ace", "afire", "dino", "mae", "peac"),
    *("radiograph_classification", "radiograph_landmarks", "radiograph_segmentation"),
)
CONFIGS = sorted(
    path
    for path in (REPOSITORY_ROOT / "bundles").glob("*/configs/**/*.json")
    if path.stem != "metadata"
)
ENDS = ("run_inference", "run_once", "finish_run")
MAX_EXPRESSIONS = 24  # median of the zoo's train.json
MAX_LENGTH = 73  # median of the longest expression of a config in the zoo
LIST_ADDITION = re.compile(r"\+ [\[(]|\] \+ [@\[(]|@[\w:]+ \+ @")


def texts(value: Any) -> Iterator[str]:
    """All texts of a config."""
    if isinstance(value, dict):
        for entry in value.values():
            yield from texts(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from texts(entry)
    elif isinstance(value, str):
        yield value


def counts(path: Path) -> dict[str, int]:
    """How much of a config is program."""
    everything = list(texts(ConfigParser.load_config_file(str(path))))
    expressions = [text for text in everything if text.startswith("$")]
    return {
        "expressions": len(expressions),
        "lambdas": sum("lambda" in text for text in expressions),
        "longest": max(map(len, expressions), default=0),
        "conditionals": sum(" if " in text for text in expressions),
        "as_bool": sum("as_bool" in text for text in expressions),
        "list additions": sum(bool(LIST_ADDITION.search(text)) for text in expressions),
        "references": sum(text.count("@") for text in everything),
    }


@pytest.mark.parametrize(
    "path", [path for path in CONFIGS if "run" in ConfigParser.load_config_file(str(path))], ids=str
)
def test_every_run_that_ends_well_says_so(path: Path) -> None:
    """Else ``--resume True`` takes it for a stopped one."""
    steps = list(texts(ConfigParser.load_config_file(str(path))["run"]))
    ends = [f"monai_afire.apps.runs.{name}(" for name in ENDS]
    assert sum(any(end in step for end in ends) for step in steps) == 1


def label(path: Path) -> str:
    return path.relative_to(REPOSITORY_ROOT / "bundles").as_posix().replace("/configs/", "/")


@pytest.mark.parametrize("path", CONFIGS, ids=label)
def test_configs_are_free_of_programs(path: Path) -> None:
    found = counts(path)
    assert found["lambdas"] == found["as_bool"] == found["list additions"] == 0, found
    assert found["longest"] <= MAX_LENGTH, max(
        (t for t in texts(ConfigParser.load_config_file(str(path)))), key=len
    )
    assert found["expressions"] <= MAX_EXPRESSIONS, found


def test_the_counts_see_what_they_forbid(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"a": "$@b + [@c]", "d": ["$lambda x: as_bool(@b)"], "e": "$1 if @b else 2"}')
    assert counts(file) == {
        "expressions": 3,
        "lambdas": 1,
        "longest": 22,
        "conditionals": 1,
        "as_bool": 1,
        "list additions": 1,
        "references": 4,
    }


@pytest.mark.parametrize("bundle", BUNDLES)
def test_handlers_are_reached_by_name(bundle: str) -> None:
    config = ConfigParser.load_config_file(
        str(REPOSITORY_ROOT / f"bundles/{bundle}/configs/train.json")
    )
    for part in ("train", "validate"):
        for entry in config[part].get("handlers", []):
            assert entry.startswith(f"%{part}::")
            assert "_target_" in config[part][entry.split("::")[-1]]


@pytest.mark.parametrize("bundle", BUNDLES)
def test_a_named_handler_can_be_changed_and_left_out(bundle: str) -> None:
    parser = ConfigParser()
    parser.read_config(str(REPOSITORY_ROOT / f"bundles/{bundle}/configs/train.json"))
    parser.update({"train::run::record_interval": 7, "train::gradient_clipping::_disabled_": True})
    parser.parse()
    handlers = {entry["_target_"].split(".")[-1]: entry for entry in parser["train::handlers"]}
    assert parser["train::run::record_interval"] == 7
    assert handlers["GradientClipping"]["_disabled_"] is True
