# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Properties that are computed when they are first asked for, also in a graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any


def computed_once(compute: Callable[[Any], Any]) -> property:
    """
    A property that is computed when it is first asked for, and then kept.

    ``functools.cached_property`` has a lock before Python 3.12, and at a lock torch.compile breaks its graph.
    """
    kept = f"_computed_{compute.__name__}"

    @wraps(compute)
    def value(self: Any) -> Any:
        if not hasattr(self, kept):
            setattr(self, kept, compute(self))
        return getattr(self, kept)

    return property(value)
