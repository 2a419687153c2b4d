# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Ctrl-C while a command is loaded ends it in a line; a command that has its own way keeps it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from monai_afire_cli import command, main
from monai_afire_cli.process.interrupts import stopped_line

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows sends other signals")

ROOT = Path(__file__).parents[3]
INTERRUPT = "import signal; signal.raise_signal(signal.SIGINT)\n"
# what Ctrl-C does between the check of the words and the first line of the command
HAND_OVER = """
import os, signal
from monai_afire_cli.process import starting
# a shell starts what is in the background, such as all tests, with Ctrl-C ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
become = os.execve
def interrupted(*words):
    signal.raise_signal(signal.SIGINT)
    become(*words)
if {is_early}:
    os.execve = interrupted
starting.hand_over(["python", "-m", "monai.bundle", "run", "--name", "a b"], says_its_stop={says_its_stop})
"""


def handed_over(
    folder: Path,
    code: str,
    is_early: bool = False,
    says_its_stop: bool = True,
    script: str = HAND_OVER,
) -> subprocess.CompletedProcess:
    """Run a package in the place of MONAI's, whose command has this code."""
    package = folder / "monai" / "bundle"
    package.mkdir(parents=True)
    (folder / "monai" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(code)
    script = script.format(is_early=is_early, says_its_stop=says_its_stop)
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def is_stop_in_a_line(done: subprocess.CompletedProcess) -> bool:
    [line] = done.stderr.strip().splitlines()
    return done.returncode == 130 and line == stopped_line(is_run=True)


@pytest.mark.parametrize(
    "code",
    [
        INTERRUPT,
        "import pydoc; pydoc.locate('interrupts')",  # as MONAI finds what a config names
        "try:\n    import interrupts\nexcept BaseException as error:\n    raise OSError from error",
    ],
)
def test_an_interrupt_of_what_is_loaded_is_one_line(tmp_path: Path, code: str) -> None:
    (tmp_path / "interrupts.py").write_text(INTERRUPT)
    assert is_stop_in_a_line(handed_over(tmp_path, code))


def test_an_interrupt_before_python_runs_the_command_is_not_lost(tmp_path: Path) -> None:
    done = handed_over(tmp_path, "print('runs')", is_early=True)
    assert is_stop_in_a_line(done)
    assert done.stdout == ""


@pytest.mark.parametrize(
    "code",
    [
        "import signal; signal.raise_signal(signal.SIGTERM)\n",
        "import pydoc; pydoc.locate('interrupts')",
    ],
)
def test_a_termination_of_what_is_loaded_is_one_line(tmp_path: Path, code: str) -> None:
    (tmp_path / "interrupts.py").write_text(INTERRUPT.replace("SIGINT", "SIGTERM"))
    done = handed_over(tmp_path, code)
    assert (done.returncode, done.stderr.strip()) == (143, stopped_line(True, "SIGTERM"))


def test_a_termination_before_python_runs_the_command_is_not_lost(tmp_path: Path) -> None:
    script = HAND_OVER.replace("raise_signal(signal.SIGINT)", "raise_signal(signal.SIGTERM)")
    done = handed_over(tmp_path, "print('runs')", is_early=True, script=script)
    assert (done.returncode, done.stderr.strip()) == (143, stopped_line(True, "SIGTERM"))
    assert done.stdout == ""


@pytest.mark.parametrize("code", [130, 143])
def test_a_stop_that_was_said_keeps_its_exit_code(tmp_path: Path, code: int) -> None:
    """MONAI finds what a config names by pydoc, which makes an error of whatever ends an import."""
    (tmp_path / "stops.py").write_text(
        f"import sys; print('said', file=sys.stderr); sys.exit({code})"
    )
    hook = "import sys; sys.excepthook = lambda *_: print('traceback', file=sys.stderr)\n"
    done = handed_over(tmp_path, hook + "import pydoc; pydoc.locate('stops')")
    assert (done.returncode, done.stderr) == (code, "said\n")


def test_a_command_keeps_its_own_way(tmp_path: Path) -> None:
    handler = "import signal, sys; signal.signal(signal.SIGINT, lambda *_: sys.exit(7))\n"
    assert handed_over(tmp_path / "a", handler + INTERRUPT).returncode == 7
    hook = "import sys; sys.excepthook = lambda *_: print('in own words', file=sys.stderr)\n"
    assert handed_over(tmp_path / "b", hook + INTERRUPT).stderr == "in own words\n"
    other = handed_over(tmp_path / "c", INTERRUPT, says_its_stop=False)
    assert "Traceback" in other.stderr
    mistake = handed_over(tmp_path / "d", "raise OSError('full')")
    assert mistake.returncode == 1
    assert mistake.stderr.endswith("OSError: full\n")


def test_a_command_sees_the_words_of_python_m(tmp_path: Path) -> None:
    code = "import atexit, sys\nprint(*sys.argv, sep='|')\natexit.register(lambda: print(*sys.argv, sep='|'))\n"
    told = handed_over(tmp_path, code + "print(__spec__.name); sys.exit(5)")
    assert told.returncode == 5
    words = f"{tmp_path}/monai/bundle/__main__.py|run|--name|a b"
    assert told.stdout.splitlines() == [words, "monai.bundle.__main__", words]


@pytest.mark.parametrize(
    "module", ["command", "bundles.bundle", "subcommands.parsers", "process.starting"]
)
def test_an_interrupt_while_the_command_loads_its_own_parts_is_one_line(module: str) -> None:
    script = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupt:
    def find_spec(self, name, *_):
        if name == "monai_afire_cli.{module}":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from monai_afire_cli import main
sys.exit(main(["list"]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr.strip()) == (130, stopped_line(is_run=False))


def test_the_command_itself_ends_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "find_bundle", interrupt)
    for words in (["run", "afire", "train"], ["copy", "afire"]):
        assert main(words) == 130
        said = capsys.readouterr().err.strip()
        assert said == stopped_line(is_run=words[0] == "run")


def test_other_configs_than_the_packages_keep_what_python_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may have written something when Ctrl-C comes."""
    own = tmp_path / "own.json"
    own.write_text('{"run": []}')
    told: list[bool] = []
    monkeypatch.setattr(command, "hand_over", lambda _, says_its_stop: told.append(says_its_stop))
    monkeypatch.chdir(tmp_path)
    main(["run", "afire", "train"])
    main(["run", "afire", "./own.json"])
    assert told == [True, False]
