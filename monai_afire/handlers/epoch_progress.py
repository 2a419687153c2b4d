# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Resuming within an epoch: the remaining batches, and changes in the number of batches or processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tqdm import tqdm  # that of tqdm.auto starts a loader's workers twice

from monai_afire.utils.distributed import global_rank, world_size

logger = logging.getLogger(__name__)


def batches_done(iteration: int, epoch_length: int | None) -> int:
    """Batches of an epoch that is not complete yet."""
    return iteration % epoch_length if epoch_length else 0


def epoch_division(loader: Any) -> dict[str, int | None]:
    """How an epoch is divided into batches and among processes; None where the loader does not say."""
    loader = getattr(loader, "whole", loader)  # the rest of an epoch belongs to a whole one
    batches = len(loader) if hasattr(loader, "__len__") else None
    return {
        "processes": world_size(),
        "batch_size": getattr(loader, "batch_size", None),
        "batches": batches,
    }


def saved_division(state: Mapping[str, Any]) -> dict[str, int | None]:
    """How an epoch was divided in the run that wrote a checkpoint; older ones say less."""
    unknown = {
        "processes": len(state["random_states"]) if "random_states" in state else None,
        "batch_size": None,
    }
    return {**state.get("dealing", unknown), "batches": state["trainer"]["epoch_length"]}


def has_same_batches(then: Mapping[str, int | None], now: Mapping[str, int | None]) -> bool:
    """Whether the batches are the same, so that a run can be resumed within an epoch."""
    return all(then[name] == now[name] for name in ("processes", "batches"))


def adapt_progress(
    engine: Any, then: Mapping[str, int | None], now: Mapping[str, int | None]
) -> None:
    """Count complete epochs as if they had the present number of batches, and warn of what has changed."""
    changes = []
    if _changed(then, now, "processes"):
        changes.append(
            f"{processes(now['processes'])} now, {then['processes']} in the checkpoint{_global(then, now)}"
        )
    if _changed(then, now, "batches"):
        changes.append(
            f"an epoch has {now['batches']} batches now, {then['batches']} in the checkpoint (another batch size "
            "or number of processes): progress and schedules follow the new length"
        )
        engine.state.epoch_length = now["batches"]
        engine.state.iteration = engine.state.epoch * now["batches"]
    if global_rank() == 0:
        for change in changes:
            logger.warning(change)


def processes(count: int | None) -> str:
    """A number of processes in words."""
    return "one process" if count == 1 else f"{count} processes"


def _changed(then: Mapping[str, int | None], now: Mapping[str, int | None], name: str) -> bool:
    return None not in (then[name], now[name]) and then[name] != now[name]


def _global_batch(division: Mapping[str, int | None]) -> int:
    """Images of all processes in a step; 0 where it is not known."""
    return (division["processes"] or 0) * (division["batch_size"] or 0)


def _global(then: Mapping[str, int | None], now: Mapping[str, int | None]) -> str:
    """How the global batch has changed, if both are known."""
    old, new = _global_batch(then), _global_batch(now)
    if not old or not new:
        return ""
    if old == new:
        return f": the global batch of {new} images is kept"
    fitting, rest = divmod(old, now["processes"] or 1)
    remedy = f" (--batch_size {fitting} keeps it)" if fitting and not rest else ""
    return f": the global batch is {new} images now, {old} before{remedy}"


class RemainingBatches:
    """A loader whose first pass leaves out the first batches; ignite counts them as done, but would load them again."""

    def __init__(
        self, loader: Iterable, num_done: int, after_skipping: Callable[[], None] | None = None
    ) -> None:
        self.whole = loader
        self.num_done = num_done
        self.after_skipping = after_skipping

    def __iter__(self) -> Iterator[Any]:
        num_done, self.num_done = self.num_done, 0
        batches = iter(self.whole)
        for _ in tqdm(
            range(num_done), desc="skipping batches that are done", delay=3.0, leave=False
        ):
            next(batches)
        if num_done and self.after_skipping is not None:
            self.after_skipping()
        yield from batches
