# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""How far a saved run is, and how it goes on with other batches or processes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from monai_afire.utils.distributed import global_rank, world_size

__all__ = ["batches_done", "dealing_of", "follow_dealing", "is_dealt_alike", "processes", "saved_dealing"]

logger = logging.getLogger(__name__)


def batches_done(iteration: int, epoch_length: int | None) -> int:
    """
    Batches of an epoch that is not complete yet.

    Args:
        iteration: batches since the beginning.
        epoch_length: batches of an epoch, None where it has no length.

    Returns:
        0 between two epochs, or where an epoch has no length.

    Example:
        >>> batches_done(7, 5), batches_done(10, 5)
        (2, 0)
    """
    return iteration % epoch_length if epoch_length else 0


def dealing_of(loader: Any) -> dict[str, int | None]:
    """
    How the images are dealt to the processes of this run.

    Args:
        loader: of the training.

    Returns:
        ``processes``, ``batch_size`` of each, and ``batches`` of an epoch; None where the loader does not tell.

    Example:
        >>> dealing_of([1, 2, 3])
        {'processes': 1, 'batch_size': None, 'batches': 3}
    """
    loader = getattr(loader, "whole", loader)  # the rest of an epoch belongs to a whole one
    batches = len(loader) if hasattr(loader, "__len__") else None
    return {"processes": world_size(), "batch_size": getattr(loader, "batch_size", None), "batches": batches}


def saved_dealing(state: Mapping[str, Any]) -> dict[str, int | None]:
    """
    How the images were dealt in the run that wrote a checkpoint.

    Args:
        state: content of the checkpoint; those of older versions tell less.

    Returns:
        As :func:`dealing_of`.
    """
    unknown = {"processes": len(state["random_states"]) if "random_states" in state else None, "batch_size": None}
    return {**state.get("dealing", unknown), "batches": state["trainer"]["epoch_length"]}


def is_dealt_alike(then: Mapping[str, int | None], now: Mapping[str, int | None]) -> bool:
    """
    Whether the rest of an epoch can be the one that was interrupted.

    Args:
        then: the dealing of the checkpoint.
        now: that of this run.

    Returns:
        False when the epoch has another length, or the run another number of processes.
    """
    return all(then[name] == now[name] for name in ("processes", "batches"))


def follow_dealing(engine: Any, then: Mapping[str, int | None], now: Mapping[str, int | None]) -> None:
    """
    Count the complete epochs as if they had had as many batches as those to come: so do the schedules.

    Says so where anything has changed, and what has become of the global batch.

    Args:
        engine: the trainer with its progress restored.
        then: the dealing of the checkpoint.
        now: that of this run.
    """
    changes = []
    if _changed(then, now, "processes"):
        changes.append(f"{processes(now['processes'])} now, {then['processes']} in the checkpoint{_global(then, now)}")
    if _changed(then, now, "batches"):
        changes.append(
            f"an epoch has {now['batches']} batches now, {then['batches']} in the checkpoint (another batch size, "
            "other images or processes): progress and schedules follow the new length"
        )
        engine.state.epoch_length = now["batches"]
        engine.state.iteration = engine.state.epoch * now["batches"]
    if global_rank() == 0:
        for change in changes:
            logger.warning(change)


def processes(count: int | None) -> str:
    """
    A number of processes in words.

    Args:
        count: the number, None where it is not known.

    Returns:
        The words.

    Example:
        >>> processes(1), processes(2)
        ('one process', '2 processes')
    """
    return "one process" if count == 1 else f"{count} processes"


def _changed(then: Mapping[str, int | None], now: Mapping[str, int | None], name: str) -> bool:
    return None not in (then[name], now[name]) and then[name] != now[name]


def _global(then: Mapping[str, int | None], now: Mapping[str, int | None]) -> str:
    """What has become of the global batch, if it is known."""
    old, new = (
        dealing["processes"] * dealing["batch_size"] if dealing["processes"] and dealing["batch_size"] else 0
        for dealing in (then, now)
    )
    if not old or not new:
        return ""
    if old == new:
        return f": the global batch of {new} images is kept"
    fitting, rest = divmod(old, now["processes"] or 1)
    remedy = f" (--batch_size {fitting} keeps it)" if fitting and not rest else ""
    return f": the global batch is {new} images now, {old} before{remedy}"
