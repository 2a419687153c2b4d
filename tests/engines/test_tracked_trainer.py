# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A trainer refuses to accumulate over more iterations than an epoch has, and scales gradients of float16."""

from __future__ import annotations

import pytest
import torch
from ignite.engine import Events
from torch import nn, optim

from monai_afire.engines import TrackedTrainer
from monai_afire.inferers import AutocastInferer


def trainer(num_batches: int, accumulation_steps: int) -> TrackedTrainer:
    network = nn.Linear(2, 1)
    return TrackedTrainer(
        device=torch.device("cpu"),
        max_epochs=1,
        network=network,
        loss_function=nn.MSELoss(),
        optimizer=optim.SGD(network.parameters(), lr=0.1),
        train_data_loader=[{"image": torch.rand(4, 2), "label": torch.rand(4, 1)}] * num_batches,
        accumulation_steps=accumulation_steps,
        decollate=False,
    )


def test_accumulation_beyond_an_epoch_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"accumulation_steps is 4, but an epoch has 3 iterations.* give at most 3"
    ):
        trainer(num_batches=3, accumulation_steps=4)


@pytest.mark.parametrize("accumulation_steps", [1, 2, 3])
def test_accumulation_within_an_epoch_runs(accumulation_steps: int) -> None:
    trainer(num_batches=3, accumulation_steps=accumulation_steps).run()


@pytest.mark.parametrize(("num_batches", "accumulation_steps"), [(5, 4), (5, 3), (7, 4), (4, 2)])
def test_each_step_has_the_gradient_of_all_its_images_as_one_batch(
    num_batches: int, accumulation_steps: int
) -> None:
    """Also the last step of each epoch, for which fewer batches may be left."""
    network = nn.Linear(3, 1)
    batches = [{"image": torch.rand(4, 3), "label": torch.rand(4, 1)} for _ in range(num_batches)]
    optimizer = optim.SGD(network.parameters(), lr=0.0)  # so that all gradients are at one point
    found = []
    optimizer.register_step_pre_hook(lambda *_: found.append(network.weight.grad.clone()))
    losses = []
    run = TrackedTrainer(
        device=torch.device("cpu"),
        max_epochs=2,
        network=network,
        loss_function=nn.MSELoss(),
        optimizer=optimizer,
        train_data_loader=batches,
        accumulation_steps=accumulation_steps,
        decollate=False,
    )
    run.add_event_handler(
        Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output["loss"].item())
    )
    run.run()
    expected = []
    for start in range(0, num_batches, accumulation_steps):
        group = batches[start : start + accumulation_steps]
        images, labels = (torch.cat([batch[key] for batch in group]) for key in ("image", "label"))
        loss = nn.functional.mse_loss(network(images), labels)
        expected.append(torch.autograd.grad(loss, network.weight)[0])
    torch.testing.assert_close(found, expected * 2)
    own = [
        nn.functional.mse_loss(network(batch["image"]), batch["label"]).item() for batch in batches
    ]
    assert losses == pytest.approx(own * 2)  # shown as they are


@pytest.mark.filterwarnings("ignore:.*GradScaler is enabled, but CUDA is not available")
@pytest.mark.parametrize("is_scaled", [True, False])
def test_gradients_too_small_for_float16_are_scaled(is_scaled: bool) -> None:
    """A gradient of 1e-8 is 0 in float16, whose smallest number is 6e-8."""
    network = nn.Linear(2, 1, bias=False)
    tiny = TrackedTrainer(
        device=torch.device("cpu"),
        max_epochs=1,
        network=network,
        loss_function=lambda output, label: 1e-8 * output.float().sum(),
        optimizer=optim.SGD(network.parameters(), lr=1e7),
        train_data_loader=[{"image": torch.ones(1, 2), "label": torch.ones(1)}],
        inferer=AutocastInferer(dtype=torch.float16),
        decollate=False,
    )
    assert tiny.amp
    # MONAI's own, which works on CUDA alone, is made when a run begins
    scaler = torch.amp.GradScaler("cpu", enabled=is_scaled)
    tiny.add_event_handler(Events.STARTED, lambda engine: setattr(engine, "scaler", scaler))
    before = network.weight.detach().clone()
    tiny.run()
    change = torch.full_like(before, -0.1 if is_scaled else 0.0)
    torch.testing.assert_close(network.weight.detach() - before, change, rtol=0.01, atol=1e-6)


def test_without_float16_nothing_is_scaled() -> None:
    assert trainer(num_batches=3, accumulation_steps=1).scaler is None
