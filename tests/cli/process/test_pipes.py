# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Output that nobody reads any more ends a command without a word, and other broken pipes do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from monai_afire_cli.process.pipes import until_unread


def unread(script: list[str], folder: Path) -> tuple[int, str]:
    """Exit status and error output of a program into whose output nobody looks."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        found = subprocess.run(
            [sys.executable, *script],
            cwd=folder,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=300,
        )
    finally:
        os.close(writer)
    return found.returncode, found.stderr


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words", [["list"], ["--help"], ["--version"], ["check", "."], ["run", "--help"]], ids=" ".join
)
def test_a_command_that_nobody_reads_ends_quietly(
    words: list[str],
    unbuffered: str,
    tmp_path: Path,
    repository_root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    for number in range(3):
        (tmp_path / f"{number}.json").write_text('{"run": ["$print(1)"]}')
    script = "import sys; sys.path.insert(0, sys.argv.pop(1)); import monai_afire_cli; sys.exit(monai_afire_cli.main())"
    status, errors = unread(["-c", script, str(repository_root), *words], tmp_path)
    assert errors == ""
    assert status in (0, 141)  # argparse ignores what it cannot print
    if "--" not in words[-1]:
        assert status == 141


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
@pytest.mark.parametrize(
    "module", ["runs", "audit", "compare", "experiments", "readers", "zoo", "worklist.watch"]
)
def test_every_subcommand_has_a_quiet_end(module: str, repository_root: Path) -> None:
    path = repository_root / "monai_afire/apps" / module.replace(".", "/")
    source = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__main__.py"
    assert "sys.exit(until_unread(main))" in source.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_options_that_nobody_reads_end_quietly(tmp_path: Path, repository_root: Path) -> None:
    configs = repository_root / "bundles/afire/configs"
    words = [str(configs / "metadata.json"), str(configs / "train.json")]
    script = (
        "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
        "runpy.run_module('monai_afire.apps.runs', run_name='__main__')"
    )
    status, errors = unread(["-W", "ignore", "-c", script, str(repository_root), *words], tmp_path)
    assert status == 141
    assert "BrokenPipe" not in errors
    assert "Traceback" not in errors


def test_another_broken_pipe_is_an_error() -> None:
    def command() -> int:
        raise BrokenPipeError("of a loader process")

    with pytest.raises(BrokenPipeError, match="loader"):
        until_unread(command)
