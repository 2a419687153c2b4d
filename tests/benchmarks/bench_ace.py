# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Speed of ACE's matching targets and losses against loops over patches, measured in turns in one run.

    python -m tests.benchmarks.bench_ace [target loss] [--images 8] [--cells 14] [--rounds 5] [--device cpu]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

from monai_afire.losses.ace import ACELoss, matching_target
from tests.benchmarks.timing import compare, machine
from tests.naive.published_methods import loop_targets

__all__ = ["main"]


def aligned_offsets(
    images: int, cells: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Offsets of both crops, as `GridCropPair` draws them."""
    offset_2 = torch.randint(0, 5, (images, 2))
    return (offset_2 + 2 * torch.randint(1 - cells // 2, cells, (images, 2))).to(
        device
    ), offset_2.to(device)


def bench_target(images: int, cells: int, rounds: int, device: torch.device) -> None:
    """Both targets of a batch."""
    crops = (cells, 2 * cells)
    offsets = aligned_offsets(images, cells, device)

    def closed_form() -> list[torch.Tensor]:
        return [matching_target(*offsets, crops, side) for side in (2, 1)]

    for ours, naive in zip(closed_form(), loop_targets(*offsets, crops), strict=True):
        torch.testing.assert_close(ours, naive)
    ways: dict[str, Callable[[], object]] = {
        "loop over pairs of patches": lambda: loop_targets(*offsets, crops),
        "monai_afire": closed_form,
    }
    compare(f"both matching targets, B={images}, {cells} x {cells} patches", ways, rounds, device)


def bench_loss(images: int, cells: int, rounds: int, device: torch.device) -> None:
    """The whole loss, forward and backward, with targets from the loop and in closed form."""
    tokens = cells**2
    offset_1, offset_2 = aligned_offsets(images, cells, device)
    composition = torch.randn(images, tokens, tokens // 4, device=device, requires_grad=True)
    decomposition = torch.randn(images, tokens, tokens * 4, device=device, requires_grad=True)
    loss = ACELoss(global_weight=0)
    outputs = {
        "offset_1": offset_1,
        "offset_2": offset_2,
        "composition_logits": composition,
        "decomposition_logits": decomposition,
    }

    def with_loop() -> None:
        first, second = loop_targets(offset_1, offset_2, (cells, 2 * cells))
        (
            loss.composition(composition, first.mT) + loss.decomposition(decomposition, second)
        ).backward()

    ways = {"targets from the loop": with_loop, "monai_afire": lambda: loss(outputs).backward()}
    compare(
        f"local losses, forward + backward, B={images}, {cells} x {cells} patches",
        ways,
        rounds,
        device,
    )


def main() -> None:
    """Run the named parts, or all."""
    parts = {"target": bench_target, "loss": bench_loss}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"of {list(parts)}; all if none is named"
    )
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--cells", type=int, default=14)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    print(machine(device))
    torch.manual_seed(0)
    for name in options.parts or parts:
        parts[name](options.images, options.cells, options.rounds, device)


if __name__ == "__main__":
    main()
