# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options in words, for a terminal."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from typing import Any

from monai_afire.apps.runs.call import BundleCall
from monai_afire.apps.runs.config_entries import is_computed, top_level
from monai_afire.apps.runs.door import MONAI, is_afire
from monai_afire.apps.runs.options.declarations import SECTIONS
from monai_afire.apps.runs.options.option import Option

__all__ = ["describe_default", "help_text"]

_MARGIN = 32
_FOLDER = re.compile(r"\$@(\w+) \+ '(/[\w./]*)'")
_DESCRIBED = re.compile(r"\$monai_afire\.networks\.described\(@(\w+), '\w+', (\w+)\)")


def help_text(call: BundleCall) -> str:
    """
    The options that a config reads: name, default, meaning and values.

    Args:
        call: the start that asked for help.

    Returns:
        Lines as wide as the terminal.

    Example:
        >>> call = BundleCall({"train.json": {"epochs": 9, "run": ["$print(@epochs)"]}})
        >>> print(help_text(call).split("Training\\n")[1].split("\\n\\n")[0])
          --epochs 9                    passes over the training images (a whole number >= 1)
    """
    start = "monai-afire run NAME CONFIG ..." if is_afire() else f"{MONAI} --config_file FILE"
    usage = f"usage: {start} [--OPTION VALUE ...]"
    blocks = [usage, "Options with their defaults:"]
    for section, options in SECTIONS.items():
        read = [
            option
            for option in options
            if option.name in call.files and top_level(option.name) in call.read_names
        ]
        if read:
            blocks.append(
                "\n".join([section, *(_entry(option, call.files[option.name]) for option in read)])
            )
    blocks.append(
        "Any other entry of the config can be given, too, e.g. --train::trainer::max_epochs 3"
    )
    return "\n\n".join(blocks)


def describe_default(value: Any) -> str:
    """
    A config's value as a person would write it.

    Example:
        >>> describe_default("$@bundle_root + '/models'"), describe_default(None), describe_default(True)
        ('<bundle_root>/models', 'null', 'true')
    """
    if isinstance(value, str) and (folder := _FOLDER.fullmatch(value)):
        return f"<{folder[1]}>{folder[2]}"
    if isinstance(value, str) and (described := _DESCRIBED.fullmatch(value)):
        return f"{described[2].lower()} (or that of {described[1]})"
    if is_computed(value):
        return f"({value['_target_'] if isinstance(value, dict) else value.lstrip('$')})"
    is_word = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    return str(value) if is_word else json.dumps(value)


def _entry(option: Option, default: Any) -> str:
    width = max(60, min(shutil.get_terminal_size().columns, 120))
    head = f"  --{option.name} {describe_default(default)}"
    text = textwrap.wrap(f"{option.meaning} ({option.values})", width - _MARGIN)
    if len(head) < _MARGIN:
        head, text = head.ljust(_MARGIN) + text[0], text[1:]
    lines = textwrap.wrap(
        head, width, subsequent_indent=" " * 6, break_long_words=False, drop_whitespace=False
    )
    return "\n".join([*lines, *(" " * _MARGIN + line for line in text)])
