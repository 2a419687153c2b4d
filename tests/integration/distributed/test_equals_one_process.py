# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Two processes compute what one does with the double batch: statistics, losses, weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from integration.distributed.two_ranks import needs_gloo, run_on_two_ranks, share
from monai_afire.losses import (
    ACELoss,
    AFiReLoss,
    CompositeLoss,
    DINOLoss,
    HeatmapLoss,
    MAELoss,
    MaskedMultilabelLoss,
    PEACLoss,
)
from monai_afire.losses.global_mean import global_mean, global_weighted_mean
from monai_afire.networks import (
    ACE,
    DINO,
    MAE,
    PEAC,
    AFiRe,
    PrototypeBank,
    ViTEncoder,
    sinkhorn_knopp,
)
from monai_afire.transforms import matching_patches
from monai_afire.utils.distributed import all_gather, all_reduce, all_reduce_max

pytestmark = [needs_gloo, pytest.mark.slow]

STEPS = 3
SIZE, PATCH = 16, 4  # pixels, of a grid of 4 x 4 patches

Batch = list[torch.Tensor]


def encoder() -> ViTEncoder:
    torch.manual_seed(0)
    return ViTEncoder(img_size=SIZE, patch_size=PATCH, hidden_size=8, num_layers=1, num_heads=2)


def images(*shape: int, seed: int) -> torch.Tensor:
    return torch.rand(
        *shape, SIZE, SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def afire(**options: Any) -> AFiRe:
    return AFiRe(
        encoder(),
        num_clusters=6,
        head_dim=8,
        decoder_dim=8,
        decoder_layers=1,
        decoder_heads=2,
        **options,
    )


def lesion_batch(step: int) -> Batch:
    """The images of the first rank have far larger lesions than those of the second, one of which has none."""
    lesion_mask = torch.zeros(4, 2, 1, SIZE, SIZE, dtype=torch.float64)
    lesion_mask[0, :, :, :12, : 4 * (1 + step)] = 0.5
    lesion_mask[1, 0, :, 2:, :9] = 0.5
    lesion_mask[2, 1, :, :3, :3] = 0.5
    return [images(4, 1, seed=step), images(4, 2, 1, seed=9 + step), lesion_mask]


def peac() -> PEAC:
    return PEAC(encoder(), expander_dim=6, expander_hidden_dim=8)


def distorted_pairs(step: int) -> Batch:
    """The first rank has two shuffled samples, the second none; overlaps differ, one pair has no patch in common."""
    generator = torch.Generator().manual_seed(step)
    order = torch.arange(16).repeat(4, 1)
    for row in range(2):
        order[row] = torch.randperm(16, generator=generator)
    offset_1 = torch.tensor([[0, 0], [1, 2], [4, 4], [0, 1]])
    offset_2 = torch.tensor([[1, 0], [0, 0], [0, 0], [3, 1 + step]])
    shuffled = torch.tensor([True, True, False, False])
    return [
        *(images(4, 1, seed=seed + step) for seed in (0, 20, 40)),
        order,
        shuffled,
        offset_1,
        offset_2,
    ]


def ace() -> ACE:
    return ACE(encoder(), teacher_decay=0.9)


def composed_pairs(step: int) -> Batch:
    offset_1 = torch.tensor([[0, 2 * step], [2, 4], [4, 4], [0, 0]])
    offset_2 = torch.tensor([[0, 0], [0, 2], [2, 0], [2, 2]])
    return [*(images(4, 1, seed=seed + step) for seed in (0, 20)), offset_1, offset_2]


def mae() -> MAE:
    return MAE(encoder(), decoder_dim=8, decoder_layers=1, decoder_heads=2)


def partly_visible(step: int) -> Batch:
    generator = torch.Generator().manual_seed(step)
    visible = torch.stack([torch.randperm(16, generator=generator)[:5] for _ in range(4)])
    return [images(4, 1, seed=step), visible]


def dino(**options: Any) -> DINO:
    return DINO(
        encoder(), num_prototypes=6, head_dim=8, bottleneck_dim=4, teacher_decay=0.9, **options
    )


def large_and_small_crops(step: int) -> Batch:
    local_crops = images(4, 3, 1, seed=20 + step)[..., : SIZE // 2, : SIZE // 2]
    return [images(4, 2, 1, seed=step), local_crops]


METHODS: dict[
    str, tuple[Callable[[], nn.Module], Callable[[], CompositeLoss], Callable[[int], Batch]]
] = {
    "afire": (afire, AFiReLoss, lesion_batch),
    "afire, ablations": (
        partial(afire, use_prototypes=False, use_mask_tokens=False),
        partial(AFiReLoss, include_abnormal_pairs=True, similarity="teacher_ce"),
        lesion_batch,
    ),
    "afire, features": (
        partial(afire, contrast_space="features", restore=False),
        partial(AFiReLoss, similarity="cosine"),
        lesion_batch,
    ),
    "peac": (peac, PEACLoss, distorted_pairs),
    "ace": (ace, ACELoss, composed_pairs),
    "mae": (mae, MAELoss, partly_visible),
    "dino": (dino, DINOLoss, large_and_small_crops),
    "dino, Sinkhorn": (partial(dino, teacher_balance="sinkhorn"), DINOLoss, large_and_small_crops),
}


def train(method: str, rank: int, world_size: int) -> dict[str, Any]:
    """Losses, terms and teacher statistics of each step, and the weights in the end."""
    make_network, make_loss, make_batch = METHODS[method]
    network, loss_function = make_network().double(), make_loss()
    model = DistributedDataParallel(network) if world_size > 1 else network
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], lr=0.01)
    statistics = (
        network.bank.prototypes
        if isinstance(network, AFiRe)
        else getattr(network, "center", torch.zeros(1))
    )
    record: dict[str, Any] = {"losses": [], "terms": [], "statistics": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_function(model(*(share(x, rank, world_size) for x in make_batch(step))))
        loss.backward()
        optimizer.step()
        if not isinstance(network, MAE):
            network.update_teacher()
        record["losses"].append(loss.detach())
        record["terms"].append(dict(loss_function.terms))
        record["statistics"].append(statistics.clone())
    return record | {"state": network.state_dict()}


def transfer_losses(rank: int, world_size: int) -> dict[str, torch.Tensor]:
    """Losses on labels of which the ranks know different numbers, and their gradients as DDP averages them."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.tensor(
        [[1.0, 0.0], [0.0, 1.0], [torch.nan, torch.nan], [torch.nan, 1.0]], dtype=torch.float64
    )
    maps = torch.rand(4, 2, 3, 3, generator=generator, dtype=torch.float64)
    maps[2:, 0] = torch.nan
    cases = {"multilabel": (MaskedMultilabelLoss(), labels), "heatmap": (HeatmapLoss(), maps)}
    results = {}
    for name, (loss_function, target) in cases.items():
        weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
        pred = torch.rand(
            target.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64
        )
        scale = weight.view(2, *[1] * (target.ndim - 2))
        loss = loss_function(share(pred, rank, world_size) * scale, share(target, rank, world_size))
        loss.backward()
        results |= {name: loss.detach(), f"{name}, gradient": all_reduce(weight.grad) / world_size}
    return results


def collectives(rank: int, world_size: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    logits = torch.rand(10, 5, generator=generator, dtype=torch.float64) * 2 - 1
    q = torch.softmax(torch.randn(4, 2, 3, generator=generator, dtype=torch.float64), -1)
    uneven = PrototypeBank(2, 3).double()  # the ranks bring 3 images and 1
    uneven.update(q if world_size == 1 else (q[:3], q[3:])[rank])
    values = torch.tensor([1.0, 5.0, 2.0, 7.0], dtype=torch.float64)
    counts = torch.tensor([True, True, True, False])
    return {
        "sinkhorn": sinkhorn_knopp(share(logits, rank, world_size), 0.04),
        "uneven": uneven.prototypes,
        "gathered": all_gather(share(values, rank, world_size)),
        "gathered bool": all_gather(share(counts, rank, world_size)),
        "maximum": all_reduce_max(share(values, rank, world_size).amax()),
        "mean": global_mean(share(values, rank, world_size)),
        "mean where": global_mean(share(values, rank, world_size), share(counts, rank, world_size)),
        "weighted": global_weighted_mean(
            share(values, rank, world_size), share(values, rank, world_size)
        ),
    }


def unequal_batches(rank: int, world_size: int) -> str:
    try:
        all_gather(torch.zeros(2 + rank, 3))
    except ValueError as error:
        return str(error)
    return ""


def everything(rank: int, world_size: int) -> dict[str, Any]:
    results: dict[str, Any] = {method: train(method, rank, world_size) for method in METHODS}
    results |= {
        "collectives": collectives(rank, world_size),
        "transfer": transfer_losses(rank, world_size),
    }
    return results | {"unequal": unequal_batches(rank, world_size) if world_size > 1 else ""}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_on_two_ranks(everything, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def single() -> dict[str, Any]:
    return everything(0, 1)


@pytest.mark.parametrize("method", METHODS)
def test_losses_and_weights_are_those_of_the_double_batch(
    method: str, ranks: list[dict[str, Any]], single: dict[str, Any]
) -> None:
    expected = single[method]
    assert expected["losses"][0] != expected["losses"][-1]
    for rank in ranks:
        for part in ("losses", "terms", "statistics", "state"):
            torch.testing.assert_close(
                rank[method][part], expected[part], rtol=1e-8, atol=1e-10, msg=part
            )


@pytest.mark.parametrize("method", METHODS)
def test_ranks_hold_the_same_bits(method: str, ranks: list[dict[str, Any]]) -> None:
    first, second = (rank[method] for rank in ranks)
    for ours, theirs in zip(first["statistics"], second["statistics"], strict=True):
        assert torch.equal(ours, theirs)
    for name, value in first["state"].items():
        assert torch.equal(value, second["state"][name]), name
    for ours, theirs in zip(first["terms"], second["terms"], strict=True):
        assert ours == theirs


def test_the_shares_alone_would_give_something_else() -> None:
    """The batches above are uneven enough for the average of per-rank means to be wrong."""
    for method, term in (
        ("afire", "structure"),
        ("afire", "category"),
        ("afire", "restoration"),
        ("peac", "order"),
    ):
        make_network, make_loss, make_batch = METHODS[method]
        network, loss_function = make_network().double(), make_loss()
        values = []
        for parts in (1, 2):
            shares = [[share(x, rank, parts) for x in make_batch(0)] for rank in range(parts)]
            terms = []
            for arguments in shares:
                loss_function(network(*arguments))
                terms.append(loss_function.terms[term])
            values.append(torch.stack(terms).mean())
        assert (values[0] - values[1]).abs() > 1e-4 * values[0].abs(), (method, term)


def test_losses_of_transfer_count_every_known_label_the_same(
    ranks: list[dict[str, Any]], single: dict[str, Any]
) -> None:
    for rank in ranks:
        torch.testing.assert_close(rank["transfer"], single["transfer"], rtol=1e-12, atol=0)


def test_collectives(ranks: list[dict[str, Any]], single: dict[str, Any]) -> None:
    expected = single["collectives"]
    together = torch.cat([rank["collectives"].pop("sinkhorn") for rank in ranks])
    torch.testing.assert_close(together, expected.pop("sinkhorn"), rtol=0, atol=1e-12)
    assert float(expected["mean where"]) == 8 / 3
    for rank in ranks:
        torch.testing.assert_close(rank["collectives"], expected, rtol=1e-12, atol=1e-12)


def test_unequal_batches_are_named(ranks: list[dict[str, Any]]) -> None:
    for number, rank in enumerate(ranks):
        assert f"batches of 2 to 3 images, this one (rank {number}) {2 + number}" in rank["unequal"]


def test_matches_of_the_pairs_differ() -> None:
    _, _, _, _, _, offset_1, offset_2 = distorted_pairs(0)
    matched = (matching_patches(offset_1, offset_2, (4, 4)) >= 0).sum(1)
    assert len(set(matched.tolist())) > 1
    assert 0 in matched
