# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Values in dictionaries and lists within each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def map_nested(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to each value in dictionaries, lists and tuples; they become JSON's, with texts as keys."""
    if isinstance(value, Mapping):
        return {str(name): map_nested(function, each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [map_nested(function, each) for each in value]
    return function(value)
