# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Text of messages: a few of many things, the name of an item."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

__all__ = ["first_few", "image_name", "known_text"]


def first_few(texts: Iterable[object], shown: int = 5) -> str:
    """
    Name the first few of many things in a message, and count the others.

    Args:
        texts: the things, as text or with a text.
        shown: largest number of those that are named.

    Returns:
        One line, empty if there is nothing.

    Example:
        >>> first_few(range(1205)), first_few(["a", "b"])
        ('0, 1, 2, 3, 4 and 1,200 more', 'a, b')
    """
    everything = [str(text) for text in texts]
    more = len(everything) - shown
    return ", ".join(everything[:shown]) + (f" and {more:,} more" if more > 0 else "")


def image_name(item: Mapping[Any, Any], key: Hashable = "image") -> str:
    """
    Name an item in a message by its image, be it a file name or loaded from one.

    Args:
        item: of a datalist, or in the midst of its transforms.
        key: key of the image.

    Returns:
        The file, "an item" where it is not known.

    Example:
        >>> image_name({"image": "a.png"}), image_name({})
        ('a.png', 'an item')
    """
    image = item.get(key)
    meta = getattr(image, "meta", None)
    name = meta.get("filename_or_obj") if isinstance(meta, Mapping) else image
    return os.fspath(name) if isinstance(name, (str, os.PathLike)) else "an item"


def known_text(value: Any) -> str:
    """
    Text of a table's cell, empty for what an empty cell is read as: None, NaN, an empty text.

    Args:
        value: of the cell.

    Returns:
        The text.

    Example:
        >>> known_text(7), known_text(float("nan"))
        ('7', '')
    """
    return "" if value is None or value != value else str(value)
