# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pause of Python's garbage collection while very many small objects are built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """
    Pause Python's search for cyclic garbage while very many objects are made that all stay.

    The search walks over all objects again and again while their number grows: over the items of a datalist of
    800,000 images it takes two thirds of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
