# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loader of the remaining batches of an interrupted epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tqdm import tqdm  # that of tqdm.auto starts a loader's workers twice

__all__ = ["RemainingBatches"]


class RemainingBatches:
    """
    A loader whose first pass leaves out the first batches; ignite counts them as done, but would load them again.

    They are loaded and dropped, so that the order of the images and the random transforms of the following batches are
    those of a whole pass.

    Args:
        loader: gives the batches.
        num_done: batches to leave out.
        after_skipping: called when they are through, before the next one is loaded.

    Example:
        >>> batches = RemainingBatches([1, 2, 3], num_done=2)
        >>> list(batches), list(batches)
        ([3], [1, 2, 3])
    """

    def __init__(self, loader: Iterable, num_done: int, after_skipping: Callable[[], None] | None = None) -> None:
        self.whole = loader
        self.num_done = num_done
        self.after_skipping = after_skipping

    def __iter__(self) -> Iterator[Any]:
        num_done, self.num_done = self.num_done, 0
        batches = iter(self.whole)
        for _ in tqdm(range(num_done), desc="skipping batches that are done", delay=3.0, leave=False):
            next(batches)
        if num_done and self.after_skipping is not None:
            self.after_skipping()
        yield from batches
