# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundle's folder is that of the config that runs, from whichever folder the command is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from monai_afire.apps.runs import bundle_root, start_bundle

_MONAI = "monai/bundle/__main__.py"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_bundle(folder: str) -> Path:
    configs = Path(folder, "configs")
    configs.mkdir(parents=True)
    (configs / "metadata.json").write_text("{}")
    return configs


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr(sys, "argv", [_MONAI, "run", *words])
    return bundle_root("afire")


def test_a_python_program_has_the_repository_s_bundle_or_its_own_folder() -> None:
    assert bundle_root("afire") == "."
    make_bundle("bundles/afire")
    assert bundle_root("afire") == "bundles/afire"


def test_a_command_has_the_bundle_of_its_config(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_bundle("bundles/afire")
    elsewhere = make_bundle("elsewhere/copy")
    assert run(monkeypatch, "--config_file", "bundles/afire/configs/train.json") == "bundles/afire"
    given = str(elsewhere / "train.json")
    assert run(monkeypatch, "--config_file", given) == "elsewhere/copy"
    absolute = str(tmp_path / given)
    assert run(monkeypatch, f"--config_file={absolute}") == str(tmp_path / "elsewhere/copy")
    monkeypatch.chdir("elsewhere/copy")
    assert run(monkeypatch, "--config_file", "configs/train.json") == "."


def test_a_config_of_the_user_s_own_leaves_the_bundle_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bundled = str(make_bundle("elsewhere/copy") / "train.json")
    files = f"['own.json','{bundled}']"
    assert run(monkeypatch, "--config_file", files) == "elsewhere/copy"
    assert run(monkeypatch, "--config_file", "own.json") == "."
    make_bundle("bundles/afire")
    assert run(monkeypatch, "--config_file", "own.json") == "bundles/afire"


def test_a_folder_that_hides_the_package_is_named_at_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in the folder of a clone: with an editable installation, Python finds the clone, which is no package."""
    configs = make_bundle("monai_afire/bundles/afire")
    (configs / "train.json").write_text("{}")
    words = [_MONAI, "run", "--config_file", str(configs / "train.json")]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr("monai_afire.apps.runs.start.stop_early", lambda: None)
    monkeypatch.setattr("monai_afire.apps.runs.start.show_cause_last", lambda: None)
    with pytest.raises(OSError, match=f"{tmp_path.name}/monai_afire hides the package"):
        start_bundle()
