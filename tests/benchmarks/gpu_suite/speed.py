# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Speed at the papers' size: whole steps beside the slow way, the parts, and inference."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from monai_afire.transforms import synth_lesion_masks
from tests.benchmarks.gpu_suite.inference import measure_inference
from tests.benchmarks.gpu_suite.results import Deadline, Results
from tests.benchmarks.pretraining_step import (
    METHODS,
    OVERLAYS,
    PUBLISHED,
    BundleCase,
    TrainingStep,
    loader_rate,
)
from tests.benchmarks.throughput import count_flops, matmul_peak, nominal_peak
from tests.benchmarks.timing import take_turns

__all__ = ["WAYS", "measure_speed"]

WAYS = ("naive", "eager", "compiled")

VARIANTS = 9  # AFiRe's lesion images of each image
NAIVE_BATCH = 16  # of the slow way, which needs more memory for each image
ROUNDS = 5
LARGEST_BATCH = 512
# seconds that must be left to begin with a measurement: a compilation may take minutes
NEEDED = {"eager": 20, "compiled": 90, "naive": 20}


def measure_speed(options: argparse.Namespace, results: Results, deadline: Deadline) -> None:
    """
    Measure everything for which there is time, the most telling first.

    Args:
        options: `device` and `size` of the suite.
        results: get sections "steps", "parts" and "inference".
        deadline: nothing is begun that would not end before it.
    """
    device = torch.device(options.device)
    sides = (64, 128) if options.size == "tiny" else ()
    measured = matmul_peak(device, torch.bfloat16, sides)
    peak = nominal_peak(device) or measured
    results.add("about", "TFLOP/s of the fastest bfloat16 product", round(measured / 1e12, 3))
    results.add("about", "TFLOP/s that MFU is a share of", round(peak / 1e12, 3))
    measure_parts(options, results, device)
    sizes = ("tiny",) if options.size == "tiny" else tuple(OVERLAYS)
    cases = [
        (method, size)
        for size in sizes
        for method in METHODS
        if method in OVERLAYS.get(size, METHODS)
    ]
    for method, size in cases:
        measure_method(method, size, options.ways, device, peak, results, deadline)
    measure_inference(options, results, device, deadline, NEEDED)


def measure_method(
    method: str,
    size: str,
    ways: Sequence[str],
    device: torch.device,
    peak: float,
    results: Results,
    deadline: Deadline,
) -> None:
    """One row of each way of taking a method's steps."""
    naive_rate = 0.0
    for way in ways:
        if way == "naive" and method not in PUBLISHED:
            continue
        name = f"{method}, {size}, {way}"
        if deadline.left < NEEDED[way]:
            results.add("steps", name, "no time left")
            continue
        try:
            row = measure_way(method, size, way, device, peak)
        except Exception as error:
            # one way that fails is a result, too, and must not cost the others
            results.add(
                "steps", name, f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            )
            continue
        naive_rate = row["images/s"] if way == "naive" else naive_rate
        if naive_rate:
            row["to naive"] = round(row["images/s"] / naive_rate, 2)
        results.add("steps", name, row)


def measure_way(
    method: str, size: str, way: str, device: torch.device, peak: float
) -> dict[str, Any]:
    """Images/s, MFU, memory and shares of one way at the largest batch that fits."""
    torch.manual_seed(0)
    case = BundleCase(method, size, device, VARIANTS if size != "tiny" else 2)
    torch.compiler.reset()  # else the graphs of the last method count against this one's limit
    step = (
        TrainingStep.naive(case, 0)
        if way == "naive"
        else TrainingStep.of_package(case, True, 0, way == "compiled")
    )
    # memory is looked for, and operations are counted, without a graph
    eager = replace(step, run=step.network)
    batch = fitting_batch(case, eager, NAIVE_BATCH if way == "naive" else LARGEST_BATCH)
    images = len(next(iter(batch.values())))
    flops = count_flops(lambda: eager(dict(batch)))
    reset_memory(device)
    step(dict(batch))  # compiles, where it is to be compiled
    step.seconds()
    seconds = take_turns({"": lambda: step(dict(batch))}, ROUNDS if size != "tiny" else 2, device)[
        ""
    ]
    middle = median(seconds)
    row: dict[str, Any] = {
        "batch": images,
        "images/s": round(images / middle, 2),
        "s/step": round(middle, 4),
        "range": f"{min(seconds):.4f} to {max(seconds):.4f}",
        "TFLOP/s": round(flops / middle / 1e12, 3),
        "MFU": f"{flops / middle / peak:.1%}",
        "GiB": round(torch.cuda.max_memory_allocated(device) / 2**30, 2)
        if device.type == "cuda"
        else "",
    }
    parts = step.seconds()
    total = sum(parts.values())
    row["shares"] = ", ".join(
        f"{part} {value / total:.0%}" for part, value in parts.items() if value
    )
    prepared = loader_rate(case, 8)
    row["loader images/s and process"] = round(prepared, 1)
    row["loader processes needed"] = round(images / middle / prepared, 1)
    return row


def fitting_batch(case: BundleCase, step: TrainingStep, largest: int) -> dict[str, torch.Tensor]:
    """The largest batch, by doubling, that a step fits into the GPU's memory; a small one on a CPU."""
    if case.device.type != "cuda":
        return case.make_batch(2)
    images, fits = 8, None
    while images <= largest:
        try:
            batch = case.make_batch(images) if fits is None else repeated(fits, 2)
            step(dict(batch))
            torch.cuda.synchronize(case.device)
        except torch.cuda.OutOfMemoryError:
            break
        images, fits = 2 * images, batch
    reset_memory(case.device)
    if fits is None:
        raise MemoryError("not even 8 images fit")
    return fits


def repeated(batch: dict[str, torch.Tensor], times: int) -> dict[str, torch.Tensor]:
    """A larger batch of the same images: speed does not depend on what they show."""
    larger = {name: torch.cat([value] * times) for name, value in batch.items()}
    return {name: value.pin_memory() for name, value in larger.items()}


def reset_memory(device: torch.device) -> None:
    """Forget the peak, and give back what a failed attempt has left."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def measure_parts(options: argparse.Namespace, results: Results, device: torch.device) -> None:
    """Lesion maps, AFiRe's head and its losses alone, each a call that a GPU has much to do with."""
    tiny = options.size == "tiny"
    images, side, masks = (2, 32, 2) if tiny else (64, 224, VARIANTS)
    pictures = torch.rand(images, 1, side, side, device=device)
    torch.manual_seed(0)
    case = BundleCase("afire", options.size, device, masks)
    network, loss = case["network"], case["loss"]
    width = network.encoder.hidden_size
    tokens = torch.rand(images * masks, network.encoder.grid_size[0] ** 2, width, device=device)
    given, _, others, _ = case["train::prepare_batch"](case.make_batch(2), device)
    # leaves, so that the losses' own gradient can be taken again and again
    outputs = {
        name: value.detach().requires_grad_(value.is_floating_point())
        if isinstance(value, torch.Tensor)
        else value
        for name, value in network(given, *others).items()
    }
    calls: dict[str, tuple[float, str, Callable[[], Any]]] = {
        "lesion maps": (
            images * masks,
            "maps/s",
            lambda: synth_lesion_masks(pictures, masks),
        ),
        "head, forward and backward": (
            len(tokens),
            "images/s",
            lambda: network.head(tokens).sum().backward(),
        ),
        "losses, forward and backward": (2 * masks, "images/s", lambda: loss(outputs).backward()),
    }
    for name, (amount, unit, call) in calls.items():
        with torch.autocast(device.type, torch.bfloat16):
            seconds = median(take_turns({name: call}, 2 if tiny else 20, device)[name])
        results.add(
            "parts", name, {unit: round(amount / seconds, 1), "ms": round(1e3 * seconds, 3)}
        )
