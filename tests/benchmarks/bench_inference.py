# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Scoring a folder with the released detector: where the time goes, and what a second process brings.

The ratio means something on a free machine alone: under load, two processes get twice the share of one.
``python -m tests.benchmarks.bench_inference --dataset_dir FOLDER`` measures on the user's own files. Without a folder
it writes DICOM files of 1024 x 1024 pixels with drawn chests.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.bundle import ConfigParser

from monai_afire.apps.worklist.anomaly_result import KINDS
from monai_afire.data.datalist.scanning import RESULTS_MARK
from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.utils import join_process_group, run_device
from tests.unit.transforms.radiograph_files import write_dicom

SIDE = 1024
CONFIGS = ["bundles/afire/configs/inference.json"]


def write_radiographs(folder: Path, count: int) -> None:
    """DICOM files of eight drawn chests, each with noise of its own."""
    drawn = [draw_chest_phantom(seed, SIDE).image[0] for seed in range(8)]
    for number in range(count):
        noise = np.random.default_rng(number).integers(0, 16, (SIDE, SIDE))
        pixels = (4000 * drawn[number % len(drawn)] + noise).astype(np.uint16)
        write_dicom(folder / f"{number:05}.dcm", pixels, bits=12, ViewPosition="PA", Modality="DX")


def profile(images: Path, output: Path) -> None:
    """Print the CPU time of each part of one process; waiting does not count."""
    join_process_group(run_device())  # as a bundle does
    parser = ConfigParser()
    parser.read_config(CONFIGS[:2])
    parser.update({"dataset_dir": str(images), "output_dir": str(output)})
    seconds: dict[str, float] = defaultdict(float)

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            start = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                seconds[name] += time.thread_time() - start

        return call

    start = time.process_time()
    load, writer = parser.get_parsed_content("load_image"), parser.get_parsed_content("writer")
    names = ("decode", "picture for the overlay", "resize", "geometry")
    load.transforms = tuple(
        timed(name, part) for name, part in zip(names, load.transforms, strict=True)
    )
    for kind, (suffix, content_of) in KINDS.items():
        KINDS[kind] = (suffix, timed(kind, content_of))
    for name in ("collect", "complete"):
        setattr(
            writer,
            name,
            timed({"collect": "rows", "complete": "work-list, page"}[name], getattr(writer, name)),
        )
    evaluator = parser.get_parsed_content("evaluator")
    evaluator.inferer = timed("network", evaluator.inferer)
    seconds["start"] = time.process_time() - start
    wall = time.perf_counter()
    evaluator.run()
    wall, total = time.perf_counter() - wall, time.process_time() - start
    seconds["rest"] = total - sum(seconds.values())
    count = len(writer.items)
    print(
        f"{count} files in {wall:.0f} s; load {os.getloadavg()[0]:.1f}\n{'part':<26}{'ms per file':>12}{'share':>8}"
    )
    for name, spent in sorted(seconds.items(), key=lambda entry: -entry[1]):
        print(f"{name:<26}{1000 * spent / count:>12.2f}{spent / total:>8.1%}")


def child_cpu() -> float:
    """CPU seconds of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_seconds(images: Path, output: Path, processes: int, cores: set[int]) -> tuple[float, float]:
    """Seconds on the clock from the first result to the page, and CPU seconds of the whole run with its start."""
    shutil.rmtree(output, ignore_errors=True)
    module = [
        "-m",
        "monai.bundle",
        "run",
        "--dataset_dir",
        str(images),
        "--output_dir",
        str(output),
    ]
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] * (
        processes > 1
    )
    files = CONFIGS if processes > 1 else CONFIGS[:2]
    command = [sys.executable, *launcher, *module, "--config_file", str(files)]
    before = child_cpu()
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # what is started inherits it
    try:
        subprocess.run(
            command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
    finally:
        os.sched_setaffinity(0, everywhere)
    # one process marks the folder after its first batch, two before theirs: a little too good for one
    first, last = ((output / name).stat().st_mtime for name in (RESULTS_MARK, "worklist.html"))
    return last - first, child_cpu() - before


def compare(images: Path, output: Path, pairs: int, one_core: bool) -> None:
    """Print files per second of one and of two processes, measured in turns, and the median ratio."""
    count, ratios, cores = len(list(images.iterdir())), [], sorted(os.sched_getaffinity(0))
    for _ in range(pairs):
        one, cpu_one = run_seconds(images, output, 1, set(cores[:1] if one_core else cores))
        two, cpu_two = run_seconds(images, output, 2, set(cores[:2] if one_core else cores))
        ratios.append(one / two)
        print(
            f"one process: {count / one:.1f} files/s, {1000 * cpu_one / count:.0f} ms of CPU per file with the start",
            flush=True,
        )
        print(
            f"two processes: {count / two:.1f} files/s, {1000 * cpu_two / count:.0f} ms of CPU per file with the start"
        )
        print(f"{ratios[-1]:.2f} times as fast; load {os.getloadavg()[0]:.1f}", flush=True)
    print(
        f"two processes are {statistics.median(ratios):.2f} times as fast as one ({os.cpu_count()} cores)"
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--dataset_dir", type=Path, help="folder of radiographs, without subfolders"
    )
    parser.add_argument(
        "--count", type=int, default=400, help="files to write without a folder (default: 400)"
    )
    parser.add_argument(
        "--pairs", type=int, default=3, help="runs by one and by two processes; 0 for none"
    )
    parser.add_argument(
        "--one_core", action="store_true", help="each process has one core, so one has half of two"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        images = options.dataset_dir or Path(folder, "images")
        if options.dataset_dir is None:
            images.mkdir()
            write_radiographs(images, options.count)
        profile(images, Path(folder, "profiled"))
        if options.pairs:
            compare(images, Path(folder, "output"), options.pairs, options.one_core)


if __name__ == "__main__":
    main()
