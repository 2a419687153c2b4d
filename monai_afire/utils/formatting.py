# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Numbers for JSON files."""

from __future__ import annotations

import math
from typing import Any

from monai_afire.utils.nested import map_nested


def json_safe(value: Any) -> Any:
    """Turn values into what JSON can hold."""
    return map_nested(_json_value, value)


def _json_value(value: Any) -> Any:
    """Of an array or tensor its numbers, None for NaN and infinity."""
    if hasattr(value, "tolist"):
        return json_safe(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
