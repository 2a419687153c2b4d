# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What somebody meant who wrote a wrong name."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """
    A question after the nearest of some names.

    Example:
        >>> did_you_mean("releasd", ["released", "paper"])
        "; did you mean 'released'?"
    """
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
