# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Train the pose classifier of the audit, without a label: radiographs are turned, mirrored, inverted and joined.

``python -m tests.benchmarks.released.pose_classifier --data /path/to/sets`` needs ``adult_normals``, ``nih_cxr_7k``
and ``childcxr``. What is no chest are photographs of scikit-image and scikit-learn, noise, and radiographs cut to
pieces. Only train splits are used; images of NIH's validation and test patients are left out of the adult normals.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import skimage
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch.nn import functional as F
from tqdm import tqdm

from monai_afire.networks.nets.pose_classifier import POSES, PoseClassifier, turned
from tests.benchmarks.released.sets import (
    adult_normals,
    held_out_names,
    maker_parser,
    nih_rows,
    write_network,
)

SIDE, INPUT, BATCH = 96, 64, 96
# steps and largest learning rate
CYCLES = ((2400, 4e-3), (1500, 2e-3), (9000, 2e-3), (9000, 1.5e-3))
# the last ones have covered patches, since a drain, a plate or an effusion hides the heart
HARD_CYCLES = 2


def read(path: Path) -> np.ndarray:
    """A gray picture, uint8 ``(96, 96)``."""
    with Image.open(path) as picture:
        return np.asarray(picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX))


def training_images(data: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All images, those of NIH 7k and the adult normals, each uint8 ``(N, 1, 96, 96)`` and upright."""
    files = [Path(name) for name in nih_rows(data, "train")["path"]]
    held_out = held_out_names(data)
    adults = [path for path in adult_normals(data) if path.name not in held_out]
    children = sorted((data / "childcxr" / "train").rglob("*.jpeg"))
    pictures = [read(path) for path in tqdm([*files, *adults, *children], "reading")]
    every = torch.from_numpy(np.stack(pictures)).unsqueeze(1)
    return every, every[: len(files)], every[len(files) : len(files) + len(adults)]


def photographs() -> torch.Tensor:
    """Pieces of photographs, uint8 ``(N, 1, 96, 96)``."""
    folder, pieces = Path(skimage.__file__).parent / "data", []
    pictures = [
        Image.open(path).convert("L")
        for path in sorted((*folder.glob("*.png"), *folder.glob("*.jpg")))
    ]
    pictures += [Image.fromarray(image).convert("L") for image in load_sample_images().images]
    random = np.random.default_rng(0)
    for picture in pictures:
        for _ in range(16):
            size = random.uniform(0.3, 1, 2) * picture.size
            left, top = random.uniform(0, 1, 2) * (picture.size - size)
            piece = picture.resize((SIDE, SIDE), box=(left, top, left + size[0], top + size[1]))
            pieces.append(np.asarray(piece))
    return torch.from_numpy(np.stack(pieces)).unsqueeze(1)


class Examples:
    """Random training examples."""

    def __init__(
        self, images: torch.Tensor, others: torch.Tensor, covered: bool = False, seed: int = 0
    ) -> None:
        self.images, self.others, self.covered = images, others, covered
        self.generator = torch.Generator().manual_seed(seed)

    def uniform(self, low: float, high: float, *shape: int) -> torch.Tensor:
        """Uniform random numbers."""
        return torch.rand(shape, generator=self.generator) * (high - low) + low

    def chosen(self, images: torch.Tensor, count: int) -> torch.Tensor:
        """Random images in [0, 1]."""
        return images[torch.randint(len(images), (count,), generator=self.generator)].float() / 255

    def placed(self, images: torch.Tensor, zoom: tuple[float, float], shift: float) -> torch.Tensor:
        """Pictures placed and exposed in another way, of the network's size."""
        count = len(images)
        scale, aspect, angle = (self.uniform(*r, count) for r in (zoom, (-0.2, 0.2), (-0.17, 0.17)))
        scale, aspect = scale.exp(), aspect.exp()
        rows = [
            torch.stack(
                [angle.cos() * aspect, -angle.sin(), self.uniform(-shift, shift, count) / scale], 1
            )
        ]
        rows += [
            torch.stack(
                [angle.sin(), angle.cos() / aspect, self.uniform(-shift, shift, count) / scale], 1
            )
        ]
        grid = F.affine_grid(
            torch.stack(rows, 1) * scale.view(-1, 1, 1),
            [count, 1, INPUT, INPUT],
            align_corners=False,
        )
        outside = "border" if self.uniform(0, 1, 1) < 0.7 else "zeros"
        picture = F.grid_sample(images, grid, padding_mode=outside, align_corners=False).clamp(
            1e-3, 1
        )
        return picture ** self.uniform(-0.6, 0.6, count, 1, 1, 1).exp()

    def pairs(self, count: int) -> torch.Tensor:
        """Two radiographs in one picture, beside or above one another, perhaps with a gap."""
        both = self.placed(self.chosen(self.images, 2 * count), (-0.1, 0.3), 0.05).view(
            2, count, 1, INPUT, INPUT
        )
        gap = int(torch.randint(0, 6, (1,), generator=self.generator))
        width = (INPUT - gap) // 2
        halves = [F.interpolate(half, (INPUT, width), mode="area") for half in both]
        space = self.uniform(0, 1, 1).round().expand(count, 1, INPUT, INPUT - 2 * width)
        joined = torch.cat([halves[0], space, halves[1]], 3)
        if self.uniform(0, 1, 1) < 0.3:
            tall = [F.interpolate(half, (width, INPUT), mode="area") for half in both]
            joined = torch.cat([tall[0], space.transpose(2, 3), tall[1]], 2)
        return joined

    def no_chests(self, count: int) -> torch.Tensor:
        """Photographs, noise, and radiographs cut to pieces."""
        part = count // 4
        photos = self.placed(self.chosen(self.others, part), (-0.3, 0.2), 0.2)
        side = int(torch.randint(2, INPUT, (1,), generator=self.generator))
        noise = F.interpolate(
            self.uniform(0, 1, part, 1, side, side), (INPUT, INPUT), mode="bilinear"
        )
        close = self.placed(self.chosen(self.images, part), (-1.9, -1.4), 0.8)
        cut = self.placed(self.chosen(self.images, count - 3 * part), (-0.2, 0.2), 0.1)
        size = INPUT // int(2 ** torch.randint(2, 4, (1,), generator=self.generator))
        tiles = F.unfold(cut, size, stride=size)
        order = torch.randperm(tiles.shape[2], generator=self.generator)
        return torch.cat(
            [photos, noise, close, F.fold(tiles[:, :, order], INPUT, size, stride=size)]
        )

    def spoiled(self, picture: torch.Tensor) -> torch.Tensor:
        """Frames, bright marks, blur and noise."""
        count = len(picture)
        if self.uniform(0, 1, 1) < 0.3:
            width = int(torch.randint(1, 9, (1,), generator=self.generator))
            small = F.interpolate(picture, (INPUT - 2 * width, INPUT), mode="area")
            picture = F.pad(small, (0, 0, width, width), value=float(self.uniform(0, 1, 1).round()))
        if self.uniform(0, 1, 1) < 0.3:
            picture = picture.clone()
            row, column = torch.randint(0, INPUT - 12, (2,), generator=self.generator)
            picture[:, :, row : row + 3, column : column + 12] = 1
        if self.uniform(0, 1, 1) < 0.4:
            picture = F.avg_pool2d(F.pad(picture, (1, 1, 1, 1), mode="replicate"), 3, 1)
        noise = torch.randn(picture.shape, generator=self.generator)
        return picture + 0.03 * noise * self.uniform(0, 1, count, 1, 1, 1)

    def with_patch(self, picture: torch.Tensor) -> torch.Tensor:
        """A plain patch over a part of the picture, of another gray in each."""
        copy = picture.clone()
        height, width = torch.randint(6, 24, (2,), generator=self.generator).tolist()
        row = int(torch.randint(0, INPUT - height, (1,), generator=self.generator))
        column = int(torch.randint(0, INPUT - width, (1,), generator=self.generator))
        copy[:, :, row : row + height, column : column + width] = self.uniform(
            0, 1, len(picture), 1, 1, 1
        )
        return copy

    def batch(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Pictures, their poses (-1: none) and qualities."""
        few = BATCH // 8
        upright = self.placed(self.chosen(self.images, BATCH - 2 * few), (-0.35, 0.35), 0.12)
        pictures = self.spoiled(torch.cat([upright, self.pairs(few), self.no_chests(few)]))
        if self.covered and self.uniform(0, 1, 1) < 0.4:
            pictures = self.with_patch(pictures)
        poses = torch.randint(POSES, (BATCH,), generator=self.generator)
        pictures = torch.stack(
            [turned(x, int(pose)) for x, pose in zip(pictures, poses, strict=True)]
        )
        inverted = self.uniform(0, 1, BATCH).round()
        pictures = torch.where(inverted.view(-1, 1, 1, 1) > 0, 1 - pictures, pictures)
        two, other = torch.zeros(BATCH), torch.zeros(BATCH)
        two[-2 * few : -few], other[-few:] = 1, 1
        poses[-2 * few :] = -1
        return pictures, poses, torch.stack([inverted, other, two], 1)


def train(classifier: PoseClassifier, examples: Examples, steps: int, peak: float) -> None:
    """One cycle of the learning rate; of what is no single chest only that is learned."""
    optimizer = torch.optim.AdamW(classifier.parameters(), 1e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, peak, total_steps=steps)
    bar = tqdm(range(steps), "training")
    for _ in bar:
        pictures, poses, qualities = examples.batch()
        logits, found = classifier(pictures)
        single = poses >= 0
        losses = F.binary_cross_entropy_with_logits(found, qualities, reduction="none")
        loss = (
            F.cross_entropy(logits[single], poses[single])
            + losses[single, 0].mean()
            + losses[:, 1:].mean(0).sum()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)


def main() -> None:
    """Run from the repository's root."""
    options = maker_parser(__doc__, "results/pose.safetensors").parse_args()
    torch.manual_seed(0)
    classifier = PoseClassifier(average=False)
    # those of NIH are ill adults, whose hearts are harder to find
    images, nih, adults = training_images(options.data)
    hard = torch.cat([images, nih, nih, adults])
    sets = [images, torch.cat([images, nih]), *[hard] * HARD_CYCLES]
    others = photographs()
    for cycle, (steps, peak) in enumerate(CYCLES):
        covered = cycle >= len(CYCLES) - HARD_CYCLES
        train(classifier, Examples(sets[cycle], others, covered, seed=cycle), steps, peak)
    write_network(classifier, options.output, "pose classifier")


if __name__ == "__main__":
    main()
