# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Does pre-training on radiographs lift ImageNet's weights? An objective goes on from them on NIH 7k's training images.

``python -m tests.evidence.imagenet_pretraining --data /path/to/nih_cxr_7k`` writes ``imagenet_contrast.pt``, or
``imagenet_lejepa.pt`` with ``--objective lejepa``, the weights for the arm ``imagenet_continued_probe`` of
``nih_findings``, and the same in half precision. ``--start random`` begins from random weights and writes
``random_contrast.pt`` alone. An interrupted command goes on at its last epoch. The protocols are parts 6, 7, 9
and 12 of ``docs/reports/imagenet.md``.
"""

from __future__ import annotations

import argparse
import json
from abc import abstractmethod
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR
from tqdm import tqdm

from monai_afire.networks import EfficientNetLiteEncoder, save_network
from monai_afire.networks.nets.encoders.efficientnet_lite_encoder import imagenet_state_dict
from monai_afire.networks.weights.description import describe
from monai_afire.networks.weights.safetensors_files import write_safetensors
from monai_afire.optimizers import weight_decay_groups
from tests.evidence.convolutional_pretraining import info_nce, view_of
from tests.evidence.isotropic_gaussian import lejepa_loss
from tests.evidence.nih_findings import batches, read_set

SIZE, VIEW = 128, 96  # pixels of the images and of the views
BATCH, PEAK, WIDTH = 64, 5e-4, 256


class TwoViews(nn.Module):
    """An objective of two views of images ``(B, 1, 128, 128)``, from ImageNet's weights or random ones on."""

    def __init__(self, start: str) -> None:
        super().__init__()
        self.encoder = EfficientNetLiteEncoder(img_size=VIEW)
        if start == "imagenet":
            self.encoder.load_state_dict(imagenet_state_dict())
        self.projection = self.projection_of(self.encoder.hidden_size)

    @staticmethod
    def projection_of(width: int) -> nn.Module:
        """The layers between the mean token and the loss."""
        return nn.Sequential(nn.Linear(width, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 64))

    def projected(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Projected mean tokens ``(2 B, 64)``; rows k and k + B are the views of image k."""
        views = torch.cat([view_of(images, generator, VIEW) for _ in range(2)])
        features = self.encoder(views.contiguous(memory_format=torch.channels_last)).mean(1)
        return self.projection(features)

    @abstractmethod
    def forward(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """The loss."""


class Contrast(TwoViews):
    """SimCLR (Chen et al., ICML 2020), as in convolutional_pretraining."""

    def forward(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """InfoNCE over the 2 B views."""
        return info_nce(F.normalize(self.projected(images, generator), dim=1))


class LeJEPA(TwoViews):
    """Agreement of the views and an isotropic Gaussian."""

    @staticmethod
    def projection_of(width: int) -> nn.Module:
        """With batch normalization, as the paper's projector."""
        return nn.Sequential(
            nn.Linear(width, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, 64)
        )

    def forward(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """The loss of both views."""
        return lejepa_loss(self.projected(images, generator).unflatten(0, (2, -1)), generator)


OBJECTIVES: dict[str, type[TwoViews]] = {"contrast": Contrast, "lejepa": LeJEPA}


def continued(
    objective: type[TwoViews], start: str, images: torch.Tensor, epochs: int, file: Path
) -> EfficientNetLiteEncoder:
    """Train for some epochs, from the file of the last one where there is one."""
    torch.manual_seed(0)
    network = objective(start).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(weight_decay_groups(network, 0.05), PEAK)
    steps = len(images) // BATCH * epochs
    schedule = OneCycleLR(optimizer, PEAK, steps, pct_start=0.15, cycle_momentum=False)
    parts = {"network": network, "optimizer": optimizer, "schedule": schedule}
    history: list[float] = []
    if file.is_file():
        saved = torch.load(file, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        history = saved["history"]
    while len(history) < epochs:
        generator = torch.Generator().manual_seed(len(history))
        losses = []
        bar = tqdm(range(len(images) // BATCH), f"epoch {len(history) + 1}/{epochs}")
        for _, numbers in zip(bar, batches(np.arange(len(images)), BATCH, generator), strict=False):
            loss = network.train()(images[numbers], generator)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 3.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            bar.set_postfix(loss=f"{losses[-1]:.3f}")
        history.append(float(np.mean(losses)))
        states = {name: part.state_dict() for name, part in parts.items()}
        torch.save({**states, "history": history}, file)
    print(json.dumps({"loss": history}))
    return network.encoder


def release(encoder: EfficientNetLiteEncoder, path: Path) -> None:
    """Write the encoder in half precision, as it comes with the package; counts of steps stay whole numbers."""
    images = {"image_size": SIZE, "standardize": True}
    description = describe(encoder, task="encoder", preprocessing=images, trained_on="radiographs")
    tensors = {
        name: value.half() if value.is_floating_point() else value
        for name, value in encoder.state_dict().items()
    }
    write_safetensors(tensors, path, description)


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder nih_cxr_7k")
    parser.add_argument("--output", type=Path, default=Path("results/imagenet"))
    parser.add_argument("--objective", choices=list(OBJECTIVES), default="contrast")
    parser.add_argument("--start", choices=["imagenet", "random"], default="imagenet")
    parser.add_argument("--epochs", type=int, default=15)
    options = parser.parse_args()
    (options.output / "cache").mkdir(parents=True, exist_ok=True)
    data = read_set(options.data, SIZE, options.output / "cache")
    images = data.images[torch.from_numpy(data.rows("training"))]
    name = f"{options.start}_{options.objective}"
    trained = continued(
        OBJECTIVES[options.objective],
        options.start,
        images,
        options.epochs,
        options.output / f"{name}.checkpoint",
    )
    encoder = EfficientNetLiteEncoder(img_size=SIZE)
    encoder.load_state_dict(trained.state_dict())
    save_network(encoder, options.output / f"{name}.pt", {"task": "encoder"})
    if options.start == "imagenet":
        file = f"efficientnet_lite0_{options.objective}.safetensors"
        release(encoder, options.output / file)


if __name__ == "__main__":
    main()
