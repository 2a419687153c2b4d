# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Speed of lesion synthesis: the loop over pixels against both back ends, measured in turns in one run.

    python -m tests.benchmarks.bench_lesions [--side 224] [--images 4] [--masks 9] [--seconds 3] [--device cpu]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from monai_afire.transforms.lesion_synthesis.parameters import (
    UNIFORMS_PER_LESION,
    LesionSettings,
    draw_lesion_parameters,
)
from monai_afire.transforms.lesion_synthesis.synth_lesion_mask import (
    SynthLesionMask,
    synth_lesion_masks,
)
from tests.benchmarks.timing import machine, timed
from tests.naive.lesions import naive_lesion_map

__all__ = ["main"]


def naive_batch(images: torch.Tensor, num_masks: int) -> list[object]:
    """The same work as `synth_lesion_masks`, map by map and pixel by pixel."""
    settings = LesionSettings()
    shape = (images.shape[0], num_masks, 4, UNIFORMS_PER_LESION)
    parameters = draw_lesion_parameters(images, settings, torch.rand(shape))
    sources = images.mean(1).numpy()
    return [
        naive_lesion_map(sources[b], parameters, b, n)
        for b in range(len(images))
        for n in range(num_masks)
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--masks", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    images = torch.rand((options.images, 1, options.side, options.side), device=device)
    image, transform = images[0].cpu(), SynthLesionMask(options.masks)
    num_maps = options.images * options.masks
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "boxes": (num_maps, lambda: synth_lesion_masks(images, options.masks, backend="boxes")),
        "dense": (num_maps, lambda: synth_lesion_masks(images, options.masks, backend="dense")),
        "transform, one image": (options.masks, lambda: transform(image)),
        "loop over pixels": (2, lambda: naive_batch(images[:1].cpu(), 2)),
    }
    if device.type == "cuda":
        del ways["boxes"]
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _, function in ways.values():
        function()
    until = time.perf_counter() + options.seconds * len(ways)
    while time.perf_counter() < until:
        for name, (_, function) in ways.items():
            times[name] += [
                timed(function, device) for _ in range(1 if name.startswith("loop") else 10)
            ]
    medians = {
        name: sorted(values)[len(values) // 2] / ways[name][0] for name, values in times.items()
    }
    slowest = medians["loop over pixels"]
    print(
        f"{options.images} images {options.side} x {options.side}, {options.masks} maps each; {machine(device)}"
    )
    print(f"{'way':<24}{'maps/s (median)':>16}{'best':>10}{'ratio of medians':>18}")
    for name, median in medians.items():
        best = ways[name][0] / min(times[name])
        print(f"{name:<24}{1 / median:>16.1f}{best:>10.1f}{slowest / median:>18.0f}")


if __name__ == "__main__":
    main()
