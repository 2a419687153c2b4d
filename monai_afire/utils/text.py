# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Text of messages: a few of many things, the name of an item."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable, Mapping
from traceback import walk_tb
from typing import Any

# what programs and people write into a cell that has no value
_UNKNOWN = {
    *("unknown", "none", "null", "nil", "-", "--", "?"),
    *("nan", "na", "n/a", "#n/a", "<na>", "n.a."),
}
# what labels call an image in which nothing is found, in lower case
_ABSENCE = {
    "no finding",
    "no findings",
    "nofinding",
    "nofindings",
    "without finding",
    "without findings",
    "normal",
    "healthy",
    "negative",
    "no abnormality",
    "no abnormalities",
    "no acute abnormality",
    "no acute findings",
    "no disease",
    "no pathology",
    "unremarkable",
    "within normal limits",
    # German, French, Spanish, Portuguese, Italian
    "kein befund",
    "ohne befund",
    "unauffällig",
    "sans anomalie",
    "aucune anomalie",
    "normale",
    "sin hallazgos",
    "sem achados",
    "nessun reperto",
    "nella norma",
}
# what MONAI's config parser reads as its language: in any text, and in one that is no expression of its own
_OF_MONAI = re.compile(r"^[@$%]|#|[@%]::")
_SEPARATOR = re.compile(r"^(?![@$%]).*#", re.DOTALL)
_LONGEST = 120  # characters of a message within a message
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what spreadsheets run (OWASP, CSV injection)


def first_few(texts: Iterable[object], shown: int = 5) -> str:
    """Name the first few of many things in a message, and count the others."""
    everything = [str(text) for text in texts]
    more = len(everything) - shown
    return ", ".join(everything[:shown]) + (f" and {more:,} more" if more > 0 else "")


def first_line(error: BaseException) -> str:
    """At most 120 characters of the first line of an error's message; its class where it says nothing."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = lines[0].rstrip(".:; ")
    return text if len(text) <= _LONGEST else text[:_LONGEST].rstrip() + "..."


def counted(number: int, one: str, many: str = "") -> str:
    """A number and what it counts: "1 image", "1,200 images"; ``many`` is the plural of other words."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def literal(value: Any, is_text: bool = True) -> Any:
    """
    A value that MONAI's config parser leaves as it is: in paths, "#" and a leading "@", "$" or "%" are its language.

    Args:
        value: a text, or a list or dictionary with texts in it; anything else is returned unchanged.
        is_text: False where a text that begins with "@", "$" or "%" is meant as a reference or an expression.

    Example:
        >>> print(literal("ward 3"), literal("ward #3"), literal("@home"), literal("@home", is_text=False))
        ward 3 $'ward \\x233' $'\\x40home' @home
    """
    if isinstance(value, dict):
        return {name: literal(below, is_text) for name, below in value.items()}
    if isinstance(value, (list, tuple)):
        return [literal(below, is_text) for below in value]
    if not isinstance(value, str) or not (_OF_MONAI if is_text else _SEPARATOR).search(value):
        return value
    quoted = repr(value)
    for sign in "#@%":
        quoted = quoted.replace(sign, f"\\x{ord(sign):02x}")
    return f"${quoted}"


def image_name(item: Mapping[Any, Any], key: Hashable = "image") -> str:
    """Name an item in a message by its image, be it a file name or loaded from one."""
    image = item.get(key)
    meta = getattr(image, "meta", None)
    name = meta.get("filename_or_obj") if isinstance(meta, Mapping) else image
    return os.fspath(name) if isinstance(name, (str, os.PathLike)) else "an item"


def known_text(value: Any) -> str:
    """
    Text of a table's cell without blanks around it, "" for what means unknown; 13.0 is 13, as a number or a text.

    Example:
        >>> known_text(57.0), known_text(" PA "), known_text("Unknown"), known_text("N/A"), known_text(None)
        ('57', 'PA', '', '', '')
    """
    text = "" if value is None else str(value).strip()
    whole, _, decimals = text.partition(".")
    if whole.isdecimal() and set(decimals) == {"0"}:
        text = whole
    return "" if text.casefold() in _UNKNOWN else text


def folded(word: str) -> str:
    """What a word means whatever its case, blanks, hyphens and underscores."""
    return " ".join(word.replace("_", " ").replace("-", " ").casefold().split())


def is_absence(word: str) -> bool:
    """
    Whether a word for a finding says that there is none, or nothing at all.

    Example:
        >>> [is_absence(word) for word in ("No finding", "normal", "NaN", "Nodule")]
        [True, True, True, False]
    """
    return not known_text(word) or folded(word) in _ABSENCE


def harmless(text: str) -> str:
    """Text of others as a table has it, after an apostrophe where a spreadsheet would run it as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def innermost_cause(error: BaseException) -> BaseException:
    """The error within those that MONAI's transforms and parser wrap around it: its message is for users."""
    while error.__cause__ is not None and _raised_in(error).startswith("monai."):
        error = error.__cause__
    return error


def _raised_in(error: BaseException) -> str:
    """Name of the module that raised an error; "" for none."""
    names = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    return names[-1] if names else ""
