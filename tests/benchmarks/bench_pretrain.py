# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Speed of whole pre-training steps of AFiRe, PEAC and ACE, as the bundles configure them, next to the slow way.

    python -m tests.benchmarks.bench_pretrain [--method afire] [--batch 4] [--variants 4] [--rounds 3]
    python -m tests.benchmarks.bench_pretrain --method afire --batch 64 --variants 9 --micro-batch 16 --compile  # GPU

Run it from the repository's root. All ways take their steps in turn in one run, so that a machine whose speed drifts
is fair to all. Printed are

* images and samples (lesion variants of AFiRe, crops of PEAC and ACE) per second at the median step, and the steps'
  seconds as median and range,
* TFLOP/s: products and convolutions of the way's own step (torch.utils.flop_counter) per second, and their share of
  the peak, the fastest square product of the same number format that was measured in this run; on a GPU that is known
  the share of the data sheet's bfloat16 peak too,
* the share of time per part; "data" is the copy to the device, with AFiRe the synthesis of lesions too,
* peak memory of a GPU, with the weights of all ways (measure one alone by --no-naive --precision bf16),
* images per second that one process of a loader prepares, from the decoded image on, and how many of them the fastest
  way needs.

The slow way is described in tests/naive/published_methods.py. It gets the same batches, lesions included.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median

import torch
from tqdm.auto import tqdm

from monai_afire.utils import join_process_group, run_device
from monai_afire.utils.device import default_device
from tests.benchmarks.pretraining_step import (
    METHODS,
    PARTS,
    PUBLISHED,
    BundleCase,
    TrainingStep,
    loader_rate,
)
from tests.benchmarks.throughput import count_flops, matmul_peak, nominal_peak
from tests.benchmarks.timing import machine, take_turns

__all__ = ["main"]

NAIVE = "naive, float32"


def parse_options(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", nargs="+", choices=METHODS, default=PUBLISHED)
    parser.add_argument("--batch", type=int, default=4, help="images of a step")
    parser.add_argument(
        "--variants", type=int, default=4, help="AFiRe's lesion variants of each image"
    )
    parser.add_argument("--micro-batch", type=int, default=0, help="images of each pass, 0 for all")
    parser.add_argument(
        "--precision", nargs="+", choices=("fp32", "bf16"), default=("fp32", "bf16")
    )
    parser.add_argument(
        "--size", choices=("tiny", "default", "paper"), default="paper", help="networks"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--compile", action="store_true", help="torch.compile of the package's network"
    )
    parser.add_argument("--no-naive", action="store_true", help="leave the slow way out")
    parser.add_argument("--device", default=str(default_device()))
    return parser.parse_args(words)


def way_names(options: argparse.Namespace, method: str) -> list[str]:
    """What is compared, the slow way first, where there is one."""
    naive = [NAIVE] if method in PUBLISHED and not options.no_naive else []
    return naive + [f"monai_afire, {precision}" for precision in options.precision]


def make_case(options: argparse.Namespace, method: str) -> BundleCase:
    """The method's bundle; its network is the same every time."""
    torch.manual_seed(0)
    return BundleCase(method, options.size, torch.device(options.device), options.variants)


def make_step(options: argparse.Namespace, method: str, name: str) -> TrainingStep:
    """One way of taking the method's steps."""
    case = make_case(options, method)
    if name == NAIVE:
        return TrainingStep.naive(case, options.micro_batch)
    return TrainingStep.of_package(
        case, name.endswith("bf16"), options.micro_batch, options.compile
    )


def memory_of(step: Callable[[], object], device: torch.device) -> float:
    """Peak memory of a step on a GPU in MB."""
    torch.cuda.reset_peak_memory_stats(device)
    step()
    return torch.cuda.max_memory_allocated(device) / 2**20


def print_speed(
    times: dict[str, list[float]],
    flops: dict[str, int],
    peaks: dict[str, float],
    options: argparse.Namespace,
    samples_per_image: int,
) -> None:
    """A row of each way."""
    sheet = nominal_peak(torch.device(options.device))
    columns = [
        f"{'way':<20}",
        "images/s",
        "samples/s",
        "s/step",
        f"{'min..max':>16}",
        "TFLOP/s",
        "of peak",
    ]
    columns += ["of sheet"] * (sheet is not None) + ["to naive"] * (NAIVE in times)
    print(" ".join(f"{column:>9}" for column in columns))
    for name, values in times.items():
        middle = median(values)
        achieved, peak = flops[name] / middle, peaks["bf16" if name.endswith("bf16") else "fp32"]
        cells = [
            f"{name:<20}",
            f"{options.batch / middle:.2f}",
            f"{options.batch * samples_per_image / middle:.2f}",
        ]
        cells += [f"{middle:.3f}", f"{f'{min(values):.3f}..{max(values):.3f}':>16}"]
        cells += [f"{achieved / 1e12:.3f}", f"{achieved / peak:.1%}"]
        cells += [f"{achieved / sheet:.1%}"] if sheet is not None else []
        cells += [f"{median(times[NAIVE]) / middle:.2f} x"] if NAIVE in times else []
        print(" ".join(f"{cell:>9}" for cell in cells), flush=True)


def print_parts(seconds: dict[str, dict[str, float]], memory: dict[str, float]) -> None:
    """A row of each way: the share of its time per part, and its memory."""
    print(
        "\n"
        + f"{'share of time':<20}"
        + "".join(f"{part:>16}" for part in PARTS)
        + f"{'peak memory':>16}"
    )
    for name, parts in seconds.items():
        shares = "".join(f"{value / sum(parts.values()):>16.1%}" for value in parts.values())
        print(
            f"{name:<20}{shares}"
            + (f"{memory[name]:>13.0f} MB" if name in memory else f"{'-':>16}"),
            flush=True,
        )


def bench_method(options: argparse.Namespace, method: str, peaks: dict[str, float]) -> None:
    """Measure and print one method."""
    device, case = torch.device(options.device), make_case(options, method)
    batch, names = case.make_batch(options.batch), way_names(options, method)
    steps = {name: make_step(options, method, name) for name in names}
    warm_up = int(options.compile or device.type == "cuda")
    with tqdm(
        total=(1 + warm_up + options.rounds) * len(names), desc=f"{method}, steps", leave=False
    ) as progress:

        def take(step: TrainingStep) -> None:
            step(batch)
            progress.update()

        # this is the first warm-up; operations cannot be counted inside a compiled network
        flops = {
            name: count_flops(lambda step=step: take(replace(step, run=step.network)))
            for name, step in steps.items()
        }
        calls = {name: partial(take, step) for name, step in steps.items()}
        take_turns(calls, warm_up, device, warm_up=0)
        for step in steps.values():
            step.seconds()
        times = take_turns(calls, options.rounds, device, warm_up=0)
        seconds = {name: step.seconds() for name, step in steps.items()}
    passes = f"{options.micro_batch or options.batch} images in a pass"
    samples = f"{case.samples_per_image} samples of each"
    print(f"\n{method}, {options.size} network: {options.batch} images, {samples}, {passes}")
    print_speed(times, flops, peaks, options, case.samples_per_image)
    memory = {}
    if device.type == "cuda":
        memory = {name: memory_of(calls[name], device) for name in names}
    print_parts(seconds, memory)
    prepared = loader_rate(case, options.batch)
    needed = options.batch / min(median(values) for values in times.values()) / prepared
    print(
        f"one process of a loader prepares {prepared:.1f} images/s; {needed:.1f} of them keep the fastest way busy"
    )


def main(words: list[str] | None = None) -> None:
    """Print the tables of every method."""
    options = parse_options(words)
    join_process_group(run_device())  # for its precision of products
    device = torch.device(options.device)
    print(machine(device))
    formats = {"fp32": torch.float32, "bf16": torch.bfloat16}
    sides = (64, 128) if options.size == "tiny" else ()
    peaks = {name: matmul_peak(device, dtype, sides) for name, dtype in formats.items()}
    print(
        "peak of products: "
        + ", ".join(f"{name} {peak / 1e12:.3f} TFLOP/s" for name, peak in peaks.items())
    )
    for method in options.method:
        bench_method(options, method, peaks)


if __name__ == "__main__":
    main()
