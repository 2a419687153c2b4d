# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The first steps of a bundle's run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from monai.bundle import ConfigParser

import monai_afire
from monai_afire.utils import bundle_root, default_num_workers
from monai_afire.utils.bundle_start import read_switches, running_parser

CONFIG = {
    "switches": ["flag", "missing"],
    "initialize": ["$monai_afire.utils.bundle_start.read_switches(@switches, @parser)"],
    "parser": "$monai_afire.utils.bundle_start.running_parser()",
    "part": {"_target_": "builtins.dict", "value": "@flag"},
    "parts": [{"_target_": "builtins.dict", "_disabled_": "$not @flag"}],
}


def parsed(flag: object) -> ConfigParser:
    parser = ConfigParser({**CONFIG, "flag": flag})
    parser.globals["monai_afire"] = monai_afire
    parser.get_parsed_content("initialize")
    return parser


@pytest.mark.parametrize("flag", ["false", "False", 0, "0", False])
def test_false_is_false_however_it_is_written(flag: object) -> None:
    parser = parsed(flag)
    assert parser.get_parsed_content("part") == {"value": False}
    assert parser.get_parsed_content("parts") == []


@pytest.mark.parametrize("flag", ["true", 1, "1", True])
def test_true_is_true_however_it_is_written(flag: object) -> None:
    parser = parsed(flag)
    assert parser.get_parsed_content("part") == {"value": True}
    assert parser.get_parsed_content("parts") == [{}]


def test_a_switch_that_is_neither_is_named() -> None:
    parser = ConfigParser({"flag": "perhaps"})
    parser.parse()
    with pytest.raises(ValueError, match="the option flag: expected true or false, got 'perhaps'"):
        read_switches(["flag"], parser)


def test_what_the_config_decides_itself_is_left_alone() -> None:
    parser = ConfigParser({"flag": "$1 > 2", "other": "@flag"})
    parser.parse()
    read_switches(["flag", "other"], parser)
    assert parser.get_parsed_content("flag") is False
    assert parser.get_parsed_content("other") is False


def test_the_running_parser_is_that_of_the_expression() -> None:
    assert parsed(True).get_parsed_content("parser") is not None
    with pytest.raises(RuntimeError, match="expression"):
        running_parser()


def test_bundle_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert bundle_root("afire") == "."
    (tmp_path / "bundles/afire/configs").mkdir(parents=True)
    assert bundle_root("afire") == "bundles/afire"


def test_loader_processes_are_for_gpus() -> None:
    assert default_num_workers(torch.device("cpu")) == default_num_workers("cpu") == 0
    assert 1 <= default_num_workers("cuda:1") <= 8
    assert "monai_afire" in sys.modules
