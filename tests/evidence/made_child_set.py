# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A set of noise in the folders and names of ChildCXR, for the benchmarks' tests, and a network that fits it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

SHAPE = {"image_size": 16, "patch_size": 4, "hidden_size": 24, "num_layers": 1, "num_heads": 2}
NAMES = (
    "NORMAL/IM-{}-1.jpeg",
    "NORMAL/NORMAL2-IM-{}-1.jpeg",
    "PNEUMONIA/person{}_virus_1.jpeg",
    "PNEUMONIA/person{}_bacteria_2.jpeg",
)


def make_child_set(root: Path, patients: int = 15) -> Path:
    """Write the set, as many patients of each kind of file in either folder, and return its root."""
    rng = np.random.default_rng(0)
    for folder in ("train", "test"):
        for name in NAMES:
            for number in range(100, 100 + patients):
                path = root / folder / name.format(number)
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(0, 255, (32, 32), dtype=np.uint8)).save(path)
    return root
