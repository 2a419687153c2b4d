# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Seeds that depend on run, epoch and rank, and random numbers that leave no trace."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from ignite.engine import Engine, Events
from monai.data.utils import set_rnd

from monai_afire.utils.device import accelerator_kind
from monai_afire.utils.distributed import global_rank


@dataclass(eq=False)
class EpochSeed:
    """
    Seed everything random anew at the start of each epoch, from (seed, epoch, rank), so that the processes of a
    distributed run draw different lesions and distortions.

    Covers Python, NumPy and PyTorch (all devices), MONAI's random transforms of the data set, and generators handed
    over. Shuffling (but that of a ``DistributedSampler``, which has a seed of its own, the same for all ranks) and the
    seeds of loader workers follow from PyTorch's. So the random state of an epoch needs no
    saving: resuming after epoch n gives the same epoch n + 1 as going on. Works with loaders that start their workers
    anew each epoch (``persistent_workers=False``, the default) and epochs that are one pass over the loader.

    Args:
        seed: the run's seed.
        generators: objects with ``manual_seed``, e.g. ``torch.Generator``.
        constant: True draws the same in every epoch and on every rank, for validation.
    """

    seed: int = 0
    generators: Sequence[torch.Generator] = ()
    constant: bool = False

    def attach(self, engine: Engine) -> None:
        """Register with an engine."""
        engine.add_event_handler(Events.EPOCH_STARTED, self)

    def __call__(self, engine: Engine) -> None:
        """Seed for the engine's current epoch."""
        epoch, rank = (0, 0) if self.constant else (engine.state.epoch, global_rank())
        # SeedSequence mixes the three numbers, so that neighboring seeds and epochs share nothing
        sequence = np.random.SeedSequence([self.seed, epoch, rank])
        value, *generator_values = (
            int(state) for state in sequence.generate_state(1 + len(self.generators))
        )
        random.seed(value)
        np.random.seed(value)  # noqa: NPY002  third-party transforms use the global state
        torch.manual_seed(value)
        for generator, generator_value in zip(self.generators, generator_values, strict=True):
            generator.manual_seed(generator_value)
        dataset = getattr(engine.state.dataloader, "dataset", None)
        if dataset is not None:
            set_rnd(dataset, seed=value)


@contextmanager
def unchanged_random_state() -> Iterator[None]:
    """Restore the state at the end: loaders draw the seeds of their workers from it, and transforms their numbers."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  third-party transforms use the global state
    kind = accelerator_kind()
    devices = [] if kind is None else list(range(torch.get_device_module(kind).device_count()))
    try:
        with torch.random.fork_rng(devices, device_type=kind or "cuda"):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
