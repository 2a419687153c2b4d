# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Commands in the spelling by which this process was started: ``monai-afire run``, MONAI's own, or ``torchrun``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from monai_afire.apps.runs.config_entries import text_of
from monai_afire.utils.distributed import is_launched
from monai_afire_cli.bundles.bundle import bundle_word
from monai_afire_cli.options.words import passed_word
from monai_afire_cli.process.starting import DOOR, config_word, quoted, shown

__all__ = ["MONAI", "files_text", "is_afire", "launched", "option_text", "run_text"]

MONAI = "python -m monai.bundle run"
"""MONAI's own command."""
_AFIRE = "monai-afire run"
_DEFAULT_PORT = 29400  # of torchrun's rendezvous
_NULL = "$None"


def is_afire() -> bool:
    """
    Whether ``monai-afire`` started this process, rather than MONAI's own command or another program.

    Example:
        >>> is_afire()
        False
    """
    return DOOR in os.environ and not is_launched()


def run_text(files: Sequence[str], options: Mapping[str, str]) -> str:
    """
    A command that runs a bundle.

    Args:
        files: of the config, each of which changes those before it; none for a command without any.
        options: name -> the word that MONAI gets, see :func:`monai_afire_cli.options.words.passed_word`.

    Returns:
        One line for a shell.

    Example:
        >>> run_text(["a.json", "b.json"], {"name": "ward 3"})
        'python -m monai.bundle run --config_file "[\\'a.json\\',\\'b.json\\']" --name \\'ward 3\\''
    """
    if is_afire() and files:
        kept = {name: word for name, word in options.items() if not _is_root(name, word, files[0])}
        texts = [_option(name, _written(name, word)) for name, word in kept.items()]
        return " ".join([_AFIRE, bundle_word(_bundle(files[0])), files_text(files), *texts])
    words = ["--config_file", config_word(files)] if files else []
    for name, word in options.items():
        words += [f"--{name}", word]
    return f"{MONAI} {shown(words)}"


def launched(command: str) -> str:
    """
    MONAI's own command as ``torchrun`` started it, on as many processes and machines.

    Args:
        command: begins with :data:`MONAI`.

    Returns:
        The same with ``torchrun``; unchanged where another launcher, or none, started this process.

    Example:
        >>> launched("python -m monai.bundle run --resume True")
        'python -m monai.bundle run --resume True'
    """
    settings = os.environ
    if "TORCHELASTIC_RUN_ID" not in settings:
        return command
    machines = int(settings.get("GROUP_WORLD_SIZE", "1"))
    words = ["torchrun", "--standalone"]
    if machines > 1:
        endpoint = f"{settings['MASTER_ADDR']}:{_DEFAULT_PORT}"
        meeting = ["--rdzv-backend", "c10d", "--rdzv-id", settings["TORCHELASTIC_RUN_ID"]]
        words = ["torchrun", "--nnodes", str(machines), *meeting, "--rdzv-endpoint", endpoint]
    words += ["--nproc-per-node", settings["LOCAL_WORLD_SIZE"]]
    restarts = settings.get("TORCHELASTIC_MAX_RESTARTS", "0")
    if restarts != "0":
        words += ["--max-restarts", restarts]
    return command.replace("python", shown(words), 1)


def option_text(name: str, value: str) -> str:
    """
    One option with its value, for a shell.

    Args:
        name: of the option.
        value: as a person writes it.

    Example:
        >>> option_text("name", "2024")
        '--name "$\\'2024\\'"'
    """
    return _option(name, value) if is_afire() else f"--{name} {quoted(passed_word(name, value))}"


def files_text(files: Sequence[str]) -> str:
    """
    Configs of one run, for a shell.

    Args:
        files: of the config, one or more.

    Example:
        >>> print(files_text(["a.json", "b.json"]))
        "['a.json','b.json']"
    """
    if is_afire():
        return shown([_config_word(path, _bundle(files[0])) for path in files])
    return quoted(config_word(files))


def _bundle(config: str) -> Path:
    """Folder of the bundle that has a config."""
    return Path(os.path.abspath(config)).parents[1]


def _config_word(path: str, bundle: Path) -> str:
    """A config by its name in the bundle, another one by a path that is no such name."""
    folder = bundle / "configs"
    absolute = Path(os.path.abspath(path))
    if absolute.suffix == ".json" and absolute.is_relative_to(folder):
        return absolute.relative_to(folder).with_suffix("").as_posix()
    return path if os.path.dirname(path) else os.path.join(".", path)


def _is_root(name: str, word: str, config: str) -> bool:
    """Whether an option names the bundle's folder, as ``monai-afire run`` does by itself."""
    return name == "bundle_root" and Path(text_of(word)).resolve() == _bundle(config).resolve()


def _written(name: str, word: str) -> str:
    """What a person writes for ``monai-afire run`` to pass a word on."""
    plain = "null" if word == _NULL else str(text_of(word))
    return plain if passed_word(name, plain) == word else word


def _option(name: str, word: str) -> str:
    """An option, whose value may begin with a hyphen."""
    return f"--{name}={quoted(word)}" if word.startswith("-") else f"--{name} {quoted(word)}"
