# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Numbers for JSON files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def json_safe(value: Any) -> Any:
    """What JSON can hold: the numbers of arrays and tensors, texts as keys, None for NaN and infinity."""
    if isinstance(value, Mapping):
        return {str(name): json_safe(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(each) for each in value]
    if hasattr(value, "tolist"):
        return json_safe(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
