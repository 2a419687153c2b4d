# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Very many small images in shards and as files: writing, start, resume in mid-epoch, reading in random order, memory.

    python -m tests.benchmarks.bench_shards [--images 800000] [--reads 20000] [--folder DIR] [--num_workers 0]

The pictures are PNG of 32 x 32 pixels, so that finding and opening a file is nearly all there is to do. Seconds are of
the wall and of the processor; start and resume run in fresh processes, whose peak memory holds the libraries too.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from monai.data import DataLoader
from PIL import Image

from monai_afire.data import DistributedRandomSampler, bundle_items, cached_dataset, write_shards
from monai_afire.transforms import LoadRadiographd
from monai_afire.transforms.radiograph_io.shards import open_file
from tests.benchmarks.timing import in_own_process, machine, peak_memory

__all__ = ["main"]

_PER_FOLDER = 1000
_KINDS = 256  # different pictures


def make_files(root: Path, images: int) -> int:
    """A folder of as many files; returns their bytes."""
    generator = np.random.default_rng(0)
    contents = []
    for _ in range(_KINDS):
        stream = io.BytesIO()
        Image.fromarray((generator.integers(0, 4, (32, 32)) * 64).astype(np.uint8)).save(stream, "PNG")
        contents.append(stream.getvalue())
    for place in range(images):
        folder = root / f"images_{place // _PER_FOLDER:03d}"
        if place % _PER_FOLDER == 0:
            folder.mkdir(parents=True)
        with open(f"{folder}/{place // 4:08d}_{place % 4:03d}.png", "wb") as stream:
            stream.write(contents[place % _KINDS])
    return sum(len(contents[place % _KINDS]) for place in range(images))


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the wall and of the processor."""
    start, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - processor


def first_batch(folder: str, from_image: int, num_workers: int) -> None:
    """What a run does until its first batch, which is from within the epoch if it resumes."""
    items = bundle_items("training", folder)
    dataset = cached_dataset(items, LoadRadiographd("image"), "none")
    sampler = list(DistributedRandomSampler(dataset, seed=0, num_replicas=1, rank=0))[from_image:]
    next(iter(DataLoader(dataset, batch_size=64, sampler=sampler, num_workers=num_workers)))


def measure_first_batch(folder: str, from_image: int, num_workers: int) -> tuple[float, float, float, float]:
    """Seconds and memory of :func:`first_batch`, for a process of its own."""
    libraries = peak_memory()
    seconds = timed(lambda: first_batch(folder, from_image, num_workers))
    return (*seconds, libraries, peak_memory())


def read(folder: str, reads: int) -> None:
    """Print images per second of the wall and of the processor, in random order."""
    items = bundle_items("all", folder)
    order = np.random.default_rng(1).permutation(len(items))[:reads]
    load = LoadRadiographd("image")

    def read_bytes(path: str) -> bytes:
        with open_file(path) as stream:
            return stream.read()

    for name, work in (
        ("bytes", lambda: [read_bytes(items[place]["image"]) for place in order]),
        ("pictures", lambda: [load(items[place]) for place in order]),
    ):
        wall, processor = timed(work)
        print(f"  {name}: {len(order) / wall:,.0f} a second, {len(order) / processor:,.0f} a CPU second", flush=True)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=800_000)
    parser.add_argument("--reads", type=int, default=20_000)
    parser.add_argument("--num_workers", type=int, default=0)
    parser.add_argument("--folder", help="where the files are made, in a folder that is deleted (default: temporary)")
    options = parser.parse_args()
    print(machine())
    root = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        compare(root, options)
    finally:
        shutil.rmtree(root)


def compare(root: Path, options: argparse.Namespace) -> None:
    """Make, write and read."""
    files, shards = root / "files", root / "shards"
    print("files made: {:.0f} s, {:.0f} CPU s".format(*timed(lambda: make_files(files, options.images))), flush=True)
    wall, processor = timed(lambda: print(write_shards(shards, files, progress=False)))
    print(f"shards written: {wall:.0f} s, {processor:.0f} CPU s, {options.images / processor:,.0f} images a CPU second")
    for folder in (files, shards):
        print(f"{folder.name}:")
        for name, place in (("start", 0), ("resume in mid-epoch", options.images // 2)):
            arguments = (str(folder), place, options.num_workers)
            wall, processor, libraries, most = in_own_process(measure_first_batch, *arguments)
            cost = f"{wall:.1f} s, {processor:.1f} CPU s"
            memory = f"{most - libraries:.0f} MB beside {libraries:.0f} MB of the libraries"
            print(f"  {name} to the first batch: {cost}, {memory}", flush=True)
        read(str(folder), options.reads)


if __name__ == "__main__":
    main()
