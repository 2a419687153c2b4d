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
    audit_parser,
    compare_parser,
    watch_parser,
)

__all__ = ["wrong_words"]

_READ = ("dataset_dir", "datalist", "folder", "calibrate", "ckpt_path")


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
    "watch": (watch_parser, _wrong_watch),
}
