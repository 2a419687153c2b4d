# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What configs would run is listed completely and marked, and nothing of it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from monai.bundle import ConfigComponent, ConfigExpression

from monai_afire_cli import main
from monai_afire_cli.bundles.bundle import bundles_folder
from monai_afire_cli.bundles.code_in_configs import code_in_config, config_paths


def _reasons(folder: Path, **entries: Any) -> dict[str, str]:
    """Why each text of a config that is run is marked, by its place."""
    path = folder / "config.json"
    path.write_text(json.dumps(entries))
    return {code.id: code.reason for code in code_in_config(path)}


@pytest.mark.parametrize(
    "text",
    [
        "$import monai_afire",
        "$monai_afire.utils.device.default_device()",
        "$@bundle_root + '/models'",
        "$[item for item in @items if len(item) > @image_size // 2]",
        "$lambda section: torch.ones(section) * @network_def::width#0",
        "$print(monai_afire.__version__)",
        "$torch.random.fork_rng()",
    ],
)
def test_what_computes_is_listed_without_a_mark(tmp_path: Path, text: str) -> None:
    assert _reasons(tmp_path, entry=text) == {"entry": ""}


@pytest.mark.parametrize(
    ("entry", "place", "words"),
    [
        ("$import os", "entry", "package os"),
        ("$from subprocess import run", "entry", "package subprocess"),
        ("$os.system('rm -r /')", "entry", "package os"),
        ("$__import__('os').system('true')", "entry", "calls Python's __import__"),
        ("$eval('1')", "entry", "calls Python's eval"),
        ("$open('x', 'w')", "entry", "calls Python's open"),
        ("$torch.os.system('true')", "entry", "reaches Python's module os"),
        ("$().__class__.__bases__", "entry", "uses __"),
        ("$(lambda x: getattr(x, 'y'))(torch)", "entry", "calls Python's getattr"),
        ("$not python at all", "entry", "no Python"),
        ("%other.json::run", "entry", "another file"),
        ({"_target_": "os.system", "command": "true"}, "entry::_target_", "package os"),
        ({"_target_": "monai.utils.module.os.system"}, "entry::_target_", "module os"),
        (
            [{"deep": [{"_target_": "their_code.Network"}]}],
            "entry::0::deep::0::_target_",
            "package their_code",
        ),
        (
            {"_target_": "Compose", "_disabled_": "$exit()"},
            "entry::_disabled_",
            "calls Python's exit",
        ),
    ],
)
def test_what_does_more_is_marked(tmp_path: Path, entry: Any, place: str, words: str) -> None:
    assert words in _reasons(tmp_path, entry=entry)[place]


def test_nothing_that_monai_would_run_is_missing() -> None:
    """MONAI's own tests of what is a component or an expression, on every entry of our configs."""

    def runs(entry: Any) -> int:
        children = (
            entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ()
        )
        is_component = ConfigComponent.is_instantiable(
            entry
        ) and not ConfigExpression.is_expression(entry["_target_"])
        return int(ConfigExpression.is_expression(entry) or is_component) + sum(map(runs, children))

    for path in config_paths([str(bundles_folder())]):
        assert len(code_in_config(path)) == runs(json.loads(path.read_text()))


def test_the_command_lists_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trap = tmp_path / "trap"
    config = {"a": f"$open({str(trap)!r}, 'w')", "b": {"_target_": "Compose"}}
    (tmp_path / "stranger.json").write_text(json.dumps(config))
    assert main(["check", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(tmp_path / "stranger.json")
    assert [line[:4] for line in lines[1:3]] == ["  ! ", "    "]
    assert lines[-1].startswith("1 marked")
    assert not trap.exists()
    assert main(["check", str(bundles_folder() / "ace/configs/paper.json")]) == 0


def test_what_cannot_be_checked_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "config.yaml").write_text("a: 1")
    for name in ("broken.json", "config.yaml", "missing.json"):
        assert main(["check", str(tmp_path / name)]) == 1
        assert name in capsys.readouterr().err
