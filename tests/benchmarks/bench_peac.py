# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Speed of PEAC's local consistency: one gather by index against boolean indexing, measured in turns in one run.

    python -m tests.benchmarks.bench_peac [--images 64] [--width 512] [--rounds 15] [--device cpu]

Every way builds its masks or indices from the offsets, and runs forward and backward.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F

from monai_afire.losses.peac import LocalConsistencyLoss
from monai_afire.transforms import matching_patches, overlap_masks
from tests.benchmarks.timing import compare, machine

__all__ = ["main"]

GRID, CROPS = 18, (14, 14)

Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def distance(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Squared distance of normalized embeddings as Eq. 2 is printed."""
    return (F.normalize(student, dim=-1) - F.normalize(teacher, dim=-1)).square().sum(-1)


def mask_each_image(
    student: torch.Tensor, teacher: torch.Tensor, offset_1: torch.Tensor, offset_2: torch.Tensor
) -> torch.Tensor:
    """Boolean indexing of one image after the other."""
    masks = zip(student, teacher, *overlap_masks(offset_1, offset_2, CROPS), strict=True)
    return torch.stack(
        [distance(s[mask_1], t[mask_2]).mean() for s, t, mask_1, mask_2 in masks]
    ).mean()


def mask_the_batch(
    student: torch.Tensor, teacher: torch.Tensor, offset_1: torch.Tensor, offset_2: torch.Tensor
) -> torch.Tensor:
    """Boolean indexing of the whole batch."""
    mask_1, mask_2 = overlap_masks(offset_1, offset_2, CROPS)
    weight = (1 / mask_1.sum(1, keepdim=True)).expand(mask_1.shape)[mask_1]
    return (distance(student[mask_1], teacher[mask_2]) * weight).sum() / len(student)


def gather(
    student: torch.Tensor, teacher: torch.Tensor, offset_1: torch.Tensor, offset_2: torch.Tensor
) -> torch.Tensor:
    """The package's way."""
    return LocalConsistencyLoss()(student, teacher, matching_patches(offset_1, offset_2, CROPS))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    patches, steps = CROPS[0] * CROPS[1], GRID - CROPS[0] + 1
    student, teacher = (
        torch.randn(options.images, patches, options.width, device=device) for _ in range(2)
    )
    offset_1, offset_2 = (
        torch.randint(0, steps, (options.images, 2), device=device) for _ in range(2)
    )

    def backward(loss: Loss) -> Callable[[], object]:
        def call() -> None:
            leaf = student.clone().requires_grad_()
            loss(leaf, teacher, offset_1, offset_2).backward()

        return call

    ways = {
        "boolean indexing, image by image": mask_each_image,
        "boolean indexing of the batch": mask_the_batch,
        "monai_afire": gather,
    }
    values = [float(loss(student, teacher, offset_1, offset_2)) for loss in ways.values()]
    if max(values) - min(values) > 1e-5:
        raise RuntimeError(f"the ways do not compute the same: {values}")
    print(machine(device))
    title = f"local consistency, forward + backward, {options.images} images, {patches} patches, H={options.width}"
    compare(title, {name: backward(loss) for name, loss in ways.items()}, options.rounds, device)


if __name__ == "__main__":
    main()
