# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Data sets of the size of the papers': start-up with 800,000 images, growth of the loader's workers, loading of files.

    python -m tests.benchmarks.bench_data startup [--images 800000] [--findings 14] [--folder DIR]
    python -m tests.benchmarks.bench_data workers [--images 800000] [--num_workers 8]
    python -m tests.benchmarks.bench_data loading [--sizes 1024x1024 2500x2048] [--num_workers 0 2] [--images 16]
    python -m tests.benchmarks.bench_data caches [--size 224] [--images 64]

Each way of `startup` runs in a fresh process, whose peak memory holds the libraries too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import torch
from monai.data import DataLoader, Dataset
from monai.data.utils import set_rnd
from monai.transforms import Compose, EnsureTyped, LoadImaged, Resized
from PIL import Image
from pydicom.uid import ExplicitVRLittleEndian, RLELossless
from torch.utils.data import RandomSampler

from monai_afire.data import bundle_items, cached_dataset, labeled_items, normal_items
from monai_afire.data.datalist.labels import check_label_table
from monai_afire.data.phantom import ChestPhantomDataset
from monai_afire.transforms import LoadRadiographd
from tests.benchmarks.timing import in_own_process, machine
from tests.unit.transforms.radiograph_files import write_dicom

__all__ = ["main"]

_PER_FOLDER = 1000


def make_tree(root: Path, images: int, findings: int) -> Path:
    """A folder of as many (empty) files, as public sets have them, and their datalist."""
    items: list[dict[str, Any]] = []
    for place in range(images):
        folder = root / f"images_{place // _PER_FOLDER:03d}"
        if place % _PER_FOLDER == 0:
            folder.mkdir(parents=True, exist_ok=True)
        name = f"{place // 4:08d}_{place % 4:03d}.png"
        (folder / name).touch()
        label = [int(place % (2 * findings) == finding) for finding in range(findings)]
        items.append(
            {"image": f"{folder.name}/{name}", "label": label, "patient_id": f"{place // 4:08d}"}
        )
    limit = images - images // 40
    (root / "list.json").write_text(
        json.dumps({"training": items[:limit], "validation": items[limit:]})
    )
    return root / "list.json"


def startup_way(way: str, path: str, findings: int) -> tuple[float, float, float, float]:
    """What a run does with its data before the first step; in a process of its own."""
    libraries, start = peak(), time.perf_counter()
    cpu = time.process_time()
    kept = []
    for section in ("training", "validation"):
        if way == "folder (PEAC, ACE)":
            kept.append(bundle_items(section, str(Path(path).parent)))
        elif way == "datalist (AFiRe)":
            items = bundle_items(section, None, path)
            kept += [items, normal_items(items, quiet=True)]
        else:
            items = [
                {**item, "label": item["label"]} for item in labeled_items(section, None, path)
            ]
            kept.append(check_label_table(items, findings, section))
        kept.append(cached_dataset(kept[-1], Compose([]), "none"))
    set_rnd(kept[-1], seed=0)
    return time.perf_counter() - start, time.process_time() - cpu, libraries, peak()


def peak() -> float:
    """Largest resident memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def startup(options: argparse.Namespace) -> None:
    """Print seconds and memory until the data sets are there."""
    with tempfile.TemporaryDirectory() as folder:
        path = make_tree(Path(options.folder or folder), options.images, options.findings)
        print(
            f"{options.images:,} images in folders of {_PER_FOLDER}, list of {path.stat().st_size >> 20} MB"
        )
        print(f"{'way':<28}{'seconds':>9}{'CPU s':>9}{'libraries MB':>14}{'peak MB':>9}")
        for way in ("folder (PEAC, ACE)", "datalist (AFiRe)", "labels (classification)"):
            seconds, cpu, libraries, most = in_own_process(
                startup_way, way, str(path), options.findings
            )
            print(f"{way:<28}{seconds:>9.1f}{cpu:>9.1f}{libraries:>14.0f}{most:>9.0f}", flush=True)


class OwnMemory:
    """Replaces an item by the memory (MB) that its worker shares with nobody; 0 where it is not measured."""

    def __init__(self, every: int) -> None:
        self.every = every  # as it takes long
        self.calls = 0

    def __call__(self, item: dict[str, Any]) -> torch.Tensor:
        """Linux only."""
        self.calls += 1
        if self.calls % self.every:
            return torch.tensor(float(len(item) > len(item["label"])))
        rollup = Path("/proc/self/smaps_rollup").read_text()
        return torch.tensor(
            sum(int(kb) for kb in re.findall(r"Private_\w+:\s+(\d+)", rollup)) / 1024
        )


def workers(options: argparse.Namespace) -> None:
    """Print what each worker needs of its own, at first and after 100,000 items."""
    items = [
        {"image": f"/data/images/{n:08d}_000.png", "label": [n % 2] * 14}
        for n in range(options.images)
    ]
    dataset = Dataset(items, OwnMemory(_PER_FOLDER))
    sampler = RandomSampler(dataset, num_samples=min(len(items), 100_000))
    loader = DataLoader(
        dataset, batch_size=_PER_FOLDER, sampler=sampler, num_workers=options.num_workers
    )
    own = [float(batch.max()) for batch in loader]
    print(
        f"{options.images:,} items, {options.num_workers} workers: {own[0]:.0f} MB each at first, {own[-1]:.0f} at last"
    )


def write_files(
    folder: Path, height: int, width: int, images: int
) -> dict[str, list[dict[str, Any]]]:
    """The phantom in all formats."""
    phantom = ChestPhantomDataset(
        folder / "phantom", "test", num_patients=min(images, 4), image_size=256
    )
    grain = np.random.default_rng(0).normal(0, 0.01, (height, width)).astype(np.float32)
    lists: dict[str, list[dict[str, Any]]] = {}
    for number in range(images):
        picture = Image.fromarray(
            np.asarray(phantom[number % len(phantom)]["image"][0], dtype=np.float32)
        )
        pixels = np.asarray(picture.resize((width, height), Image.Resampling.BICUBIC)) + grain
        deep = (np.clip(pixels, 0, 1) * 4095).astype(np.uint16)
        shallow = Image.fromarray((deep >> 4).astype(np.uint8))
        name = str(folder / f"{number:03d}")
        shallow.save(f"{name}_8.png")
        Image.fromarray(deep).save(f"{name}_16.png")
        shallow.save(f"{name}.jpg", quality=95)
        write_dicom(Path(f"{name}.dcm"), deep, syntax=ExplicitVRLittleEndian)
        compressed = pydicom.dcmread(f"{name}.dcm")
        compressed.compress(RLELossless)
        compressed.save_as(f"{name}_rle.dcm")
        for kind, end in (
            ("PNG 8 bit", "_8.png"),
            ("PNG 16 bit", "_16.png"),
            ("JPEG", ".jpg"),
            ("DICOM", ".dcm"),
            ("DICOM RLE", "_rle.dcm"),
        ):
            lists.setdefault(kind, []).append({"image": name + end})
    return lists


def rate(make: Callable[[], DataLoader], images: int, rounds: int = 3) -> float:
    """Images per second, the best of a few passes after one that is not counted."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        count = sum(len(batch["image"]) for batch in make())
        times.append(time.perf_counter() - start)
        assert count == images
    return images / min(times[1:])


def loading(options: argparse.Namespace) -> None:
    """Print images per second of our reading and MONAI's, with the bundles' resizing behind both."""
    to_size = Resized("image", [options.size, options.size], mode="area", anti_aliasing=False)
    plain = EnsureTyped("image", track_meta=False)
    ways = {
        "LoadRadiographd": [LoadRadiographd("image"), to_size, plain],
        "LoadImaged": [LoadImaged("image", ensure_channel_first=True), to_size, plain],
        # ITK, the default, gives three axes
        "LoadImaged DICOM": [
            LoadImaged("image", "PydicomReader", ensure_channel_first=True),
            to_size,
            plain,
        ],
    }
    print(
        f"{'file':<12}{'pixels':>12}{'workers':>9}{'KB':>8}{'LoadRadiographd/s':>19}{'LoadImaged/s':>14}{'ratio':>7}"
    )
    for size in options.sizes:
        height, width = map(int, size.split("x"))
        with tempfile.TemporaryDirectory() as folder:
            for kind, items in write_files(Path(folder), height, width, options.images).items():
                kilobytes = os.path.getsize(items[0]["image"]) / 1000
                for num_workers in options.num_workers:
                    rates = []
                    other = "LoadImaged DICOM" if kind.startswith("DICOM") else "LoadImaged"
                    for way in ("LoadRadiographd", other):
                        dataset = Dataset(items, Compose(ways[way]))
                        loader = DataLoader(
                            dataset,
                            batch_size=4,
                            num_workers=num_workers,
                            persistent_workers=num_workers > 0,
                        )
                        rates.append(rate(lambda loader=loader: loader, len(items)))
                    ratio = rates[0] / rates[1]
                    print(
                        f"{kind:<12}{size:>12}{num_workers:>9}{kilobytes:>8.0f}{rates[0]:>19.1f}{rates[1]:>14.1f}"
                        f"{ratio:>7.2f}",
                        flush=True,
                    )


def caches(options: argparse.Namespace) -> None:
    """Print what each choice of `cache` gives, and needs on disk for each image."""
    chain = [
        LoadRadiographd("image"),
        Resized("image", [options.size, options.size], mode="area", anti_aliasing=False),
        EnsureTyped("image", track_meta=False),
    ]
    print(f"{'cache':<10}{'first pass/s':>14}{'later/s':>10}{'KB on disk':>12}")
    with tempfile.TemporaryDirectory() as folder:
        items = write_files(Path(folder), 1024, 1024, options.images)["PNG 8 bit"]
        for choice in ("none", "memory", "disk", "disk16", "disk8"):
            start = time.perf_counter()
            dataset = cached_dataset(
                items, Compose(chain), choice, Path(folder) / choice, progress=False
            )
            for number in range(len(items)):
                dataset[number]
            first = len(items) / (time.perf_counter() - start)
            later = rate(lambda dataset=dataset: DataLoader(dataset, batch_size=4), len(items))
            size = (
                sum(path.stat().st_size for path in Path(folder, choice).rglob("*.pt"))
                / len(items)
                / 1000
            )
            print(f"{choice:<10}{first:>14.1f}{later:>10.1f}{size:>12.1f}", flush=True)


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = {"startup": startup, "workers": workers, "loading": loading, "caches": caches}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--images", type=int)
    parser.add_argument("--findings", type=int, default=14)
    parser.add_argument("--folder", help="on the disk to be measured; it is filled and left")
    parser.add_argument("--sizes", nargs="+", default=["1024x1024", "2500x2048"])
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--num_workers", type=int, nargs="+")
    options = parser.parse_args()
    default_images = {"startup": 800_000, "workers": 800_000, "loading": 16, "caches": 64}
    options.images = options.images or default_images[options.part]
    options.num_workers = options.num_workers or ([0, 2] if options.part == "loading" else [2])
    if options.part == "workers":
        (options.num_workers,) = options.num_workers
    torch.set_num_threads(1)
    print(machine())
    parts[options.part](options)


if __name__ == "__main__":
    main()
