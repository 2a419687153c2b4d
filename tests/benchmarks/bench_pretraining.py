# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Speed of AFiRe's parts and of one whole step on a CPU, against naive versions, measured in turns in one run.

    python -m tests.benchmarks.bench_pretraining [loss head step memory]
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
from collections.abc import Callable

import torch
from torch import nn

from monai_afire.losses import AFiReLoss, CategoryConsistencyLoss, StructureConsistencyLoss
from monai_afire.networks import AFiRe, PositionwiseLinear, ViTEncoder, patch_labels, patchify, sinkhorn_knopp
from monai_afire.optimizers import weight_decay_groups
from monai_afire.utils import tune_cpu
from tests.benchmarks.timing import compare, machine, peak_memory, reset_peak_memory
from tests.naive.published_step import (
    LoopedLastLayer,
    loop_contrastive_loss,
    loop_ema_update,
    unfused_attention,
)

B, L, K, WIDTH = 64, 196, 256, 256
N = 4


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
    compare(f"last layers of the head, forward + backward, B={B} L={L} D={WIDTH} K={K}", ways, rounds=7)


class NaiveAttention(nn.Module):
    """Attention with separate products, parameters shared with the block it replaces."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.qkv, self.out_proj, self.num_heads = block.qkv, block.out_proj, block.num_heads

    def forward(self, x: torch.Tensor, attn_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Attend over all tokens."""
        batch, length, width = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        mixed = unfused_attention(*qkv.unbind(0))
        return self.out_proj(mixed.transpose(1, 2).reshape(batch, length, width))


class NaiveStep:
    """One step as published code does it: teacher per variant, loops over tokens and parameters."""

    def __init__(self, network: AFiRe) -> None:
        self.network = copy.deepcopy(network)
        for part in (self.network.encoder, self.network.teacher_encoder, self.network.decoder):
            for block in part.blocks:
                block.attn = NaiveAttention(block.attn)
        self.network.head.last_layer = LoopedLastLayer(L, WIDTH, K)
        self.network.teacher_head.last_layer = copy.deepcopy(self.network.head.last_layer).requires_grad_(False)
        self.optimizer = torch.optim.AdamW(weight_decay_groups(self.network), lr=1e-4, foreach=False)

    def __call__(self, image: torch.Tensor, lesion_image: torch.Tensor, lesion_mask: torch.Tensor) -> None:
        """Forward, backward, optimizer, teacher."""
        network, variants = self.network, lesion_image.shape[1]
        repeated = image.repeat_interleave(variants, 0)
        with torch.no_grad():
            logits = network.teacher_head(network.teacher_encoder(repeated))
            network.bank.update(sinkhorn_knopp(logits.flatten(0, 1), 0.04).view(logits.shape))
        tokens = network.encoder(lesion_image.flatten(0, 1))
        q = torch.softmax(network.head(tokens) / 0.1, dim=-1)
        abnormal = patch_labels(lesion_mask.flatten(0, 1), 16)
        loss = torch.zeros(())
        for n in range(variants):
            loss = loss + loop_contrastive_loss(q[n::variants], network.bank.prototypes.clone(), ~abnormal[n::variants])
        error = (
            (network.decoder(tokens, abnormal) - patchify(network.encoder.normalize(repeated), 16)).square().mean(-1)
        )
        weight = torch.where(abnormal, 5.0, 1.0)
        loss = loss / variants + (weight * error).sum() / weight.sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        loop_ema_update(network.teacher_encoder, network.encoder, 0.99)
        loop_ema_update(network.teacher_head, network.head, 0.99)


def own_step(network: AFiRe, bf16: bool) -> Callable[..., None]:
    """One step of this package."""
    loss_function = AFiReLoss()
    optimizer = torch.optim.AdamW(weight_decay_groups(network), lr=1e-4, fused=True)

    def step(image: torch.Tensor, lesion_image: torch.Tensor, lesion_mask: torch.Tensor) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            outputs = network(image, lesion_image, lesion_mask)
        optimizer.zero_grad()
        loss_function(outputs).backward()
        optimizer.step()
        network.update_teacher()

    return step


def with_precision(precision: str, step: Callable[..., None], *batch: torch.Tensor) -> Callable[[], None]:
    """The step under a precision of float32 products."""

    def call() -> None:
        torch.set_float32_matmul_precision(precision)
        step(*batch)

    return call


def bench_step(images: int = 4) -> None:
    """One whole step of AFiRe, ViT-B/16 at 224, with the decoder of the paper."""
    image = torch.rand(images, 1, 224, 224)
    lesion_mask = torch.zeros(images, N, 1, 224, 224)
    lesion_mask[..., 60:110, 80:140] = 0.4
    batch = image, (image.unsqueeze(1) + lesion_mask).clamp(0, 1), lesion_mask
    network = AFiRe(ViTEncoder(), num_clusters=K)
    ways = {
        "naive, float32": with_precision("highest", NaiveStep(network), *batch),
        "monai_afire, float32": with_precision("medium", own_step(copy.deepcopy(network), False), *batch),
        "monai_afire, bfloat16 autocast": with_precision("medium", own_step(network, True), *batch),
    }
    compare(f"one step, ViT-B/16 at 224, {images} images x {N} variants", ways, rounds=3)


def _loss_memory(batch: int, queue: multiprocessing.Queue) -> None:
    q, prototypes, normal = token_batch(batch)
    reset_peak_memory()
    before = peak_memory()
    leaf = q.requires_grad_()
    (
        StructureConsistencyLoss()(leaf, prototypes, normal) + CategoryConsistencyLoss()(leaf, prototypes, normal)
    ).backward()
    queue.put(peak_memory() - before)


def bench_memory() -> None:
    """Peak memory of the losses by batch size, each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    print(f"\nmemory of the contrastive losses, forward + backward, L={L} K={K}\n{'B':>6}{'MB':>10}{'MB / B':>10}")
    for batch in (16, 32, 64, 128, 256):
        queue = context.Queue()
        process = context.Process(target=_loss_memory, args=(batch, queue))
        process.start()
        used = queue.get()
        process.join()
        print(f"{batch:>6}{used:>10.0f}{used / batch:>10.2f}", flush=True)


def main() -> None:
    """Print the tables asked for."""
    parts = {"loss": bench_loss, "head": bench_head, "step": bench_step, "memory": bench_memory}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *parts], help="which tables, all by default")
    options = parser.parse_args()
    torch.manual_seed(0)
    tune_cpu()
    print(machine())
    for name in options.parts or parts:
        parts[name]()


if __name__ == "__main__":
    main()
