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
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = ["bundle_command", "hand_over", "run_in", "shown"]


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
    names = [path.as_posix() for path in files]
    config = names[0] if len(names) == 1 else "[" + ",".join(map(repr, names)) + "]"
    return ["python", "-m", "monai.bundle", "run", "--config_file", config, *overrides]


def shown(command: Sequence[str]) -> str:
    """
    The command as one line for a shell.

    Example:
        >>> print(shown(["python", "-c", "['a','b']", "two words"]))
        python -c "['a','b']" 'two words'
    """
    return " ".join(map(_quoted, command))


def hand_over(command: Sequence[str]) -> int:
    """
    Become the command, so that signals and the exit status are its own.

    Args:
        command: words that begin with "python".

    Returns:
        The exit status, where a process cannot become another (Windows).

    Raises:
        OSError: when a folder here hides the package: Python looks there first.
    """
    found = PathFinder.find_spec("monai_afire", [os.getcwd(), *sys.path])
    if (
        found and found.origin is None
    ):  # a folder without __init__.py, such as a clone, and an editable installation
        raise OSError(
            f"the folder {Path('monai_afire').absolute()} hides the package: start in another folder"
        )
    words = [sys.executable, *command[1:]]
    sys.stdout.flush()
    if os.name == "posix":
        os.execv(sys.executable, words)
    return subprocess.run(words, check=False).returncode


def run_in(folder: Path, command: Sequence[str]) -> int:
    """
    Run the command in a folder and wait for it.

    Returns:
        The exit status; 130 after Ctrl-C, which the command gets, too.
    """
    sys.stdout.flush()
    with subprocess.Popen([sys.executable, *command[1:]], cwd=folder) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            return 130


def _quoted(word: str) -> str:
    """A list of files in double quotes, as the documentation writes it, rather than with each of its own escaped."""
    return f'"{word}"' if "'" in word and not re.search(r'["$`\\!]', word) else shlex.quote(word)
