# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The simple rival of the segmentation and landmark bundles: MONAI's BasicUNet from scratch.

``python -m tests.evidence.unet_rival --data /path/to/sets --task organs --seeds 0 1 2`` trains it on JSRT with the
bundle's pre-processing, augmentation, loss and split, keeps the epoch that is best on the validation images, and
prints the Dice of every organ. ``--task landmarks`` finds contour points instead, and prints the mean radial error in
percent of the side. ``--montgomery`` also scores Montgomery's lungs, as ``real_lungs`` does for the bundle. ``--test``
scores the test images; without it, the validation images are scored. The list of images stays in ``--output``, so that
the bundle can take it.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import dataclass
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
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR
from tqdm import trange

from monai_afire.metrics import radial_errors
from monai_afire.metrics.landmark_errors import landmark_positions
from tests.evidence.radiograph_sets import pictures
from tests.evidence.real_lungs import dice as dice_of_masks
from tests.evidence.real_lungs import mask
from tests.evidence.real_tasks import listed_contour_points, listed_jsrt

FEATURES = (16, 16, 32, 64, 128, 16)
CHECK_EVERY = 5  # epochs between two looks at the validation images


def dice(parser: ConfigParser, network: nn.Module, loader: DataLoader) -> dict[str, float]:
    """Mean Dice of every organ, and of all."""
    metric = DiceMetric(reduction="mean_batch")
    for batch in loader:
        metric((network(batch["image"]) > 0).float(), batch["label"])
    found = metric.aggregate()
    names = parser.get_parsed_content("class_names")
    return {**dict(zip(names, found.tolist(), strict=True)), "mean": float(found.mean())}


def radial_error(parser: ConfigParser, network: nn.Module, loader: DataLoader) -> dict[str, float]:
    """Mean radial error in percent of the side; negative, so that larger is better."""
    window, size = (parser.get_parsed_content(name) for name in ("window", "image_size"))
    found = [
        (landmark_positions(network(batch["image"]), window), batch["landmarks"])
        for batch in loader
    ]
    errors = torch.cat([radial_errors(places, truth) for places, truth in found])
    return {"mean": -100 * float(errors.nanmean()) / size}


@torch.inference_mode()
def montgomery_dice(network: nn.Module, data: Path, size: int) -> float:
    """Mean Dice of both lungs together, in the pixels of Montgomery's files."""
    truths = sorted((data / "montgomery" / "lungs").glob("*.png"))
    images, _ = pictures([str(data / "montgomery" / "images" / path.name) for path in truths], size)
    found = []
    for path, organs in zip(truths, network.eval()(images), strict=True):
        truth = mask(path)
        lungs = F.interpolate(organs[None, :2], size=truth.shape, mode="bilinear").amax(1)[0] > 0
        found.append(dice_of_masks(lungs.numpy(), truth))
    return sum(found) / len(found)


@dataclass(frozen=True)
class Task:
    """A bundle, its list of JSRT, and what is larger for a better network."""

    bundle: str
    datalist: Callable[[Path, Path], None]
    label_key: str
    score: Callable[[ConfigParser, nn.Module, DataLoader], dict[str, float]]


TASKS = {
    "organs": Task("segmentation", listed_jsrt, "organs", dice),
    "landmarks": Task("landmarks", listed_contour_points, "landmarks", radial_error),
}


def bundle(options: argparse.Namespace, seed: int) -> ConfigParser:
    """The bundle's configuration for JSRT."""
    task = TASKS[options.task]
    listed = options.output / f"{options.task}.json"
    if not listed.is_file():
        options.output.mkdir(parents=True, exist_ok=True)
        task.datalist(options.data, listed)
    parser = ConfigParser()
    parser.read_config(f"bundles/radiograph_{task.bundle}/configs/train.json")
    settings = {"datalist": str(listed), "label_key": task.label_key}
    parser.update({**settings, "image_size": options.image_size, "standardize": True, "seed": seed})
    return parser


def scored(
    options: argparse.Namespace, parser: ConfigParser, network: nn.Module, loader: DataLoader
) -> dict[str, Any]:
    """What the task's score says of the network."""
    network.eval()
    with torch.inference_mode():
        return TASKS[options.task].score(parser, network, loader)


def trained(options: argparse.Namespace, parser: ConfigParser) -> nn.Module:
    """The network of the best epoch."""
    training = DataLoader(
        parser.get_parsed_content("train::dataset"), batch_size=16, shuffle=True, drop_last=True
    )
    validation = DataLoader(parser.get_parsed_content("validate::dataset"), batch_size=16)
    loss_of = parser.get_parsed_content("loss")
    outputs = len(parser.get_parsed_content("class_names"))
    network = BasicUNet(spatial_dims=2, in_channels=1, out_channels=outputs, features=FEATURES)
    optimizer = torch.optim.AdamW(network.parameters(), options.learning_rate, weight_decay=0.05)
    schedule = OneCycleLR(
        optimizer, options.learning_rate, total_steps=options.epochs * len(training)
    )
    best, kept = -float("inf"), copy.deepcopy(network)
    with trange(options.epochs, desc="BasicUNet") as bar:
        for epoch in bar:
            network.train()
            for batch in training:
                optimizer.zero_grad()
                loss_of(network(batch["image"]), batch["label"]).backward()
                optimizer.step()
                schedule.step()
            if (epoch + 1) % CHECK_EVERY == 0:
                score = scored(options, parser, network, validation)["mean"]
                if score > best:
                    best, kept = score, copy.deepcopy(network)
            bar.set_postfix(best=f"{best:.4f}")
    return kept


def scores(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """The scores of one seed."""
    set_determinism(seed)
    parser = bundle(options, seed)
    network = trained(options, parser)
    items = parser.get_parsed_content("items")("test" if options.test else "validation")
    images = Dataset(items, parser.get_parsed_content("validate::preprocessing"))
    found = scored(options, parser, network, DataLoader(images, batch_size=16))
    if options.montgomery:
        found["montgomery"] = montgomery_dice(network, options.data, options.image_size)
    return {"seed": seed, **found}


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets, with jsrt")
    parser.add_argument("--output", type=Path, default=Path("results/unet_rival"))
    parser.add_argument("--task", choices=list(TASKS), default="organs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--learning_rate", type=float, default=2e-3)
    parser.add_argument("--image_size", type=int, default=64)
    parser.add_argument("--test", action="store_true", help="score the test images")
    parser.add_argument(
        "--montgomery", action="store_true", help="organs: score Montgomery's lungs as well"
    )
    options = parser.parse_args()
    options.data, options.output = options.data.resolve(), options.output.resolve()
    table = pd.DataFrame([scores(options, seed) for seed in options.seeds]).set_index("seed")
    print(table.to_string(float_format="%.4f"))
    print(pd.DataFrame({"mean": table.mean(), "sd": table.std()}).T.to_string(float_format="%.4f"))


if __name__ == "__main__":
    main()
