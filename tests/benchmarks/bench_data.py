# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Files that a loader reads per second, by this package's reader and by MONAI's, with the bundles' resizing behind both.

    python -m tests.benchmarks.bench_data [--sizes 1024x1024 2500x2048] [--num_workers 0 2] [--images 16]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from monai.data import DataLoader, Dataset
from monai.transforms import Compose, EnsureTyped, LoadImaged, Resized
from PIL import Image
from pydicom.uid import ExplicitVRLittleEndian

from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.transforms import LoadRadiographd
from tests.benchmarks.timing import machine
from tests.unit.transforms.radiograph_files import write_dicom

__all__ = ["main"]

Items = list[dict[str, str]]


def write_files(folder: Path, height: int, width: int, images: int) -> dict[str, Items]:
    """Drawn chests with grain in each format."""
    grain = np.random.default_rng(0).normal(0, 0.01, (height, width)).astype(np.float32)
    lists: dict[str, Items] = {"PNG 8 bit": [], "PNG 16 bit": [], "JPEG": [], "DICOM": []}
    for number in range(images):
        picture = Image.fromarray(draw_chest_phantom(number % 4, 256).image[0])
        pixels = np.asarray(picture.resize((width, height), Image.Resampling.BICUBIC)) + grain
        deep = (np.clip(pixels, 0, 1) * 4095).astype(np.uint16)
        shallow = Image.fromarray((deep >> 4).astype(np.uint8))
        ends = ("_8.png", "_16.png", ".jpg", ".dcm")
        paths = [folder / f"{number:03d}{end}" for end in ends]
        shallow.save(paths[0])
        Image.fromarray(deep).save(paths[1])
        shallow.save(paths[2], quality=95)
        write_dicom(paths[3], deep, syntax=ExplicitVRLittleEndian)
        for items, path in zip(lists.values(), paths, strict=True):
            items.append({"image": str(path)})
    return lists


def rate(loader: DataLoader, images: int, rounds: int = 3) -> float:
    """Images per second, the best of a few passes after one that is not counted."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        count = sum(len(batch["image"]) for batch in loader)
        times.append(time.perf_counter() - start)
        assert count == images
    return images / min(times[1:])


def compare(kind: str, items: Items, num_workers: int, size: int) -> list[float]:
    """Images per second of our reader and of MONAI's."""
    # ITK, MONAI's default for DICOM, gives three axes
    reader = "PydicomReader" if kind == "DICOM" else None
    ways = [LoadRadiographd("image"), LoadImaged("image", reader, ensure_channel_first=True)]
    to_size = Resized("image", [size, size], mode="area", anti_aliasing=False)
    plain = EnsureTyped("image", track_meta=False)
    options = {"num_workers": num_workers, "persistent_workers": num_workers > 0}
    datasets = [Dataset(items, Compose([load, to_size, plain])) for load in ways]
    return [rate(DataLoader(each, batch_size=4, **options), len(items)) for each in datasets]


def main(words: list[str] | None = None) -> None:
    """Print a row of each format, size and number of workers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--sizes", nargs="+", default=["1024x1024", "2500x2048"])
    parser.add_argument("--size", type=int, default=224, help="rows and columns after resizing")
    parser.add_argument("--num_workers", type=int, nargs="+", default=[0, 2])
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    print(machine())
    columns = ("pixels", "workers", "KB", "LoadRadiographd/s", "LoadImaged/s", "ratio")
    print(f"{'file':<12}" + "".join(f"{column:>19}" for column in columns))
    for size in options.sizes:
        height, width = map(int, size.split("x"))
        with tempfile.TemporaryDirectory() as folder:
            lists = write_files(Path(folder), height, width, options.images)
            for kind, items in lists.items():
                kilobytes = os.path.getsize(items[0]["image"]) / 1000
                for num_workers in options.num_workers:
                    ours, monais = compare(kind, items, num_workers, options.size)
                    cells = [size, num_workers, f"{kilobytes:.0f}", f"{ours:.1f}"]
                    cells += [f"{monais:.1f}", f"{ours / monais:.2f}"]
                    print(f"{kind:<12}" + "".join(f"{cell:>19}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
