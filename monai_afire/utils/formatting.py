# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Numbers for JSON files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def json_safe(value: Any) -> Any:
    """Turn values into what JSON can hold."""
    if hasattr(value, "tolist"):  # arrays and tensors; a number if they have no dimension
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): json_safe(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
