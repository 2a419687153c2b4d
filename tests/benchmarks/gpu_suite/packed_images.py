# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Many radiographs in one small file, to take along to a machine with a GPU.

    python -m tests.benchmarks.gpu_suite.packed_images --images folder --output images.zip --size 224 --megabytes 40
"""

from __future__ import annotations

import argparse
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from monai.transforms import Resize
from PIL import Image
from tqdm.auto import tqdm

from monai_afire.data import scan_radiographs
from monai_afire.transforms import LoadRadiograph

__all__ = ["pack", "unpack"]

QUALITIES = (95, 90, 85, 80, 70, 60, 50)
SAMPLE = 64


def encoded(path: str, size: int, quality: int) -> bytes:
    """A radiograph as the bundles read it, resized, as JPEG."""
    image = Resize((size, size), mode="area", anti_aliasing=False)(
        torch.as_tensor(np.asarray(LoadRadiograph()(path)))
    )
    gray = (255 * np.asarray(image)[0]).round().clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(gray).save(file, "JPEG", quality=quality)
    return file.getvalue()


def pack(paths: Sequence[str], output: Path, size: int, megabytes: float) -> int:
    """
    Write images of one size with the best quality at which the file is small enough.

    Args:
        paths: of the radiographs; names must be unique.
        output: the file.
        size: rows and columns.
        megabytes: the file's limit.

    Returns:
        The JPEG quality.

    Raises:
        ValueError: when two files have one name, or not even the lowest quality is small enough.
    """
    if len({Path(path).stem for path in paths}) < len(paths):
        raise ValueError(
            "two radiographs have the same file name: rename one, or pack their folders one by one"
        )
    sample = [
        paths[index]
        for index in np.linspace(0, len(paths) - 1, min(SAMPLE, len(paths))).astype(int)
    ]
    overhead = 300  # of an entry in the archive
    for quality in QUALITIES:
        mean = np.mean([len(encoded(path, size, quality)) for path in sample]) + overhead
        if 1.03 * mean * len(paths) <= megabytes * 1e6:
            break
    else:
        raise ValueError(
            f"{len(paths)} images of {size} x {size} do not fit into {megabytes} MB: take fewer"
        )
    with zipfile.ZipFile(output, "w", zipfile.ZIP_STORED) as archive:
        for path in tqdm(paths, desc="packing"):
            archive.writestr(f"{Path(path).stem}.jpg", encoded(path, size, quality))
    return quality


def unpack(packed: Path, folder: Path) -> Path:
    """Write the images of a packed file into a folder, unless they are there."""
    with zipfile.ZipFile(packed) as archive:
        if len(list(folder.glob("*.jpg"))) != len(archive.namelist()):
            archive.extractall(folder)
    return folder


def main() -> None:
    """Pack a folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--megabytes", type=float, default=40)
    options = parser.parse_args()
    paths = [str(options.images / name) for name in scan_radiographs(options.images)]
    quality = pack(paths, options.output, options.size, options.megabytes)
    print(
        f"{len(paths)} images, JPEG quality {quality}, {options.output.stat().st_size / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()
