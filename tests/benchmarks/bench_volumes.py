# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Time and memory of whole pre-training steps on volumes, as the bundles' overlays volume.json configure them.

    python -m tests.benchmarks.bench_volumes [--method afire mae] [--image_size 96] [--patch_size 8 16]
    python -m tests.benchmarks.bench_volumes --checkpointing on --set hidden_size=768 num_layers=12 num_heads=12
    python -m tests.benchmarks.bench_volumes --attention fused  # as a GPU attends

Run it from the repository's root. Every case, a method with a patch size, a setting and a batch, has a process of its
own: its peak is the largest resident memory (on a GPU: the largest allocated) of its steps, libraries and weights
included. tune_cpu() is not called: it keeps freed memory for the next tensor, whose gaps would count with what is in
use (a training on a CPU does call it, is faster, and takes somewhat more). The volumes are noise, cut and hidden as a
loader does it before the steps; AFiRe's lesions belong to the step. Printed are, of each method and setting,

* seconds of a step of the smallest batch (on a CPU seconds of the core, so that others on the machine do not count)
  and volumes per second, both at the median step after one that is not counted,
* the peak of the smallest batch, and from those of the smallest and the largest batch what each volume more takes,
* the largest batch that fits: a straight line through both peaks, not a run.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from typing import Any

import torch
from tqdm.auto import tqdm

from monai_afire.networks.blocks import DeviceSelfAttention
from monai_afire.utils import default_device
from tests.benchmarks.pretraining_step import METHODS, BundleCase, TrainingStep
from tests.benchmarks.timing import in_own_process, machine, peak_memory, reset_peak_memory

__all__ = ["Case", "Peaks", "main", "volume_options"]

ATTENTION = {"device": None, "explicit": False, "fused": True}
_MIB_OF_GIB = 1024


@dataclass(frozen=True)
class Case:
    """One process: a method, its setting and a batch."""

    method: str
    patch_size: int
    checkpointing: bool
    bf16: bool
    batch: int

    @property
    def setting(self) -> Case:
        """The case whatever its batch."""
        return replace(self, batch=0)


@dataclass(frozen=True)
class Peaks:
    """
    Peak memory as a straight line of the batch.

    Args:
        smallest, largest: batch and its peak in MB; the same twice where one batch was measured.
    """

    smallest: tuple[int, float]
    largest: tuple[int, float]

    @property
    def of_volume(self) -> float:
        """MB of each volume more; NaN from one batch."""
        volumes = self.largest[0] - self.smallest[0]
        return (self.largest[1] - self.smallest[1]) / volumes if volumes else float("nan")

    def fitting(self, memory: float) -> int | None:
        """Largest batch within as many MB; None where the line does not rise."""
        if not self.of_volume > 0:
            return None
        return max(0, int(self.smallest[0] + (memory - self.smallest[1]) / self.of_volume))


def volume_options(method: str, image_size: int, patch_size: int) -> dict[str, Any]:
    """A bundle's options for volumes of a size, in the proportions of its volume.json."""
    cells = image_size // patch_size
    own: dict[str, dict[str, Any]] = {
        "peac": {"grid": cells + max(2, cells // 3)},
        "ace": {"grid": 2 * cells + 2, "cell": patch_size // 2},
        "dino": {"make_crops::local_size": image_size // 2 // patch_size * patch_size},
    }
    return {"image_size": image_size, "patch_size": patch_size, **own.get(method, {})}


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--image_size", type=int, default=96, help="side of the cubes in voxels")
    parser.add_argument("--patch_size", type=int, nargs="+", default=[8, 16], help="side of the patches")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 2], help="volumes of a step")
    parser.add_argument("--checkpointing", nargs="+", choices=("off", "on"), default=("off", "on"))
    parser.add_argument("--precision", nargs="+", choices=("bf16", "fp32"), default=("bf16",))
    parser.add_argument("--attention", choices=ATTENTION, default="device", help="kernel; by default the device's")
    parser.add_argument("--variants", type=int, default=2, help="AFiRe's lesion variants of each volume")
    parser.add_argument("--memory", type=float, default=24, help="GiB that the largest batch is to fit")
    parser.add_argument("--rounds", type=int, default=1, help="steps that count")
    parser.add_argument("--set", nargs="+", default=(), metavar="NAME=VALUE", help="options of the bundles")
    parser.add_argument("--device", default=str(default_device()))
    return parser.parse_args()


def cases_of(options: argparse.Namespace) -> list[Case]:
    """All cases, those of one setting side by side."""
    axes = (options.method, options.patch_size, options.checkpointing, options.precision, sorted(set(options.batch)))
    return [
        Case(method, patch_size, checkpointing == "on", precision == "bf16", batch)
        for method, patch_size, checkpointing, precision, batch in product(*axes)
    ]


def make_case(options: argparse.Namespace, case: Case) -> BundleCase:
    """The bundle as configured for the case."""
    overrides = volume_options(case.method, options.image_size, case.patch_size)
    encoder = "encoder_def" if case.method == "mae" else "own_encoder"
    decoder = ["network_def"] if case.method in ("afire", "mae") else []
    overrides |= {f"{part}::use_checkpoint": case.checkpointing for part in [encoder, *decoder]}
    for assignment in options.set:
        name, _, value = assignment.partition("=")
        overrides[name] = json.loads(value)
    torch.manual_seed(0)
    return BundleCase(
        case.method, "default", torch.device(options.device), options.variants, ["volume.json"], overrides
    )


def measure(options: argparse.Namespace, case: Case) -> tuple[float, float]:
    """Seconds of a step and the peak in MB, for a process of its own."""
    device = torch.device(options.device)
    bundle = make_case(options, case)
    step = TrainingStep.of_package(bundle, case.bf16, micro_batch=0, compiled=False)
    for layer in step.network.modules():
        if isinstance(layer, DeviceSelfAttention):
            layer.fused = ATTENTION[options.attention]
    batch = bundle.make_batch(case.batch)
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        reset_peak_memory()
    seconds = []
    for _ in range(1 + options.rounds):
        start = clock()
        step(dict(batch))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(clock() - start)
    peak = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else peak_memory()
    return median(seconds[1:]), peak


def run(options: argparse.Namespace, case: Case) -> tuple[float, float]:
    """Seconds of a step and the peak in MB."""
    # a fork has imported already; one of a process that has started CUDA could not use it
    start_method = "spawn" if options.device.startswith("cuda") else "fork"
    try:
        return in_own_process(measure, options, case, start_method=start_method)
    except BrokenProcessPool as error:
        raise RuntimeError(f"{case} ended before it was measured") from error


def row(setting: Case, found: dict[int, tuple[float, float]], memory: float) -> str:
    """A line of the table, of a setting's seconds and peaks by batch."""
    small, large = min(found), max(found)
    seconds, peak = found[small]
    peaks = Peaks((small, peak), (large, found[large][1]))
    fitting = peaks.fitting(memory * _MIB_OF_GIB)
    cells = [setting.method, setting.patch_size, "on" if setting.checkpointing else "off"]
    cells += ["bf16" if setting.bf16 else "fp32", f"{seconds:.1f}", f"{small / seconds:.3f}", f"{peak:.0f}"]
    cells += [f"{peaks.of_volume:.0f}", "-" if fitting is None else fitting]
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """Print a table in Markdown."""
    options = parse_options()
    print(f"{machine(options.device)}; cubes of {options.image_size}, attention: {options.attention}")
    titles = ("method", "patch", "checkpointing", "precision", f"s/step of {min(options.batch)}", "volumes/s")
    titles += (f"MB with {min(options.batch)}", "MB a volume more", f"batch in {options.memory:g} GB")
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|", flush=True)
    found: dict[Case, dict[int, tuple[float, float]]] = {}
    for case in tqdm(cases := cases_of(options), unit="case", leave=False):
        found.setdefault(case.setting, {})[case.batch] = run(options, case)
        if len(found[case.setting]) == len([other for other in cases if other.setting == case.setting]):
            tqdm.write(row(case.setting, found[case.setting], options.memory))


if __name__ == "__main__":
    main()
