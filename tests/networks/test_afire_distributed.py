# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Two processes hold the same teacher statistics as one with the double batch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from monai_afire.losses import AFiReLoss
from monai_afire.networks import AFiRe, PrototypeBank, ViTEncoder, sinkhorn_knopp

TIMEOUT = 120  # seconds until a hanging pair of processes is ended

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="needs PyTorch's gloo backend"
)


def tiny_afire() -> AFiRe:
    torch.manual_seed(0)
    encoder = ViTEncoder(img_size=16, patch_size=8, hidden_size=8, num_layers=1, num_heads=2)
    return AFiRe(encoder, num_clusters=6, head_dim=8, decoder_dim=8, decoder_layers=1, decoder_heads=2)


def data() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    lesion_mask = torch.zeros(4, 2, 1, 16, 16)
    lesion_mask[:2, :, :, :8, :8] = 0.5
    lesion_mask[2:, :, :, 8:, :8] = 0.5
    return {
        "logits": torch.rand(10, 5, generator=generator, dtype=torch.float64) * 2 - 1,
        "q": torch.softmax(torch.randn(3, 4, 2, 3, generator=generator, dtype=torch.float64), -1),
        "image": torch.rand(4, 1, 16, 16, generator=generator),
        "lesion_image": torch.rand(4, 2, 1, 16, 16, generator=generator),
        "lesion_mask": lesion_mask,
    }


def run_parts(rank: int, world_size: int) -> dict[str, Any]:
    """What this rank gets from its share of the data."""

    def share(x: torch.Tensor) -> torch.Tensor:
        return x.chunk(world_size)[rank]

    batch = data()
    results: dict[str, Any] = {"sinkhorn": sinkhorn_knopp(share(batch["logits"]), 0.04)}
    bank = PrototypeBank(2, 3, momentum=0.75).double()
    for q in batch["q"]:
        bank.update(share(q))
    uneven = PrototypeBank(2, 3).double()  # the ranks bring 3 images and 1
    uneven.update(batch["q"][0][:3] if rank == 0 and world_size == 2 else batch["q"][0][3 if world_size == 2 else 0 :])
    results |= {"bank": bank.prototypes, "uneven": uneven.prototypes}

    network = tiny_afire()
    model = DistributedDataParallel(network) if world_size > 1 else network
    optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.0)
    for _ in range(2):  # a second pass fails if a parameter of the first had no gradient
        optimizer.zero_grad()
        outputs = model(share(batch["image"]), share(batch["lesion_image"]), share(batch["lesion_mask"]))
        AFiReLoss()(outputs).backward()
    network.update_teacher()
    gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    return results | {"prototypes": network.bank.prototypes, "gradients": gradients, "state": network.state_dict()}


def worker(rank: int, world_size: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    try:
        torch.save(run_parts(rank, world_size), f"{folder}/rank_{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    context = mp.spawn(worker, args=(2, str(folder)), nprocs=2, join=False)
    deadline = time.monotonic() + TIMEOUT
    while not context.join(timeout=1):
        if time.monotonic() > deadline:
            for process in context.processes:
                process.kill()
            pytest.fail(f"the two processes did not finish within {TIMEOUT} s")
    return [torch.load(folder / f"rank_{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.fixture(scope="module")
def single() -> dict[str, Any]:
    return run_parts(0, 1)


def test_sinkhorn_balances_over_all_ranks(ranks: list[dict[str, Any]], single: dict[str, Any]) -> None:
    together = torch.cat([rank["sinkhorn"] for rank in ranks])
    torch.testing.assert_close(together, single["sinkhorn"], rtol=0, atol=1e-9)
    alone = sinkhorn_knopp(data()["logits"][:5], 0.04)
    assert (alone - together[:5]).abs().max() > 0.01


@pytest.mark.parametrize("name", ["bank", "uneven"])
def test_bank_averages_over_all_images(name: str, ranks: list[dict[str, Any]], single: dict[str, Any]) -> None:
    assert torch.equal(ranks[0][name], ranks[1][name])
    torch.testing.assert_close(ranks[0][name], single[name], rtol=0, atol=1e-9)


def test_network_under_ddp(ranks: list[dict[str, Any]], single: dict[str, Any]) -> None:
    assert torch.equal(ranks[0]["prototypes"], ranks[1]["prototypes"])
    torch.testing.assert_close(ranks[0]["prototypes"], single["prototypes"], rtol=0, atol=1e-6)
    for name, value in ranks[0]["state"].items():
        assert torch.equal(value, ranks[1]["state"][name]), name
    assert ranks[0]["gradients"].keys() == single["gradients"].keys()
    for name, value in ranks[0]["gradients"].items():
        assert torch.equal(value, ranks[1]["gradients"][name]), name
    # every rank masks the same share of its patches: the restoration losses average to that of the double batch
    for name in ("decoder.to_pixels.weight", "decoder.mask_tokens"):
        torch.testing.assert_close(ranks[0]["gradients"][name], single["gradients"][name], rtol=1e-4, atol=1e-6)
