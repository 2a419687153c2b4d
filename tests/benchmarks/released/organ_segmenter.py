# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lists and masks for the segmenter that comes with the package, without an organ that somebody has outlined.

``python -m tests.benchmarks.released.organ_segmenter --data /path/to/sets --output results/organs`` learns the lungs
and the heart of drawn radiographs. What it finds in ``adult_normals``, where it looks like two lungs and a heart
between them, is written as masks with a datalist, and the bundle learns from them::

    monai-afire run radiograph_segmentation train --encoder residual --dataset_dir / \\
        --datalist results/organs/organs.json --label_key organs --image_size 128 --patch_size 16 --standardize True \\
        --train::inferer::enabled false --epochs 12 --name organs

``--weights MODEL`` compares the result with JSRT's and Montgomery's outlines, image by image. Nothing is chosen by it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from monai.bundle import run
from monai.networks.nets import BasicUNet
from PIL import Image
from scipy import ndimage
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from tests.benchmarks.released.lung_finder import (
    EVERY,
    INPUT,
    STEPS,
    dice,
    phantoms,
    read,
    trained,
    two_lungs,
)
from tests.benchmarks.released.sets import OUTLINES, adult_normals, maker_parser

INFERENCE = "bundles/radiograph_segmentation/configs/inference.json"
ORGANS = ("right lung", "left lung", "heart")
FOUND = {"heart": ["heart"], "lungs": ["right lung", "left lung"]}  # organs of a structure
LARGE = 224  # pixels of the masks, as of the radiographs
VALIDATION = 10  # every tenth radiograph validates


class OrganFinder(nn.Module):
    """Probabilities ``(B, 3, 64, 64)`` of the organs in frontal radiographs ``(B, 1, H, W)``."""

    def __init__(self) -> None:
        super().__init__()
        self.net = BasicUNet(
            spatial_dims=2,
            in_channels=1,
            out_channels=len(ORGANS),
            features=(16, 16, 32, 64, 96, 16),
            norm=("group", {"num_groups": 8}),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        small = F.interpolate(images, (INPUT, INPUT), mode="area")
        mean, spread = small.mean((2, 3), keepdim=True), small.std((2, 3), keepdim=True)
        return self.net((small - mean) / (spread + 1e-6)).sigmoid()


def plausible(found: np.ndarray) -> np.ndarray | None:
    """
    The organs of one radiograph, one part each, if they lie as organs do, else None.

    Args:
        found: bool ``(3, 64, 64)``.
    """
    if two_lungs(found[:2].any(0)) is None:
        return None
    organs = np.stack([_largest_part(mask) for mask in found])
    areas = organs.sum((1, 2))
    if areas.min() < 150:
        return None
    columns = [ndimage.center_of_mass(organ)[1] for organ in organs]
    rows = [ndimage.center_of_mass(organ)[0] for organ in organs]
    is_between = columns[0] < columns[2] < columns[1]
    is_low = rows[2] > max(rows[0], rows[1])
    is_smaller = areas[2] < areas[:2].sum()
    return organs if is_between and is_low and is_smaller else None


def _largest_part(mask: np.ndarray) -> np.ndarray:
    """The largest connected part, without holes."""
    parts, number = ndimage.label(mask)
    if number == 0:
        return np.zeros_like(mask)
    areas = ndimage.sum(mask, parts, range(1, number + 1))
    return ndimage.binary_fill_holes(parts == np.argmax(areas) + 1)


@torch.no_grad()
def found_organs(finder: OrganFinder, paths: list[Path]) -> dict[Path, np.ndarray]:
    """Masks ``(3, 64, 64)`` of the radiographs in which the organs look right."""
    images = torch.from_numpy(np.stack([read(path) for path in paths])).unsqueeze(1)
    found = torch.cat([finder(part) for part in tqdm(images.split(64), "finding")]).numpy() > 0.5
    organs = {path: plausible(masks) for path, masks in zip(paths, found, strict=True)}
    kept = {path: masks for path, masks in organs.items() if masks is not None}
    print(f"organs found in {len(kept)} of {len(paths)} radiographs")
    return kept


def write_list(organs: dict[Path, np.ndarray], folder: Path) -> None:
    """Masks as PNG, and a datalist of them."""
    sections: dict[str, list[dict[str, object]]] = {"training": [], "validation": []}
    (folder / "masks").mkdir(parents=True, exist_ok=True)
    for number, (path, masks) in enumerate(tqdm(organs.items(), "writing")):
        names = [f"{path.stem}_{name.replace(' ', '_')}.png" for name in ORGANS]
        files = [str((folder / "masks" / name).resolve()) for name in names]
        for large, file in zip(_enlarged(masks), files, strict=True):
            Image.fromarray(large).save(file)
        section = "training" if number % VALIDATION else "validation"
        item = {"image": str(path), "organs": files, "patient_id": path.stem}
        sections[section].append(item)
    (folder / "organs.json").write_text(json.dumps({**sections, "organ_names": list(ORGANS)}))


def _enlarged(masks: np.ndarray) -> np.ndarray:
    """Masks of 0 and 255 with the pixels of the radiographs and smooth outlines."""
    large = F.interpolate(torch.from_numpy(masks).float()[None], LARGE, mode="bilinear")[0]
    return ((large > 0.5).numpy() * 255).astype(np.uint8)


def compared(weights: Path, data: Path) -> pd.DataFrame:
    """Columns "set", "image", "structure" and "dice", in the pixels of the files."""
    return pd.DataFrame([row for name in OUTLINES for row in _rows_of(weights, data, name)])


def _rows_of(weights: Path, data: Path, name: str) -> Iterator[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        images, output = data / name / "images", Path(folder)
        run(
            config_file=INFERENCE,
            weights=str(weights),
            dataset_dir=str(images),
            output_dir=folder,
        )
        for structure, outlines in OUTLINES[name].items():
            for path in sorted(images.glob("*.png")):
                truth = _union([data / name / outline / path.name for outline in outlines])
                files = [f"masks/{organ}/{path.stem}.png" for organ in FOUND[structure]]
                found = _union([next(output.rglob(file)) for file in files])
                value = round(dice(found, truth), 4)
                yield {"set": name, "image": path.name, "structure": structure, "dice": value}


def _union(paths: list[Path]) -> np.ndarray:
    """The pixels in one of the masks, of those that are there."""
    masks = [Image.open(path).convert("L") for path in paths if path.is_file()]
    return np.any([np.asarray(mask) > 0 for mask in masks], axis=0)


def main() -> None:
    """Run from the repository's root."""
    parser = maker_parser(__doc__, "results/organs")
    parser.add_argument("--weights", type=Path, help="model.pt to check; nothing is trained")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.weights:
        table = compared(options.weights, options.data)
        table.to_csv(options.output / "dice.csv", index=False)
        print(table.groupby(["set", "structure"])["dice"].describe().round(3).to_string())
        return
    of_phantoms = trained(*phantoms(len(ORGANS)), STEPS["phantoms"], OrganFinder)
    write_list(found_organs(of_phantoms, adult_normals(options.data, EVERY)), options.output)


if __name__ == "__main__":
    main()
