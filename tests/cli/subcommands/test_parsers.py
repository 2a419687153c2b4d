# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Wrong words of commands that load PyTorch are refused before that, and right ones are those of the commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from monai_afire.apps.audit.audit_checks import CHECKS as OF_THE_AUDIT
from monai_afire.detection import field_of_view
from monai_afire.networks.nets.encoders.encoder_building import IMAGENET
from monai_afire.networks.weights import released_files
from monai_afire_cli import command, main
from monai_afire_cli.options.wrong_values import unwritable
from monai_afire_cli.subcommands.parsers import (
    CHECKS,
    ENCODERS,
    EXCLUDED,
    FIELDS_OF_VIEW,
)
from monai_afire_cli.subcommands.wrong_words import wrong_words


@pytest.fixture(autouse=True)
def nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "hand_over", lambda *_, **__: pytest.fail("it was started"))


@pytest.mark.parametrize(
    "words",
    [
        ["audit", "."],
        ["compare", "list.json", "released"],
        ["watch", ".", "out"],
    ],
)
def test_an_option_that_no_command_has_is_refused_at_once(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([*words, "--colour", "x"])
    assert end.value.code == 2
    assert "--colour" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["audit", ".", "--num_workers", "-1"], "found -1, needs a whole number >= 0"),
        (["audit", ".", "--shown", "two"], "found two, needs a whole number >= 0"),
        (["watch", ".", "out", "--interval", "nan"], "found nan, needs a number > 0"),
        (["watch", ".", "out", "--interval", "-1"], "found -1, needs a number > 0"),
        (["watch", ".", "out", "--calibrate_weeks", "inf"], "found inf, needs a number > 0"),
    ],
)
def test_a_number_out_of_range_is_refused_at_once(
    words: list[str], needed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert f"{words[-2]}: {needed}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["audit", "nowhere"],
        ["audit", ".", "--datalist", "nowhere"],
        ["compare", "nowhere", "released"],
        ["compare", ".", "released", "--dataset_dir", "nowhere"],
        ["watch", "nowhere", "out"],
        ["watch", ".", "out", "--calibrate", "nowhere"],
        ["watch", ".", "out", "--ckpt_path", "nowhere"],
        ["watch", ".", "out", "--weights_of", "nowhere"],
    ],
)
def test_a_path_that_is_not_there_is_refused_at_once(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert "nowhere: no such" in line


@pytest.mark.parametrize(
    "words",
    [["audit", ".", "--output_dir"], ["compare", ".", "released", "--output_dir"], ["watch", "."]],
)
def test_a_file_in_the_way_of_results_is_refused_at_once(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("results").touch()
    for folder in ("results", "results/below"):
        assert main([*words, folder]) == 1
        assert "results is a file, not a folder" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["output_dir", "ckpt_dir", "cache_dir"])
def test_a_run_does_not_begin_with_a_file_in_the_way(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("results").touch()
    assert main(["run", "afire", "train", f"--{option}", "results/new"]) == 1
    assert "results is a file, not a folder" in capsys.readouterr().err
    assert unwritable("new/one") is None


def test_a_misspelt_encoder_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("relesed", "mine=relesed", "relesed:random"):
        assert main(["compare", ".", "untrained", word]) == 1
        assert "did you mean 'released'?" in capsys.readouterr().err
    Path("a=b.pt").touch()
    known = [".", *ENCODERS, "mine=released", "a=b.pt", "hub:x", "n=timm:vit"]
    assert wrong_words("compare", known) is None


def test_a_table_that_cannot_be_read_is_refused_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("Data_Entry_2017.csv").write_text("Image Index,Finding Labels,Patient ID\na,Mass,1\n")
    assert main(["compare", "Data_Entry_2017.csv", "released", "--dataset_dir", "."]) == 1
    assert "monai-afire data table --root ." in capsys.readouterr().err
    Path("labels.csv").write_text("image;label\na.png;1\n")
    assert wrong_words("compare", ["labels.csv", "released"]) is None


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused() -> None:
    Path("locked").mkdir(mode=0o500)
    assert "no permission" in str(unwritable("locked/new"))


def test_names_are_those_of_the_audit() -> None:
    assert tuple(check.name for check in OF_THE_AUDIT) == CHECKS
    assert tuple(check.name for check in OF_THE_AUDIT if check.excludes) == EXCLUDED


def test_names_are_those_of_compare() -> None:
    assert set(ENCODERS) == {"untrained", IMAGENET, *released_files.ENCODERS}
    assert FIELDS_OF_VIEW == field_of_view.FIELDS_OF_VIEW
