# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Commands of other programs: as a person would type them, and started."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.machinery import PathFinder
from pathlib import Path

from monai_afire_cli.process.interrupts import INTERRUPTED_EXIT_CODE, hold_interrupts

__all__ = ["DOOR", "bundle_command", "config_word", "hand_over", "quoted", "run_in", "shown"]

DOOR = "MONAI_AFIRE_DOOR"
"""Variable of the environment of what ``monai-afire`` started, which prints commands in the same spelling."""

# what a shell changes within double quotes: there a $ before a single quote is none of it
_SPECIAL_WITHIN = re.compile(r"""["`!]|\$(?!')|\\(?=[\\$]|$)""")
_STARTER = ["-m", "monai_afire_cli.process.first_seconds"]
_WAIT_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def bundle_command(files: Sequence[Path], overrides: Sequence[str]) -> list[str]:
    """
    Words of ``python -m monai.bundle run``.

    Args:
        files: of the config, each of which changes those before it.
        overrides: further words.

    Example:
        >>> bundle_command([Path("a.json"), Path("b.json")], ["--epochs", "3"])
        ['python', '-m', 'monai.bundle', 'run', '--config_file', "['a.json','b.json']", '--epochs', '3']
    """
    config = config_word([path.as_posix() for path in files])
    return ["python", "-m", "monai.bundle", "run", "--config_file", config, *overrides]


def config_word(names: Sequence[str]) -> str:
    """
    Names of config files as one word of a command line, which Fire reads as Python.

    Args:
        names: of the files.

    Example:
        >>> config_word(["a.json"]), config_word(["ward #3/a.json"]), config_word(["a.json", "b.json"])
        ('a.json', "['ward #3/a.json']", "['a.json','b.json']")
    """
    is_plain = len(names) == 1 and re.fullmatch(r"[\w./][\w./-]*", names[0], re.ASCII)
    return names[0] if is_plain else "[" + ",".join(map(repr, names)) + "]"


def shown(command: Sequence[str]) -> str:
    """
    The command as one line for a shell.

    Example:
        >>> print(shown(["python", "-c", "['a','b']", "two words"]))
        python -c "['a','b']" 'two words'
    """
    return " ".join(map(quoted, command))


def quoted(word: str) -> str:
    """
    One word for a shell. With single quotes in it, it stands in double quotes, rather than with each one escaped.

    Example:
        >>> print(quoted("a b"), quoted("['a','b']"), quoted("$'2024'"))
        'a b' "['a','b']" "$'2024'"
    """
    is_plain_within = "'" in word and not _SPECIAL_WITHIN.search(word)
    return f'"{word}"' if is_plain_within else shlex.quote(word)


def check_package() -> None:
    """
    Refuse to start where a folder hides the package, such as beside a clone, with an editable installation.

    Raises:
        OSError: when the current folder has a folder ``monai_afire`` that is no package: Python looks there first.
    """
    found = PathFinder.find_spec("monai_afire", [os.getcwd(), *sys.path])
    if found and found.origin is None:
        folder = Path("monai_afire").absolute()
        raise OSError(
            f"the folder {folder} hides the package: start in another folder, such as that one"
        )


def hand_over(command: Sequence[str], says_its_stop: bool = True) -> int:
    """
    Become the command, so that signals and the exit status are its own.

    Args:
        command: words that begin with "python".
        says_its_stop: whether the command answers Ctrl-C in words once it is loaded; until then, this package does.

    Returns:
        The exit status, where a process cannot become another (Windows).

    Raises:
        OSError: see :func:`check_package`.
    """
    check_package()
    words = _process_words(command) if says_its_stop else [sys.executable, *command[1:]]
    sys.stdout.flush()
    if os.name == "posix":
        with hold_interrupts() if words[1:3] == _STARTER else nullcontext():
            os.execve(sys.executable, words, _environment())
    return subprocess.run(words, check=False, env=_environment()).returncode


def run_in(folder: Path, command: Sequence[str]) -> int:
    """
    Run the command in a folder and wait for it.

    Returns:
        The exit status; 130 after Ctrl-C, which the command gets, too.
    """
    sys.stdout.flush()
    words = _process_words(command)
    with subprocess.Popen(words, cwd=folder, env=_environment()) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            return INTERRUPTED_EXIT_CODE


def _process_words(command: Sequence[str]) -> list[str]:
    """Words of the process of a command; a module runs so that Ctrl-C is answered while it is loaded."""
    words = [sys.executable, *command[1:]]
    return [words[0], *_STARTER, *words[2:]] if words[1] == "-m" else words


def _environment() -> dict[str, str]:
    """
    The environment of a command: it knows that it was started by ``monai-afire``, and its threads wait without using a
    core, unless someone chose how they wait.

    By default each thread of OpenMP spins until the others are done. Where another program uses one of the cores, all
    then wait for a thread that does not run. The setting is read when PyTorch is loaded, so it must stand there before.
    """
    environment = {**os.environ, DOOR: "1"}
    if not any(name in environment for name in _WAIT_SETTINGS):
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
    return environment
