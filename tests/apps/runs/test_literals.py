# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Paths and names go through two parsers, Fire's and MONAI's, and come out as they were written."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fire
import pytest
from apps.runs.bundle_configs import paths_of
from monai.bundle import ConfigParser, ConfigWorkflow, create_workflow

from monai_afire.apps.runs.literals import literal
from monai_afire.utils.command_line import innermost_cause

STRANGE = (
    *("ward #3", "#", "a#b#c", "x@#y", "a::b", "me@host", "50 %", "cost $5"),
    *("1e3", "007", "1_000", "0x10", "-5", "2024-01", "True", "1,5"),
    *("a,b", "[x]", "{a}", "(y)", "it's", '"quoted"', "'single'", 'q"q'),
    *(" lead", "trail ", "two words", "b\\s", "tab\tin", "line\nbreak"),
    *("e\u0301t\u00e9", "\ufb01le", "\u5fc3", "\\#", "\\x23"),
)
SIGILS = ("@home", "$new", "@home dir", "$1 + 1", "@home/sub", "$import os")


def through_the_command_line(
    monkeypatch: pytest.MonkeyPatch, *words: str, configs: Sequence[str] = ("mae/train",)
) -> ConfigWorkflow:
    """What ``python -m monai.bundle run`` makes of some words, without the run."""
    made: list[ConfigWorkflow] = []

    def run(**options: Any) -> None:
        made.append(create_workflow(logging_file=False, **options))

    arguments = ["run", "--config_file", str(paths_of(list(configs))), *words]
    monkeypatch.setattr(sys, "argv", ["site-packages/monai/bundle/__main__.py", *arguments])
    fire.Fire({"run": run}, command=arguments)
    return made[0]


def value_of(workflow: ConfigWorkflow, name: str) -> Any:
    return workflow.parser.get_parsed_content(name)


@pytest.fixture(autouse=True)
def in_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.excepthook", lambda *_: None)


@pytest.mark.parametrize("text", [*STRANGE, *SIGILS, "%done", "%::a", "a @::b"])
def test_monai_reads_a_literal_as_the_text(text: str) -> None:
    config = {"own": literal(text), "below": {"deeper": literal([text, {"a": text}])}}
    parser = ConfigParser(json.loads(json.dumps(config)))  # as MLflow stores it
    assert parser.get_parsed_content("own") == text
    assert parser.get_parsed_content("below") == {"deeper": [text, {"a": text}]}


@pytest.mark.parametrize("value", [3, 1.5, None, True, "plain/path.png", "C:\\images", ["a", 2]])
def test_other_values_stay_as_they_are(value: Any) -> None:
    assert literal(value) == value


@pytest.mark.parametrize("text", STRANGE)
def test_a_path_is_what_was_written(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    words = ["--dataset_dir", text, f"--output_dir={text}", "--ckpt-dir", text]
    workflow = through_the_command_line(monkeypatch, *words)
    assert [value_of(workflow, name) for name in ("dataset_dir", "output_dir", "ckpt_dir")] == [
        text
    ] * 3


@pytest.mark.parametrize("text", SIGILS)
def test_a_path_in_monais_language_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, text: str, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError) as caught:
        through_the_command_line(monkeypatch, "--output_dir", text)
    assert f"write ./{text}" in str(innermost_cause(caught.value))
    assert list(tmp_path.iterdir()) == []
    workflow = through_the_command_line(monkeypatch, "--output_dir", f"./{text}")
    assert value_of(workflow, "output_dir") == f"./{text}"


@pytest.mark.parametrize("words", [["-out"], ["--"], ["--epochs=1"], [""], []])
def test_a_path_that_is_missing_is_refused(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """An option at the end, or before a word that Fire takes for an option, is a switch."""
    with pytest.raises(RuntimeError) as caught:
        through_the_command_line(monkeypatch, "--dataset_dir", *words)
    assert "needs a path" in str(innermost_cause(caught.value))


def test_the_home_folder_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell leaves it after "=": without this, a folder "~" would be made."""
    monkeypatch.setenv("HOME", "/home/somebody")
    workflow = through_the_command_line(monkeypatch, "--output_dir=~/runs #2")
    assert value_of(workflow, "output_dir") == "/home/somebody/runs #2"


def test_settings_inside_of_parts_are_kept_or_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--own_part", "{'_target_': 'dict'}", "--run", "['$@own_part']"]
    words += ["--own_part::path", "ward #3", "--own_part#more", "$@seed"]
    workflow = through_the_command_line(monkeypatch, "--seed", "3", *words)
    part = value_of(workflow, "own_part")
    assert (part["path"], part["more"]) == ("ward #3", 3)


def test_paths_in_config_files_and_of_callers_keep_their_signs(tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"dataset_dir": "ward #3", "output_dir": "$'a' + 'b'"}))
    files = [*paths_of(["mae/train"]), str(own)]
    workflow = create_workflow(config_file=files, logging_file=False, ckpt_dir="study #2")
    names = ("dataset_dir", "output_dir", "ckpt_dir")
    assert [value_of(workflow, name) for name in names] == ["ward #3", "ab", "study #2"]


def test_names_and_files_of_dictionaries(monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = ["mae/inference", "mae/analysis"]
    weights = "{'mine': 'study #2/model.pt'}"
    workflow = through_the_command_line(monkeypatch, "--weights", weights, configs=analysis)
    assert value_of(workflow, "weights") == {"mine": "study #2/model.pt"}
    for wrong, remedy in (
        ("{'mine': '@home/model.pt'}", "write ./@home/model.pt"),
        ("{'mine #2': 'model.pt'}", "cannot hold a #"),
        ("{mine: 1e3}", "needs a dictionary of names and files"),
    ):
        with pytest.raises(RuntimeError) as caught:
            through_the_command_line(monkeypatch, "--weights", wrong, configs=analysis)
        assert remedy in str(innermost_cause(caught.value))
