# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Wrong words of commands that load PyTorch, which are refused before that takes its seconds."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from monai_afire_cli.options.suggestions import did_you_mean
from monai_afire_cli.options.table_hint import no_datalist, table_columns
from monai_afire_cli.options.wrong_values import unwritable
from monai_afire_cli.runs.weights_of import wrong_detector
from monai_afire_cli.subcommands.parsers import (
    ENCODER_WORDS,
    ENCODERS,
    SETS,
    audit_parser,
    compare_parser,
    data_parser,
    watch_parser,
)

__all__ = ["wrong_words"]

_READ = ("dataset_dir", "datalist", "folder", "calibrate", "ckpt_path", "root", "labels")
_HELP = ("-h", "--help")


def wrong_words(command: str, words: Sequence[str]) -> str | None:
    """
    What a command cannot start with.

    Args:
        command: its name; those that load nothing slow, or have no words to check, are left to themselves.
        words: behind it.

    Returns:
        The problem; None for none.

    Raises:
        SystemExit: with code 2 for words that no option has, and with 0 after the help.

    Example:
        >>> wrong_words("audit", ["no_such_folder"])
        'no_such_folder: no such file or folder: check the name, or connect its disk'
    """
    if command not in _COMMANDS:
        return None
    if command == "data":
        if set(_HELP) & set(words):  # the readers have the help
            return None
        if problem := _unknown_set(words):
            return problem
    parser, wrong = _COMMANDS[command]
    options = vars(parser().parse_args(words))
    return _missing(options) or wrong(options)


def _missing(options: Mapping[str, Any]) -> str | None:
    """The problem of a path to read that is not there."""
    for name in _READ:
        path = options.get(name)
        if path is not None and not os.path.exists(os.path.expanduser(path)):
            return f"{path}: no such file or folder: check the name, or connect its disk"
    return None


def _wrong_audit(options: Mapping[str, Any]) -> str | None:
    return unwritable(options["output_dir"])


def _wrong_comparison(options: Mapping[str, Any]) -> str | None:
    if not _is_compared(options["datalist"]):
        return no_datalist(options["datalist"], options["dataset_dir"])
    unknown = filter(None, map(_unknown_encoder, options["encoders"]))
    return next(unknown, None) or unwritable(options["output_dir"])


def _wrong_watch(options: Mapping[str, Any]) -> str | None:
    run = options["weights_of"]
    return unwritable(options["output_dir"]) or (None if run is None else wrong_detector(run))


def _unknown_set(words: Sequence[str]) -> str | None:
    """The problem of a first word that is no public set."""
    name = next(iter(words), "-")
    if name.startswith("-") or name in SETS:
        return None
    meant = did_you_mean(name, list(SETS))
    return f"there is no set {name!r}: the sets are {', '.join(SETS)}{meant}"


def _no_table(options: Mapping[str, Any]) -> str | None:
    """The problem of a table that is in neither folder where its reader looks."""
    table = options.get("table")  # of one set
    if table is None:
        return None
    folders = [name for name in (options["labels"], options["root"]) if name]
    if any(Path(name).expanduser().joinpath(table).exists() for name in folders):
        return None
    return f"{table}: no such table in {' or '.join(folders)}: check the name, or set --labels to its folder"


def _is_compared(datalist: str) -> bool:
    """Whether a table has the columns that ``compare`` reads; a datalist is read by it."""
    path = Path(datalist).expanduser()
    is_list = no_datalist(datalist) is None
    return is_list or {"image", "label"} <= set(table_columns(path))


def _unknown_encoder(word: str) -> str | None:
    """The problem of a word that is neither a name, a file or folder, nor an encoder of another library."""
    source = word if os.path.exists(word) else word.partition("=")[2] or word
    file = os.path.expanduser(source.removesuffix(":random"))
    of_a_library = source.startswith(("hub:", "timm:"))
    if source in ENCODERS or of_a_library or os.path.exists(file):
        return None
    return f"no encoder {source!r}: give {ENCODER_WORDS}{did_you_mean(source, ENCODERS)}"


_COMMANDS: dict[
    str,
    tuple[Callable[[], argparse.ArgumentParser], Callable[[Mapping[str, Any]], str | None]],
] = {
    "audit": (audit_parser, _wrong_audit),
    "compare": (compare_parser, _wrong_comparison),
    "data": (data_parser, _no_table),
    "watch": (watch_parser, _wrong_watch),
}
