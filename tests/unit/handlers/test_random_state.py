# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Random draws depend on seed and epoch only."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from ignite.engine import Engine, Events
from monai.data import CacheDataset, DataLoader, Dataset
from monai.transforms import Compose, Lambdad, RandGaussianNoised

from monai_afire.handlers import EpochSeed
from monai_afire.transforms import SynthLesionMaskd

Draws = list[list[float]]


def draw_everything(
    seeder: EpochSeed, epochs: int, first: int = 1, generator: torch.Generator | None = None
) -> Draws:
    """One draw of each source of randomness in each epoch."""
    result: Draws = []

    def draw(engine: Engine, _: int) -> None:
        values = [random.random(), float(np.random.rand()), torch.rand(()).item()]  # noqa: NPY002
        result.append(values + ([torch.rand((), generator=generator).item()] if generator else []))

    engine = Engine(draw)
    seeder.attach(engine)
    if first > 1:
        engine.add_event_handler(Events.STARTED, lambda: setattr(engine.state, "epoch", first - 1))
    engine.run([0], max_epochs=epochs)
    return result


def test_epochs_differ_and_runs_repeat() -> None:
    own = torch.Generator()
    first = draw_everything(EpochSeed(3, generators=[own]), 4, generator=own)
    assert all(len(set(source)) == 4 for source in zip(*first, strict=True))
    torch.rand(5)  # what happened before does not matter
    assert draw_everything(EpochSeed(3, generators=[own]), 4, generator=own) == first
    assert draw_everything(EpochSeed(3, generators=[own]), 4, first=3, generator=own) == first[2:]
    assert draw_everything(EpochSeed(4, generators=[own]), 4, generator=own) != first


@pytest.mark.parametrize(("constant", "different"), [(False, 3), (True, 1)])
def test_ranks_differ_in_training_and_agree_in_validation(
    monkeypatch: pytest.MonkeyPatch, constant: bool, different: int
) -> None:
    draws = []
    for rank in range(3):
        monkeypatch.setattr("monai_afire.handlers.random_state.global_rank", lambda rank=rank: rank)
        engine: Any = Engine(lambda engine, _: None)
        seeder = EpochSeed(3, constant=constant)
        engine.state.epoch = 1
        seeder(engine)
        draws.append(torch.rand(()).item())
    assert len(set(draws)) == different


def test_neighboring_seeds_and_epochs_share_nothing() -> None:
    draws = [value[2] for seed in range(5) for value in draw_everything(EpochSeed(seed), 5)]
    assert len(set(draws)) == 25


def lesion_dataset(cached: bool) -> Dataset:
    items = [
        {"image": torch.linspace(0, 0.2 + 0.2 * i, 32 * 32).reshape(1, 32, 32)} for i in range(4)
    ]
    noise = RandGaussianNoised("image", prob=0.5, std=0.01)
    clamp = Lambdad("image", lambda image: image.clamp(0, 1))
    transform = Compose([noise, clamp, SynthLesionMaskd("image", num_masks=2)])
    if cached:
        return CacheDataset(items, transform, num_workers=0, progress=False)
    return Dataset(items, transform)


def run_loader(
    num_workers: int, cached: bool, epochs: int, resume_after: int = 0
) -> list[torch.Tensor]:
    """All lesion images of each epoch, in the loader's order."""
    data = lesion_dataset(cached)
    loader = DataLoader(data, batch_size=2, shuffle=True, num_workers=num_workers)
    batches: list[torch.Tensor] = []
    engine = Engine(lambda engine, batch: batches.append(torch.as_tensor(batch["lesion_image"])))
    EpochSeed(7).attach(engine)
    if resume_after:
        state = {"epoch": resume_after, "epoch_length": 2, "max_epochs": epochs}
        engine.add_event_handler(Events.STARTED, lambda: engine.load_state_dict(state))
    engine.run(loader, max_epochs=epochs)
    return [torch.cat(batches[i : i + 2]) for i in range(0, len(batches), 2)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loader_with_random_transforms_repeats_and_resumes(num_workers: int) -> None:
    cached = num_workers == 0
    first = run_loader(num_workers, cached, 3)
    assert not torch.equal(first[0], first[1])
    again = run_loader(num_workers, cached, 3)
    resumed = run_loader(num_workers, cached, 3, resume_after=2)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert len(resumed) == 1
    assert torch.equal(resumed[0], first[2])
