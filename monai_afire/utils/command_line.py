# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Values as they come from a command line."""

from __future__ import annotations

__all__ = ["as_bool"]


def as_bool(value: bool | int | str) -> bool:
    """
    Read a switch of a bundle's config.

    ``python -m monai.bundle run --resume false`` hands over the text "false", which Python takes for true.

    Args:
        value: a bool, 0 or 1, or one of the words true, false, yes, no, on, off in any case.

    Returns:
        The bool.

    Raises:
        ValueError: for anything else.

    Example:
        >>> as_bool("false"), as_bool("True"), as_bool(False)
        (False, True, False)
    """
    word = str(value).strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    if word in ("false", "0", "no", "off"):
        return False
    raise ValueError(f"expected true or false, got {value!r}")
