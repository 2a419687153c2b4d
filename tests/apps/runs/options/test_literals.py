# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Paths and names go through two parsers, Fire's and MONAI's: they come out as written, or are refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fire
import pytest
from apps.runs.bundle_configs import paths_of
from monai.bundle import ConfigWorkflow, create_workflow
from monai_afire.apps.runs.process_end import innermost_cause

from monai_afire_cli.options.words import passed_on

STRANGE = (
    "...",
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

    files = [] if "--config_file" in words else ["--config_file", str(paths_of(list(configs)))]
    arguments = ["run", *files, *words]
    monkeypatch.setattr(sys, "argv", ["site-packages/monai/bundle/__main__.py", *arguments])
    fire.Fire({"run": run}, command=arguments)
    return made[0]


def value_of(workflow: ConfigWorkflow, name: str) -> Any:
    return workflow.parser.get_parsed_content(name)


@pytest.fixture(autouse=True)
def in_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.excepthook", lambda *_: None)


def refused(
    monkeypatch: pytest.MonkeyPatch, *words: str, configs: Sequence[str] = ("mae/train",)
) -> str:
    """What is said of words that MONAI would read as something else; nothing may be written."""
    with pytest.raises(RuntimeError) as caught:
        through_the_command_line(monkeypatch, *words, configs=configs)
    assert list(Path.cwd().iterdir()) == []
    return str(innermost_cause(caught.value))


@pytest.mark.parametrize("text", [*STRANGE, *SIGILS])
def test_monai_afire_run_hands_on_what_was_written(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    words = ["--dataset_dir", text, f"--output_dir={text}", "--ckpt-dir", text]
    workflow = through_the_command_line(monkeypatch, *passed_on(words))
    names = ("dataset_dir", "output_dir", "ckpt_dir")
    assert [value_of(workflow, name) for name in names] == [text] * 3


@pytest.mark.parametrize("text", [*STRANGE, *SIGILS])
def test_monais_own_command_takes_a_path_as_written_or_refuses_it(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    said = ""
    try:
        workflow = through_the_command_line(monkeypatch, "--output_dir", text)
        assert value_of(workflow, "output_dir") == text
    except RuntimeError as error:
        said = str(innermost_cause(error))
    assert not said or "monai-afire run" in said


@pytest.mark.parametrize("text", ["ward #3", "1e3", "a,b", "True", "'quoted'", "x@#y", *SIGILS])
def test_what_another_language_reads_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    said = refused(monkeypatch, "--output_dir", text)
    assert "--output_dir: " in said
    assert "monai-afire run" in said


@pytest.mark.parametrize(
    "text", ["two words", "it's", "me@host", "a::b", "50 %", "./@home", "./1e3"]
)
def test_what_no_language_reads_is_taken(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    workflow = through_the_command_line(monkeypatch, "--output_dir", text)
    assert value_of(workflow, "output_dir") == text


@pytest.mark.parametrize("words", [["-out"], ["--"], ["--epochs=1"], [""], []])
def test_a_path_that_is_missing_is_refused(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """An option at the end, or before a word that Fire takes for an option, is a switch."""
    assert "needs a path" in refused(monkeypatch, "--dataset_dir", *words)


def test_the_home_folder_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell leaves it after "=": without this, a folder "~" would be made."""
    monkeypatch.setenv("HOME", "/home/somebody")
    words = ["--output_dir=~/runs #2"]
    assert "in full" in refused(monkeypatch, *words)
    workflow = through_the_command_line(monkeypatch, *passed_on(words))
    assert value_of(workflow, "output_dir") == "/home/somebody/runs #2"


def test_nothing_is_an_expression_since_monai_drops_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("None", "null"):
        assert "write '$None'" in refused(monkeypatch, "--datalist", word)
    workflow = through_the_command_line(monkeypatch, *passed_on(["--datalist", "null"]))
    assert value_of(workflow, "datalist") is None


def test_settings_inside_of_parts_are_kept_or_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--own_part", "{'_target_': 'dict'}", "--run", "['$@own_part']", "--seed", "3"]
    words += ["--own_part::path", "ward #3", "--own_part#more", "$@seed"]
    assert "--own_part::path: " in refused(monkeypatch, *words)
    workflow = through_the_command_line(monkeypatch, *passed_on(words))
    part = value_of(workflow, "own_part")
    assert (part["path"], part["more"]) == ("ward #3", 3)


def test_paths_in_config_files_are_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    own = tmp_path_factory.mktemp("configs") / "own.json"
    own.write_text(json.dumps({"dataset_dir": "ward #3", "output_dir": "$'a' + 'b'"}))
    configs = str([*paths_of(["mae/train"]), str(own)])
    said = refused(monkeypatch, "--config_file", configs)
    assert "--dataset_dir: " in said
    assert "--output_dir" not in said
    own.write_text(json.dumps({"dataset_dir": "$'ward \\x233'"}))
    workflow = through_the_command_line(monkeypatch, "--config_file", configs)
    assert value_of(workflow, "dataset_dir") == "ward #3"


def test_names_and_files_of_dictionaries(monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = ["mae/inference", "mae/analysis"]
    words = ["--weights", "{'mine': 'study #2/model.pt', 'other': '@home/model.pt'}"]
    workflow = through_the_command_line(monkeypatch, *passed_on(words), configs=analysis)
    weights = {"mine": "study #2/model.pt", "other": "@home/model.pt"}
    assert value_of(workflow, "weights") == weights
    for wrong, remedy in (
        ("{'mine': '@home/model.pt'}", "write ./@home/model.pt"),
        ("{'mine': 'study #2/model.pt'}", "monai-afire run"),
        ("{'mine #2': 'model.pt'}", "cannot hold a #"),
        ("{mine: 1e3}", "needs a dictionary of names and files"),
    ):
        assert remedy in refused(monkeypatch, "--weights", wrong, configs=analysis)
