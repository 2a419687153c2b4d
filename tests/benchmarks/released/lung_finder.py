# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Train the lung finder that comes with the package, without a lung that somebody has outlined.

``python -m tests.benchmarks.released.lung_finder --data /path/to/sets`` learns the lungs of drawn radiographs first.
What it then finds in ``adult_normals``, where it looks like two lungs, is what the network that is kept learns from.
JSRT's and Montgomery's outlines only check the result: Dice is printed, nothing is chosen by it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from monai.losses import DiceLoss
from PIL import Image
from scipy import ndimage
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.networks import LungFinder
from monai_afire.transforms import StandardizeContrast
from tests.benchmarks.released.sets import OUTLINES, adult_normals, maker_parser, write_network

SIDE, INPUT = 128, 64
PHANTOMS, EVERY, BATCH = 1500, 3, 24
STEPS = {"phantoms": 1200, "radiographs": 1000}
LESIONS = [
    (),
    (),
    ("consolidation",),
    ("effusion",),
    ("nodule",),
    ("cardiomegaly",),
    ("consolidation", "effusion"),
]
Masked = tuple[torch.Tensor, torch.Tensor]
Finder = TypeVar("Finder", bound=nn.Module)


def read(path: Path, side: int = SIDE) -> np.ndarray:
    """A gray picture in [0, 1]."""
    with Image.open(path) as picture:
        small = picture.convert("L").resize((side, side), Image.Resampling.BILINEAR)
        return np.asarray(small, dtype=np.float32) / 255


def dice(prediction: np.ndarray, truth: np.ndarray) -> float:
    """Of two masks of one size, of which one at least is not empty."""
    return 2 * float((prediction & truth).sum()) / float(prediction.sum() + truth.sum())


def phantoms(organs: int) -> Masked:
    """Drawn radiographs with so many of their organs, the lungs first; lesions hide a part of some."""
    drawn = [
        draw_chest_phantom(900000 + i, SIDE, LESIONS[i % len(LESIONS)])
        for i in tqdm(range(PHANTOMS), "drawing")
    ]
    masks = np.stack([phantom.organs[:organs] for phantom in drawn])
    return torch.from_numpy(np.stack([x.image for x in drawn])), torch.from_numpy(masks).float()


def two_lungs(found: np.ndarray) -> np.ndarray | None:
    """The two largest parts of a mask, without holes, if they lie as lungs do, else None."""
    parts, number = ndimage.label(found)
    if number < 2:
        return None
    areas = ndimage.sum(found, parts, range(1, number + 1))
    first, second = np.argsort(areas)[::-1][:2] + 1
    if areas[second - 1] < 200 or areas[first - 1] > 3 * areas[second - 1]:
        return None
    lungs = np.logical_or(*(ndimage.binary_fill_holes(parts == part) for part in (first, second)))
    (row, column), (other_row, other_column) = (
        ndimage.center_of_mass(parts == part) for part in (first, second)
    )
    if abs(row - other_row) > 10 or abs(column - other_column) < 15:
        return None
    return None if lungs[:, 0].any() or lungs[:, -1].any() or lungs[-1].any() else lungs


@torch.no_grad()
def found_lungs(finder: LungFinder, paths: list[Path]) -> Masked:
    """Radiographs and the lungs found in them, of the picture and its mirror image, raw and standardized pictures."""
    images = torch.from_numpy(np.stack([read(path) for path in paths])).unsqueeze(1)
    found = torch.cat([(finder(x) + finder(x.flip(3)).flip(3)) / 2 for x in images.split(256)])
    lungs = [two_lungs(mask) for mask in found[:, 0].numpy() > 0.5]
    kept = [i for i, mask in enumerate(lungs) if mask is not None]
    masks = torch.from_numpy(np.stack([lungs[i] for i in kept]).astype(np.float32)).unsqueeze(1)
    masks = F.interpolate(masks, SIDE, mode="bilinear")
    standardize = StandardizeContrast()
    standard = torch.stack([torch.as_tensor(standardize(image)) for image in images[kept]])
    print(f"lungs found in {len(kept)} of {len(images)} radiographs")
    return torch.cat([images[kept], standard]), torch.cat([masks, masks])


def varied(images: torch.Tensor, masks: torch.Tensor, generator: torch.Generator) -> Masked:
    """
    Pictures placed and exposed in another way, opacities over the lungs of some; of the network's size.

    The first two masks are the lungs, apart or together.
    """
    count = len(images)

    def uniform(low: float, high: float, *shape: int) -> torch.Tensor:
        return torch.rand(count, *shape, generator=generator) * (high - low) + low

    zoom, aspect, turn = uniform(-0.5, 0.5).exp(), uniform(-0.2, 0.2).exp(), uniform(-0.35, 0.35)
    rows = [torch.stack([turn.cos() * zoom * aspect, -turn.sin() * zoom, uniform(-0.3, 0.3)], 1)]
    rows += [torch.stack([turn.sin() * zoom, turn.cos() * zoom / aspect, uniform(-0.3, 0.3)], 1)]
    grid = F.affine_grid(torch.stack(rows, 1), [count, 1, INPUT, INPUT], align_corners=False)
    outside = "border" if torch.rand(1, generator=generator) < 0.5 else "zeros"
    picture = F.grid_sample(images, grid, padding_mode=outside, align_corners=False)
    organs = F.grid_sample(masks, grid, align_corners=False)
    lungs = organs[:, :2].amax(1, keepdim=True)
    cloud = F.interpolate(uniform(0, 1, 1, 5, 5), (INPUT, INPUT), mode="bicubic").clamp(0, 1)
    dense = (uniform(0, 1, 1, 1, 1) < 0.5) * uniform(0, 0.6, 1, 1, 1)
    picture = picture + dense * cloud * (1 - picture) * lungs
    picture = picture.clamp(1e-3, 1) ** uniform(-0.6, 0.6, 1, 1, 1).exp()
    if torch.rand(1, generator=generator) < 0.4:
        picture = F.avg_pool2d(F.pad(picture, (1, 1, 1, 1), mode="replicate"), 3, 1)
    noise = torch.randn(picture.shape, generator=generator)
    return picture + 0.03 * noise * uniform(0, 1, 1, 1, 1), organs


def trained(
    images: torch.Tensor, masks: torch.Tensor, steps: int, build: Callable[[], Finder] = LungFinder
) -> Finder:
    """A new finder, by cross-entropy and Dice."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    finder = build()
    dice_loss = DiceLoss(smooth_nr=1, smooth_dr=1)
    optimizer = torch.optim.AdamW(finder.parameters(), 1e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in tqdm(range(steps), "training"):
        chosen = torch.randint(len(images), (BATCH,), generator=generator)
        picture, organs = varied(images[chosen], masks[chosen], generator)
        found = finder(picture).clamp(1e-6, 1 - 1e-6)
        loss = F.binary_cross_entropy(found, organs.clamp(0, 1)) + dice_loss(found, organs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return finder.eval()


@torch.no_grad()
def checked(finder: LungFinder, data: Path) -> str:
    """Mean Dice on the sets with outlines, of raw and of standardized pictures."""
    lines = []
    for name, structures in OUTLINES.items():
        folder = data / name
        paths = sorted((folder / "images").glob("*.png"))
        raw = [torch.from_numpy(read(path))[None] for path in paths]
        standard = [torch.as_tensor(StandardizeContrast()(image)) for image in raw]
        outlines = [folder / part for part in structures["lungs"]]
        truth = [np.max([read(part / path.name, INPUT) for part in outlines], 0) for path in paths]
        for kind, images in (("raw", raw), ("standardized", standard)):
            found = finder(torch.stack(images))[:, 0].numpy() > 0.5
            values = [dice(mask, lungs > 0.5) for mask, lungs in zip(found, truth, strict=True)]
            lines.append(f"{name}, {kind}: Dice {np.mean(values):.3f}, smallest {min(values):.3f}")
    return "\n".join(lines)


def main() -> None:
    """Run from the repository's root."""
    options = maker_parser(__doc__, "results/lungs.safetensors").parse_args()
    images, organs = phantoms(2)
    of_phantoms = trained(images, organs.amax(1, keepdim=True), STEPS["phantoms"])
    found = found_lungs(of_phantoms, adult_normals(options.data, EVERY))
    finder = trained(*found, STEPS["radiographs"])
    write_network(finder, options.output, "lung finder")
    print(checked(finder, options.data))


if __name__ == "__main__":
    main()
