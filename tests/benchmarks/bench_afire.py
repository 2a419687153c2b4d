# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Speed of AFiRe's losses and head on a CPU against loops over the tokens, measured in turns in one run.

    python -m tests.benchmarks.bench_afire [loss head memory]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import nn

from monai_afire.losses import CategoryConsistencyLoss, StructureConsistencyLoss
from monai_afire.networks.blocks.heads import PositionwiseLinear
from monai_afire.utils import join_process_group, run_device
from tests.benchmarks.timing import compare, in_own_process, machine, peak_memory, reset_peak_memory
from tests.naive.published_step import LoopedLastLayer, loop_contrastive_loss

B, L, K, WIDTH = 64, 196, 256, 256


def token_batch(batch: int = B) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random q (B, L, K), prototypes (L, K) and normal (B, L)."""
    q = torch.softmax(3 * torch.randn(batch, L, K), -1)
    return q, q.mean(0), torch.rand(batch, L) > 0.15


def bench_loss() -> None:
    """Contrastive losses, forward and backward."""
    q, prototypes, normal = token_batch()
    structure, category = StructureConsistencyLoss(), CategoryConsistencyLoss()

    def backward(loss: Callable[..., torch.Tensor]) -> Callable[[], object]:
        def call() -> None:
            leaf = q.clone().requires_grad_()
            loss(leaf, prototypes, normal).backward()

        return call

    ways = {
        "loop over tokens": backward(loop_contrastive_loss),
        "monai_afire": backward(lambda *args: structure(*args) + category(*args)),
    }
    compare(f"contrastive losses, forward + backward, B={B} L={L} K={K}", ways, rounds=7)


def bench_head() -> None:
    """Last layers of the head, forward and backward."""
    tokens = torch.nn.functional.normalize(torch.randn(B, L, WIDTH), dim=-1)
    looped, batched = LoopedLastLayer(L, WIDTH, K), PositionwiseLinear(L, WIDTH, K)

    def backward(layer: nn.Module) -> Callable[[], object]:
        def call() -> None:
            leaf = tokens.clone().requires_grad_()
            layer.zero_grad(set_to_none=True)
            layer(leaf).sum().backward()

        return call

    ways = {f"{L} linear layers": backward(looped), "monai_afire": backward(batched)}
    compare(
        f"last layers of the head, forward + backward, B={B} L={L} D={WIDTH} K={K}", ways, rounds=7
    )


def _loss_memory(batch: int) -> float:
    q, prototypes, normal = token_batch(batch)
    reset_peak_memory()
    before = peak_memory()
    leaf = q.requires_grad_()
    (
        StructureConsistencyLoss()(leaf, prototypes, normal)
        + CategoryConsistencyLoss()(leaf, prototypes, normal)
    ).backward()
    return peak_memory() - before


def bench_memory() -> None:
    """Peak memory of the losses by batch size, each in a process of its own."""
    print(
        f"\nmemory of the contrastive losses, forward + backward, L={L} K={K}\n{'B':>6}{'MB':>10}{'MB / B':>10}"
    )
    for batch in (16, 32, 64, 128, 256):
        used = in_own_process(_loss_memory, batch)
        print(f"{batch:>6}{used:>10.0f}{used / batch:>10.2f}", flush=True)


def main() -> None:
    """Print the tables asked for."""
    parts = {"loss": bench_loss, "head": bench_head, "memory": bench_memory}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", choices=[[], *parts], help="which tables, all by default"
    )
    options = parser.parse_args()
    torch.manual_seed(0)
    join_process_group(run_device())  # for its precision of products
    print(machine())
    for name in options.parts or parts:
        parts[name]()


if __name__ == "__main__":
    main()
