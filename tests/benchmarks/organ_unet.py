# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The simple rival of the segmentation bundle: MONAI's BasicUNet from scratch, with the bundle's images and masks.

``python -m tests.benchmarks.organ_unet --data /path/to/sets --seeds 0 1 2`` trains it on JSRT's organs with the
bundle's pre-processing, augmentation, loss and split, keeps the epoch with the best Dice of the validation images, and
prints the Dice of every organ. ``--test`` scores the test images; without it, the validation images are scored.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from monai.bundle import ConfigParser
from monai.data import DataLoader, Dataset
from monai.metrics import DiceMetric
from monai.networks.nets import BasicUNet
from monai.utils import set_determinism
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from tqdm import trange

from tests.benchmarks.real_tasks import listed_jsrt

TRAIN = "bundles/radiograph_segmentation/configs/train.json"
FEATURES = (16, 16, 32, 64, 128, 16)
CHECK_EVERY = 5  # epochs between two looks at the validation images


def bundle(options: argparse.Namespace, seed: int) -> ConfigParser:
    """The bundle's configuration for JSRT."""
    listed = options.output / "jsrt.json"
    if not listed.is_file():
        options.output.mkdir(parents=True, exist_ok=True)
        listed_jsrt(options.data, listed)
    parser = ConfigParser()
    parser.read_config(TRAIN)
    settings = {"datalist": str(listed), "dataset_dir": str(options.data / "jsrt"), "label_key": "organs"}
    parser.update({**settings, "image_size": options.image_size, "standardize": True, "seed": seed})
    return parser


@torch.inference_mode()
def dice_of(network: nn.Module, loader: DataLoader) -> torch.Tensor:
    """Mean Dice of every organ, ``(organs,)``."""
    network.eval()
    metric = DiceMetric(reduction="mean_batch")
    for batch in loader:
        metric((network(batch["image"]) > 0).float(), batch["label"])
    return metric.aggregate()


def trained(parser: ConfigParser, epochs: int, learning_rate: float) -> nn.Module:
    """The network of the best epoch."""
    training = DataLoader(parser.get_parsed_content("train::dataset"), batch_size=16, shuffle=True, drop_last=True)
    validation = DataLoader(parser.get_parsed_content("validate::dataset"), batch_size=16)
    loss_of = parser.get_parsed_content("loss")
    organs = parser.get_parsed_content("num_outputs")
    network = BasicUNet(spatial_dims=2, in_channels=1, out_channels=organs, features=FEATURES)
    optimizer = torch.optim.AdamW(network.parameters(), learning_rate, weight_decay=0.05)
    schedule = OneCycleLR(optimizer, learning_rate, total_steps=epochs * len(training))
    best, kept = -1.0, copy.deepcopy(network)
    with trange(epochs, desc="BasicUNet") as bar:
        for epoch in bar:
            network.train()
            for batch in training:
                optimizer.zero_grad()
                loss_of(network(batch["image"]), batch["label"]).backward()
                optimizer.step()
                schedule.step()
            if (epoch + 1) % CHECK_EVERY == 0 and (dice := float(dice_of(network, validation).mean())) > best:
                best, kept = dice, copy.deepcopy(network)
            bar.set_postfix(best=f"{best:.4f}")
    return kept


def scores(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Dice of the organs for one seed."""
    set_determinism(seed)
    parser = bundle(options, seed)
    network = trained(parser, options.epochs, options.learning_rate)
    items = parser.get_parsed_content("items")("test" if options.test else "validation")
    scored = Dataset(items, parser.get_parsed_content("validate::preprocessing"))
    found = dice_of(network, DataLoader(scored, batch_size=16)).tolist()
    names = parser.get_parsed_content("class_names")
    return {"seed": seed, **dict(zip(names, found, strict=True)), "mean": sum(found) / len(found)}


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets, with jsrt")
    parser.add_argument("--output", type=Path, default=Path("results/organ_unet"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--learning_rate", type=float, default=2e-3)
    parser.add_argument("--image_size", type=int, default=64)
    parser.add_argument("--test", action="store_true", help="score the test images")
    options = parser.parse_args()
    options.data, options.output = options.data.resolve(), options.output.resolve()
    table = pd.DataFrame([scores(options, seed) for seed in options.seeds]).set_index("seed")
    print(table.to_string(float_format="%.4f"))
    print(pd.DataFrame({"mean": table.mean(), "sd": table.std()}).T.to_string(float_format="%.4f"))


if __name__ == "__main__":
    main()
