# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""One training step of a pre-training bundle, as configured, and the slow way."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from monai.bundle import ConfigParser
from monai.data.utils import list_data_collate
from monai.transforms import Compose
from torch import nn

from monai_afire.optimizers import weight_decay_groups
from monai_afire.transforms import input_shape
from tests.benchmarks.throughput import PartTimer
from tests.naive.published_methods import published

__all__ = ["METHODS", "PARTS", "PUBLISHED", "SIZES", "BundleCase", "TrainingStep", "loader_rate"]

# the papers' networks with ViT encoders: B/16, of DINO S/16
PAPER = {
    "afire": "paper.json",
    "peac": "paper_vit.json",
    "ace": "paper_vit.json",
    "mae": "paper.json",
    "dino": "paper.json",
}
SIZES = ("tiny", "default", "paper")
METHODS = tuple(PAPER)
PUBLISHED = ("afire", "peac", "ace")  # have a slow way to compare with
# networks for tests
TINY: dict[str, dict[str, Any]] = {
    "afire": {
        "network_def::num_clusters": 8,
        "network_def::head_dim": 16,
        "network_def::decoder_dim": 16,
        "network_def::decoder_layers": 1,
        "network_def::decoder_heads": 2,
    },
    "peac": {"grid": 6, "network_def::expander_dim": 8, "network_def::expander_hidden_dim": 16},
    "ace": {"grid": 10, "cell": 4},
    "mae": {
        "network_def::decoder_dim": 16,
        "network_def::decoder_layers": 1,
        "network_def::decoder_heads": 2,
    },
    "dino": {
        "make_crops::local_size": 16,
        "network_def::head_dim": 16,
        "network_def::bottleneck_dim": 8,
        "network_def::num_prototypes": 16,
        "make_crops::num_local": 2,
    },
}
TINY_ENCODER = {
    "image_size": 32,
    "patch_size": 8,
    "encoder_def::hidden_size": 24,
    "encoder_def::num_layers": 1,
    "encoder_def::num_heads": 2,
}

# what makes the whole image that an example is drawn from
WHOLE_IMAGE = ("@load_image", "@standardize_image")
PARTS = ("data", "teacher", "student", "loss", "backward", "optimizer", "teacher update")


class BundleCase:
    """
    Network, loss, optimizer and data of a bundle.

    Args:
        method: one of METHODS.
        size: one of SIZES: "tiny", "default" (the bundle's own) or "paper" (with a ViT).
        device: where to train.
        variants: AFiRe's lesion variants of each image.
    """

    def __init__(self, method: str, size: str, device: torch.device, variants: int) -> None:
        names = ["train.json"]
        names += ["lesions_on_device.json"] if method == "afire" else []
        names += [PAPER[method]] if size == "paper" else []
        self.parser = ConfigParser()
        self.parser.read_config([f"bundles/{method}/configs/{name}" for name in names])
        self.parser.update({"device": f"$torch.device({str(device)!r})"})
        if method == "afire":
            self.parser.update({"add_lesions::num_masks": variants})
        if size == "tiny":
            self.parser.update({**TINY_ENCODER, **TINY[method]})
        self.method, self.device = method, device

    @property
    def samples_per_image(self) -> int:
        """Lesion variants, crops or views that a step makes of an image."""
        samples = {"afire": "add_lesions::num_masks", "dino": "make_crops::num_local"}
        if self.method == "mae":
            return 1
        return (0 if self.method == "afire" else 2) + (
            self[samples[self.method]] if self.method in samples else 0
        )

    def __getitem__(self, name: str) -> Any:
        """What the configuration makes of a name."""
        return self.parser.get_parsed_content(name)

    def make_item(self) -> dict[str, Any]:
        """One example of noise as a loader's process makes it, from the image on."""
        steps = "train::preprocessing::transforms"
        transforms = [
            self[f"{steps}::{k}"]
            for k, step in enumerate(self.parser[steps])
            if step not in WHOLE_IMAGE
        ]
        side = self["whole_size" if "whole_size" in self.parser.config else "image_size"]
        shape = input_shape(self["channels"], side)
        return Compose(transforms)({"image": torch.rand(shape), "file": "random"})

    def make_batch(self, images: int) -> dict[str, torch.Tensor]:
        """A loader's batch, in pinned memory for a GPU."""
        batch = list_data_collate([self.make_item() for _ in range(images)])
        return {
            key: value.pin_memory() if self.device.type == "cuda" else value
            for key, value in batch.items()
        }


def loader_rate(case: BundleCase, items: int) -> float:
    """Images per second that one process of a loader makes ready."""
    start = time.perf_counter()
    for _ in range(items):
        case.make_item()
    return items / (time.perf_counter() - start)


@dataclass
class TrainingStep:
    """
    Forward, loss and backward of every micro-batch, then optimizer and teacher.

    Attributes:
        network: gets what `prepare` makes of a batch; if it has a teacher, `update_teacher` moves it.
        loss: of the network's output.
        optimizer: of the network's parameters.
        prepare: from a loader's batch to the network's arguments, on the device.
        precision: of float32 products, as `torch.set_float32_matmul_precision` takes it.
        bf16: autocast to bfloat16.
        micro_batch: images of each pass, 0 for all of the batch.
        max_norm: of the clipped gradient.
        run: the network as it is called, compiled or not.
    """

    network: nn.Module
    loss: Callable[[Any], torch.Tensor]
    optimizer: torch.optim.Optimizer
    prepare: Callable[..., tuple]
    timer: PartTimer
    precision: str
    bf16: bool
    micro_batch: int
    max_norm: float
    run: Callable[..., Any]

    @classmethod
    def of_package(
        cls, case: BundleCase, bf16: bool, micro_batch: int, compiled: bool
    ) -> TrainingStep:
        """As the bundle trains."""
        network, prepare = case["network"], cls._prepare(case)
        # the precision that a bundle sets
        precision = "high" if case.device.type == "cuda" else "medium"
        run = torch.compile(network) if compiled else network
        timer = PartTimer(case.device)
        if not compiled:  # hooks would break the graph
            cls._watch_teachers(network, timer)
        settings = (
            case["optimizer"],
            prepare,
            timer,
            precision,
            bf16,
            micro_batch,
            case["train::gradient_clipping::max_norm"],
        )
        return cls(network, case["loss"], *settings, run)

    @classmethod
    def naive(cls, case: BundleCase, micro_batch: int) -> TrainingStep:
        """The slow way, float32 throughout, with PyTorch's settings as they are by default."""
        network = published(case["network"], case["loss"])
        groups = weight_decay_groups(network.network, case["optimizer::weight_decay"])
        optimizer = torch.optim.AdamW(groups, lr=case["learning_rate"])
        timer = PartTimer(case.device)
        cls._watch_teachers(network.network, timer)
        settings = (
            optimizer,
            cls._prepare(case),
            timer,
            "highest",
            False,
            micro_batch,
            case["train::gradient_clipping::max_norm"],
        )
        return cls(network, network.loss, *settings, network)

    @staticmethod
    def _prepare(case: BundleCase) -> Callable[..., tuple]:
        return copy.deepcopy(case["train::prepare_batch"])

    @staticmethod
    def _watch_teachers(network: nn.Module, timer: PartTimer) -> None:
        for name, module in network.named_children():
            if name.startswith("teacher_"):
                timer.watch(module, "teacher")

    def __call__(self, batch: dict[str, torch.Tensor]) -> None:
        """Take one step on a loader's batch."""
        part, device = self.timer.part, self.timer.device
        torch.set_float32_matmul_precision(self.precision)
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        images = len(next(iter(batch.values())))
        size = self.micro_batch or images
        passes = -(-images // size)
        for start in range(0, images, size):
            with part("data"):
                chosen = {key: value[start : start + size] for key, value in batch.items()}
                first, _, others, _ = self.prepare(chosen, device, True)
            with part("forward"), torch.autocast(device.type, torch.bfloat16, enabled=self.bf16):
                outputs = self.run(first, *others)
            with part("loss"):
                loss = self.loss(outputs) / passes
            with part("backward"):
                loss.backward()
        with part("optimizer"):
            nn.utils.clip_grad_norm_(self.network.parameters(), self.max_norm)
            self.optimizer.step()
        if hasattr(self.network, "update_teacher"):
            with part("teacher update"):
                self.network.update_teacher()

    def seconds(self) -> dict[str, float]:
        """Seconds of each of PARTS in the steps since the last call; the teacher's pass counts as the student's if
        the network is compiled."""
        found = self.timer.seconds()
        found["student"] = found.pop("forward") - found.get("teacher", 0.0)
        return {name: found.get(name, 0.0) for name in PARTS}
