# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Text of messages: a few of many things, the name of an item."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what spreadsheets run (OWASP, CSV injection)


def first_few(texts: Iterable[object], shown: int = 5) -> str:
    """Name the first few of many things in a message, and count the others."""
    everything = [str(text) for text in texts]
    more = len(everything) - shown
    return ", ".join(everything[:shown]) + (f" and {more:,} more" if more > 0 else "")


def image_name(item: Mapping[Any, Any], key: Hashable = "image") -> str:
    """Name an item in a message by its image, be it a file name or loaded from one."""
    image = item.get(key)
    meta = getattr(image, "meta", None)
    name = meta.get("filename_or_obj") if isinstance(meta, Mapping) else image
    return os.fspath(name) if isinstance(name, (str, os.PathLike)) else "an item"


def known_text(value: Any) -> str:
    """
    Text of a table's cell without blanks around it, "" for what means unknown.

    Args:
        value: any; a whole number is one also as 13.0.

    Returns:
        The text, "" for None, NaN and the words "unknown" and "nan".

    Example:
        >>> known_text(57.0), known_text(" PA "), known_text("Unknown"), known_text(None)
        ('57', 'PA', '', '')
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "" if value is None else str(value).strip()
    return "" if text.lower() in ("unknown", "nan") else text


def harmless(text: str) -> str:
    """
    Text of others as a table has it: no spreadsheet runs it as a formula.

    Args:
        text: a name, or an element of a header.

    Returns:
        The text, after an apostrophe where it begins like a formula.

    Example:
        >>> harmless("=1+1"), harmless("a.png")
        ("'=1+1", 'a.png')
    """
    return f"'{text}" if text.startswith(_FORMULA) else text
