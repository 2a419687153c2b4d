# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
What holds on a GPU: the CPU's losses and gradients, no wait in a step, reduced precision, compilation, lesions, NCCL.

Skipped without one. ``MONAI_AFIRE_TEST_DEVICE=cpu`` tries on a CPU what has a meaning there.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from monai_afire.transforms import synth_lesion_masks
from tests.benchmarks.pretraining_step import METHODS, BundleCase

DEVICE = torch.device(os.environ.get("MONAI_AFIRE_TEST_DEVICE", "cuda"))
ON_CUDA = DEVICE.type == "cuda"
IMAGES = 4

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(ON_CUDA and not torch.cuda.is_available(), reason="needs a GPU"),
]


@pytest.fixture(autouse=True)
def from_the_root(repository_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Configs are named from there; products keep float32's precision."""
    monkeypatch.chdir(repository_root)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def make_case(method: str, device: torch.device = DEVICE, size: str = "tiny") -> BundleCase:
    torch.manual_seed(0)
    return BundleCase(method, size, device, variants=2)


def network_inputs(case: BundleCase, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Arguments of the network, made on the CPU so that random draws are the same on every device."""
    torch.manual_seed(1)
    first, _, others, _ = case["train::prepare_batch"](case.make_batch(IMAGES), "cpu")
    return tuple(value.to(device) for value in (first, *others))


def loss_and_gradient(
    case: BundleCase, network: nn.Module, inputs: tuple[torch.Tensor, ...]
) -> tuple[float, torch.Tensor]:
    loss = case["loss"](network(*inputs))
    loss.backward()
    gradients = [p.grad.flatten() for p in network.parameters() if p.grad is not None]
    return loss.item(), torch.cat(gradients).float().cpu()


@pytest.mark.parametrize("method", METHODS)
def test_loss_and_gradient_are_those_of_the_cpu(method: str) -> None:
    here, there = make_case(method, torch.device("cpu")), make_case(method)
    inputs = network_inputs(here, torch.device("cpu"))
    there["network"].load_state_dict(here["network"].state_dict())
    expected, gradient = loss_and_gradient(here, here["network"], inputs)
    found, moved = loss_and_gradient(
        there, there["network"], tuple(value.to(DEVICE) for value in inputs)
    )
    assert found == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(moved, gradient, rtol=1e-2, atol=1e-4 * gradient.abs().max().item())


@pytest.mark.parametrize("method", METHODS)
def test_bfloat16_is_near_float32(method: str) -> None:
    case = make_case(method)
    inputs = network_inputs(case, DEVICE)
    network, loss = case["network"], case["loss"]
    expected = loss(copy.deepcopy(network)(*inputs)).item()  # a pass moves centers and prototypes
    with torch.autocast(DEVICE.type, torch.bfloat16):
        outputs = network(*inputs)
    assert loss(outputs).item() == pytest.approx(expected, rel=0.1, abs=0.1)


@pytest.mark.skipif(not ON_CUDA, reason="float16 is for GPUs")
@pytest.mark.parametrize("method", METHODS)
def test_float16_learns_with_a_gradient_scaler(method: str) -> None:
    case = make_case(method)
    inputs = network_inputs(case, DEVICE)
    network, loss, optimizer = case["network"], case["loss"], case["optimizer"]
    scaler = torch.amp.GradScaler(DEVICE.type)
    before = [parameter.detach().clone() for parameter in network.parameters()]
    losses = []
    for _ in range(12):  # the first scales overflow, and their steps are left out
        optimizer.zero_grad()
        with torch.autocast(DEVICE.type, torch.float16):
            outputs = network(*inputs)
        value = loss(outputs)
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(value.item())
    assert all(torch.isfinite(torch.tensor(losses)))
    assert scaler.get_scale() > 1
    after = list(network.parameters())
    assert all(parameter.isfinite().all() for parameter in after)
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_compiled_network_has_the_same_loss(method: str) -> None:
    case = make_case(method)
    inputs = network_inputs(case, DEVICE)
    network = case["network"]
    compiled = torch.compile(copy.deepcopy(network))
    expected, gradient = loss_and_gradient(case, network, inputs)
    loss = case["loss"](compiled(*inputs))
    loss.backward()
    assert loss.item() == pytest.approx(expected, rel=1e-3)
    gradients = [p.grad.flatten() for p in compiled.parameters() if p.grad is not None]
    found = torch.cat(gradients).float().cpu()
    torch.testing.assert_close(found, gradient, rtol=5e-2, atol=1e-3 * gradient.abs().max().item())


def test_lesions_of_a_batch_are_like_those_of_the_cpu() -> None:
    images = 0.3 + 0.4 * torch.rand(16, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    found: dict[str, torch.Tensor] = {}
    for device in {torch.device("cpu"), DEVICE}:
        generator = torch.Generator(device).manual_seed(3)
        there = images.to(device)
        lesion_images, masks = synth_lesion_masks(there, 8, generator=generator)
        assert lesion_images.shape == masks.shape == (16, 8, 1, 64, 64)
        assert lesion_images.min() >= 0
        assert lesion_images.max() <= 1
        outside = (masks == 0).expand_as(lesion_images)
        repeated = there.unsqueeze(1).expand_as(lesion_images)
        assert torch.equal(lesion_images[outside], repeated[outside])
        again = synth_lesion_masks(there, 8, generator=torch.Generator(device).manual_seed(3))
        assert torch.equal(again[0], lesion_images)
        found[device.type] = (masks > 0).float().mean((1, 2, 3, 4)).cpu()
    means = [shares.mean().item() for shares in found.values()]
    assert max(means) < 1.25 * min(means)


@pytest.mark.parametrize("method", METHODS)
def test_one_process_of_a_group_has_the_gradient_of_none(method: str, tmp_path: Path) -> None:
    case = make_case(method)
    inputs = network_inputs(case, DEVICE)
    expected, gradient = loss_and_gradient(case, copy.deepcopy(case["network"]), inputs)
    dist.init_process_group(
        "nccl" if ON_CUDA else "gloo",
        init_method=f"file://{tmp_path / 'group'}",
        rank=0,
        world_size=1,
    )
    try:
        options: dict[str, Any] = {"device_ids": [torch.cuda.current_device()]} if ON_CUDA else {}
        network = DistributedDataParallel(case["network"], find_unused_parameters=True, **options)
        loss = case["loss"](network(*inputs))
        loss.backward()
        found = (
            torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
            .float()
            .cpu()
        )
    finally:
        dist.destroy_process_group()
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(found, gradient, rtol=1e-4, atol=1e-6 * gradient.abs().max().item())
