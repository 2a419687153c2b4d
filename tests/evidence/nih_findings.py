# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Twelve findings of NIH ChestX-ray14 from a pre-trained encoder, beside the simple alternatives.

``python -m tests.evidence.nih_findings --data /path/to/nih_cxr_7k --arms cnn released_tuned`` trains each arm once
per seed and label fraction, and writes the scores of the validation and test images. A run that is interrupted
continues: finished runs are kept, an unfinished one continues at its last epoch. ``--table validation`` or ``--table
test`` prints means over seeds, intervals by patient, and paired differences. The protocol is in
docs/reports/transfer_nih.md.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from monai_afire.apps.compare.encoders import in_field_of_view
from monai_afire.apps.evaluation.patient_bootstrap import (
    bootstrap_aucs,
    bootstrap_p_value,
    patient_weights,
)
from monai_afire.detection.field_of_view import FIELDS_OF_VIEW
from monai_afire.inferers import AutocastInferer
from monai_afire.metrics import fit_linear_probe, mean_auc
from monai_afire.metrics.linear_probe import LinearProbe
from monai_afire.metrics.principal_components import pixel_components
from monai_afire.networks import (
    EfficientNetLiteEncoder,
    RadiographEncoder,
    ResidualEncoder,
    SwinEncoder,
    TimmEncoder,
    ViTEncoder,
    load_encoder_weights,
    released_encoder,
)
from monai_afire.networks.nets.encoders.efficientnet_lite_encoder import imagenet_state_dict
from monai_afire.optimizers import layer_decay_groups
from monai_afire.utils.precision import without_autocast
from tests.evidence.radiograph_sets import pictures

FINDINGS = (
    *("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Effusion", "Emphysema"),
    *("Fibrosis", "Infiltration", "Mass", "Nodule", "Pleural_Thickening", "Pneumothorax"),
)  # Hernia and Pneumonia have 3 and 1 test images
SECTIONS = {"train": "training", "val": "validation", "test": "test"}
BOOTSTRAPS = 2000
EMA_STEPS = 200  # the moving average of the weights forgets over about so many steps


@dataclass(frozen=True)
class Set:
    """Images with their findings; row k of ``table`` is image k."""

    table: pd.DataFrame
    images: torch.Tensor
    labels: NDArray[np.float32]

    def rows(self, section: str) -> NDArray[np.int64]:
        """Numbers of the images of "training", "validation" or "test"."""
        return np.flatnonzero((self.table["section"] == section).to_numpy())

    @property
    def held_out(self) -> NDArray[np.int64]:
        """Numbers of the validation and test images."""
        return np.flatnonzero((self.table["section"] != "training").to_numpy())

    def training_rows(self, fraction: float, seed: int) -> NDArray[np.int64]:
        """Numbers of the training images of a share of the patients, drawn by the seed."""
        rows = self.rows("training")
        patients = np.sort(self.table["patient_id"].iloc[rows].unique())
        kept = np.random.default_rng(seed).permutation(patients)[
            : max(1, round(fraction * len(patients)))
        ]
        return rows[self.table["patient_id"].iloc[rows].isin(kept).to_numpy()]


def findings_of(table: pd.DataFrame) -> NDArray[np.float32]:
    """Labels ``(M, 12)`` of 1 and 0 by the column "findings"."""
    found = table["findings"].str.get_dummies("|").reindex(columns=list(FINDINGS), fill_value=0)
    return found.to_numpy(np.float32)


def ending_of(field_of_view: str) -> str:
    """What names of files with another view than the whole image end with."""
    return "" if field_of_view == "image" else f"_{field_of_view}"


def read_set(folder: Path, size: int, cache: Path, field_of_view: str = "image") -> Set:
    """
    The images at ``size`` with standardized contrast (kept in ``cache``), their findings, patients and splits.

    With the field of view "lungs", the square around the lungs is cut out at twice the size.
    """
    table = pd.read_csv(folder / "manifest.csv", dtype={"patient_id": str})
    table["section"] = table["split"].map(SECTIONS)
    file = cache / f"nih_cxr_7k_{size}{ending_of(field_of_view)}.npy"
    if not file.is_file():
        paths = [str(folder / name) for name in table["image"]]
        read, _ = pictures(paths, size if field_of_view == "image" else 2 * size)
        images = F.interpolate(in_field_of_view(read, field_of_view), (size, size), mode="area")
        cache.mkdir(parents=True, exist_ok=True)
        np.save(file, images.numpy().astype(np.float16))
    return Set(table, torch.from_numpy(np.load(file)).float(), findings_of(table))


@dataclass(frozen=True)
class Recipe:
    """How a network is trained on labels."""

    epochs: int = 12
    batch_size: int = 64
    learning_rate: float = 3e-4
    layer_decay: float = 0.75
    weight_decay: float = 0.05
    warmup: float = 0.1
    dropout: float = 0.1
    flip: float = 0.5
    strength: float = 1.0  # of the augmentation
    warm_head: bool = True


@dataclass(frozen=True)
class Arm:
    """One way to get from images to probabilities: "pixels", "probe" (frozen features) or "tuned" (all weights)."""

    kind: str
    network: str = "vit"
    weights: str | None = None
    size: int = 64
    recipe: Recipe = Recipe()


class SmallCNN(nn.Module):
    """Eight 3 x 3 convolutions with batch normalization, three of stride 2; mean and maximum of the last map."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 1
        for number in range(8):
            wider, stride = width * 2 ** (number // 2), 1 if number % 2 else 2
            layers += [nn.Conv2d(channels, wider, 3, stride if number else 1, 1, bias=False)]
            layers += [nn.BatchNorm2d(wider), nn.ReLU(inplace=True)]
            channels = wider
        self.layers = nn.Sequential(*layers)
        self.hidden_size = 2 * channels

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """``(B, 1, H, W)`` to ``(B, 2 C)``."""
        maps = self.layers(images)
        return torch.cat([maps.mean((2, 3)), maps.amax((2, 3))], dim=1)


class MeanToken(nn.Module):
    """An encoder of tokens whose mean is the feature of an image."""

    def __init__(self, encoder: RadiographEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.hidden_size = encoder.hidden_size

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """``(B, 1, H, W)`` to ``(B, D)``."""
        return self.encoder(images).mean(dim=1)


class Classifier(nn.Module):
    """A linear layer on standardized features; the statistics are fixed when the head is set."""

    mean: torch.Tensor
    deviation: torch.Tensor

    def __init__(self, features: nn.Module, dropout: float) -> None:
        super().__init__()
        self.features = features
        width = int(features.hidden_size)  # type: ignore[arg-type]
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, len(FINDINGS))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """``(B, 1, H, W)`` to logits ``(B, 12)``."""
        features = self.features(images).float()
        with without_autocast(images):
            # as TransferClassifier: bfloat16 would tie rare findings
            return self.head(self.dropout((features - self.mean) / self.deviation))


def encoder_of(network: str, size: int) -> RadiographEncoder:
    """
    With random weights: "residual", that of the bundles; "vit", the released shape; "stem", the same with convolutions;
    "vit_tiny", the shape of ``vit_tiny_patch16_224``; "swin", a small Swin; "convnext", timm's ConvNeXt-Atto; or
    "efficientnet", EfficientNet-Lite0.
    """
    if network == "residual":
        return ResidualEncoder(img_size=size, patch_size=8, hidden_size=256, depths=(1, 1, 1, 1))
    if network == "vit_tiny":
        return ViTEncoder(img_size=size, patch_size=16, hidden_size=192, num_layers=12, num_heads=3)
    if network == "swin":
        shape = {"embed_dim": 96, "depths": (2, 4), "num_heads": (3, 6)}
        return SwinEncoder(img_size=size, patch_size=4, window_size=4, **shape)
    if network == "efficientnet":
        return EfficientNetLiteEncoder(img_size=size)
    if network == "convnext":
        return TimmEncoder("convnext_atto", img_size=size)
    stem = "convolution" if network == "stem" else "patch"
    return ViTEncoder(
        img_size=size, patch_size=8, hidden_size=192, num_layers=6, num_heads=6, stem=stem
    )


def features_of(arm: Arm, seed: int) -> nn.Module:
    """The network below the head, pre-trained where the arm has weights."""
    torch.manual_seed(seed)
    if arm.network == "cnn":
        return SmallCNN()
    encoder = encoder_of(arm.network, arm.size)
    if arm.weights == "imagenet":
        encoder.load_state_dict(imagenet_state_dict())
    elif arm.weights:
        load_encoder_weights(
            encoder, released_encoder() if arm.weights == "released" else arm.weights
        )
    return MeanToken(encoder)


@torch.inference_mode()
def in_batches(network: nn.Module, images: torch.Tensor) -> NDArray[np.float32]:
    """What the network in evaluation mode gives for each image."""
    network.eval()
    # on a CPU, depthwise convolutions are slower in bfloat16
    infer = AutocastInferer(enabled=not _has_depthwise(network))
    return torch.cat([infer(batch, network).float() for batch in images.split(128)]).numpy()


def cached_features(arm: Arm, data: Set, seed: int, folder: Path) -> NDArray[np.float32]:
    """Features of all images; those of random weights are computed anew for each of three seeds, others once."""
    weights = _weights_key(arm.weights) if arm.weights else f"random_{seed % 3}"
    file = folder / f"features_{arm.network}_{arm.size}_{weights}.npy"
    if not file.is_file():
        np.save(file, in_batches(features_of(arm, seed % 3), data.images))
    return np.load(file)


def _weights_key(weights: str) -> str:
    """Tells the features of two files apart that have the same name; a released one has a name of its own."""
    path = Path(weights)
    if not path.is_file():
        return path.stem
    return f"{path.stem}_{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"


def _has_depthwise(network: nn.Module) -> bool:
    """Whether a network has convolutions with a group for each channel."""
    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    return any(each.groups == each.in_channels > 1 for each in convolutions)


def probe_of(data: Set, features: NDArray, rows: NDArray[np.int64]) -> LinearProbe:
    """The probe of some training images; one penalty for all findings, chosen on validation."""
    validation = data.rows("validation")
    return fit_linear_probe(
        features[rows], data.labels[rows], features[validation], data.labels[validation]
    )


def base_rate_logit(finding: NDArray) -> float:
    """The logit of a finding's frequency, with half an image added to either side."""
    positive = finding.sum()
    return math.log((positive + 0.5) / (len(finding) - positive + 0.5))


def augmented(
    images: torch.Tensor, flip: float, generator: torch.Generator, strength: float = 1.0
) -> torch.Tensor:
    """Rotated by up to 10 degrees, shifted and scaled by up to 10 %, mirrored, other gamma; ranges times strength."""
    draws = torch.rand(len(images), 6, generator=generator) * 2 - 1
    draws[:, [0, 1, 2, 3, 5]] *= strength
    angle, scale = draws[:, 0] * math.radians(10), 1 + 0.1 * draws[:, 1]
    mirror = torch.where((draws[:, 4] + 1) / 2 < flip, -1.0, 1.0)
    cosine, sine = angle.cos() * scale, angle.sin() * scale
    rows = [torch.stack([cosine * mirror, -sine, 0.1 * draws[:, 2]], 1)]
    rows += [torch.stack([sine * mirror, cosine, 0.1 * draws[:, 3]], 1)]
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    moved = F.grid_sample(images, grid, padding_mode="border", align_corners=False)
    return moved.clamp(1e-4, 1) ** (1.4 ** draws[:, 5]).view(-1, 1, 1, 1)


def initial_classifier(arm: Arm, data: Set, rows: NDArray[np.int64], seed: int) -> Classifier:
    """The network before training; a warm head is the probe of its features, otherwise its bias is the base rate."""
    network = Classifier(features_of(arm, seed), arm.recipe.dropout)
    if arm.recipe.warm_head:
        # at 224 pixels, features of all would take minutes
        numbers = np.union1d(rows, data.rows("validation"))
        features = np.zeros((len(data.images), len(network.mean)), dtype=np.float32)
        features[numbers] = in_batches(network.features, data.images[torch.from_numpy(numbers)])
        probe = probe_of(data, features, rows)
        network.mean.copy_(torch.from_numpy(probe.mean))
        network.deviation.copy_(torch.from_numpy(probe.deviation))
        network.head.weight.data.copy_(torch.from_numpy(probe.weight))
        network.head.bias.data.copy_(torch.from_numpy(probe.bias))
        return network
    nn.init.trunc_normal_(network.head.weight, std=0.02)
    network.head.bias.data.copy_(
        torch.tensor([base_rate_logit(finding) for finding in data.labels[rows].T])
    )
    return network


def optimizer_of(network: Classifier, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW, with smaller rates in lower layers of a ViT."""
    if isinstance(network.features, MeanToken):
        groups = layer_decay_groups(
            network, recipe.learning_rate, recipe.weight_decay, recipe.layer_decay
        )
        return torch.optim.AdamW(groups)
    return torch.optim.AdamW(
        network.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay
    )


def batches(
    rows: NDArray[np.int64], batch_size: int, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """An epoch in a new order; a set smaller than a batch is repeated, to at least ten batches."""
    repeats = max(1, math.ceil(10 * batch_size / len(rows)))
    order = torch.cat([torch.randperm(len(rows), generator=generator) for _ in range(repeats)])
    numbers = torch.from_numpy(rows)[order]
    yield from numbers.split(batch_size)[: len(numbers) // batch_size]


class Training:
    """Fine-tuning of one arm: a state that each epoch moves on, and that a file keeps."""

    def __init__(self, arm: Arm, data: Set, rows: NDArray[np.int64], seed: int, file: Path) -> None:
        self.recipe, self.data, self.rows, self.file = arm.recipe, data, rows, file
        # convolutions of a CPU take channels-last maps 1.3 times as fast
        self.network = initial_classifier(arm, data, rows, seed).to(
            memory_format=torch.channels_last
        )
        self.average = copy.deepcopy(self.network)
        self.optimizer = optimizer_of(self.network, arm.recipe)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.generator = torch.Generator().manual_seed(seed)
        self.step = 0
        self.history: list[float] = []
        self.best: dict[str, Any] = {}
        if file.is_file():
            self._resume()
        else:
            self._validate()

    def run(self) -> nn.Module:
        """Train to the end; the average of the weights at the best epoch, where epoch 0 is the start."""
        with tqdm(
            total=self.recipe.epochs, initial=len(self.history) - 1, desc=self.file.stem
        ) as bar:
            while len(self.history) <= self.recipe.epochs:
                self._epoch()
                self._validate()
                self._save()
                bar.set_postfix(auc=f"{self.history[-1]:.4f}", best=f"{max(self.history):.4f}")
                bar.update()
        self.average.load_state_dict(self.best)
        return self.average

    def _epoch(self) -> None:
        self.network.train()
        infer = AutocastInferer(enabled=not _has_depthwise(self.network))
        for numbers in batches(self.rows, self.recipe.batch_size, self.generator):
            self._set_rates(len(self.rows))
            images = augmented(
                self.data.images[numbers], self.recipe.flip, self.generator, self.recipe.strength
            )
            logits = infer(images, self.network)
            labels = torch.from_numpy(self.data.labels[numbers.numpy()])
            loss = F.binary_cross_entropy_with_logits(logits.float(), labels)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), 3.0)
            self.optimizer.step()
            self.step += 1
            self._average()

    def _set_rates(self, images: int) -> None:
        """Linear warm-up, then a cosine to zero."""
        steps = self.recipe.epochs * max(10, images // self.recipe.batch_size)
        warmup = max(1.0, self.recipe.warmup * steps)
        done = min(1.0, self.step / steps)
        scale = min(1.0, (self.step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * done))
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * scale

    @torch.no_grad()
    def _average(self) -> None:
        """Exponential moving average, shorter at the start."""
        decay = min(1 - 1 / EMA_STEPS, self.step / (self.step + 10))
        for mean, value in zip(
            self.average.state_dict().values(), self.network.state_dict().values(), strict=True
        ):
            if mean.is_floating_point():
                mean.lerp_(value, 1 - decay)
            else:
                mean.copy_(value)

    def _validate(self) -> None:
        validation = self.data.rows("validation")
        auc = mean_auc(
            self.data.labels[validation], in_batches(self.average, self.data.images[validation])
        )
        self.history.append(auc)
        if auc >= max(self.history):
            self.best = copy.deepcopy(self.average.state_dict())

    def _save(self) -> None:
        state = {
            **{
                "network": self.network.state_dict(),
                "average": self.average.state_dict(),
                "best": self.best,
            },
            **{
                "optimizer": self.optimizer.state_dict(),
                "history": self.history,
                "step": self.step,
            },
            **{"generator": self.generator.get_state(), "torch": torch.get_rng_state()},
        }
        torch.save(state, self.file.with_suffix(".tmp"))
        self.file.with_suffix(".tmp").replace(self.file)

    def _resume(self) -> None:
        state = torch.load(self.file, weights_only=True)
        self.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.best, self.history, self.step = state["best"], state["history"], state["step"]
        self.generator.set_state(state["generator"])
        torch.set_rng_state(state["torch"])


RELEASED, SCRATCH = (
    Recipe(),
    Recipe(learning_rate=1e-3, layer_decay=1.0, warm_head=False, epochs=20),
)
IMAGENET = Recipe(
    epochs=20, batch_size=32, learning_rate=5e-4, layer_decay=0.9, dropout=0.2, flip=0.0
)
ARMS = {
    "pixels": Arm("pixels"),
    "untrained_probe": Arm("probe"),
    "released_probe": Arm("probe", weights="released"),
    "released_tuned": Arm("tuned", weights="released", recipe=RELEASED),
    "scratch_tuned": Arm("tuned", recipe=SCRATCH),
    "cnn": Arm("tuned", "cnn", recipe=replace(SCRATCH, learning_rate=2e-3)),
    "residual": Arm("tuned", "residual", recipe=replace(SCRATCH, learning_rate=2e-3)),
    "residual_pretrained_probe": Arm("probe", "residual", weights="--weights"),
    "residual_pretrained": Arm(
        "tuned", "residual", weights="--weights", recipe=replace(SCRATCH, warm_head=True)
    ),
    "vit_tiny": Arm("tuned", "vit_tiny", size=224, recipe=replace(SCRATCH, learning_rate=5e-4)),
    "vit_tiny_pretrained": Arm("tuned", "vit_tiny", weights="--weights", size=224, recipe=RELEASED),
    "vit_tiny_probe": Arm("probe", "vit_tiny", weights="--weights", size=224),
    "imagenet_probe": Arm("probe", "efficientnet", weights="imagenet", size=128),
    "imagenet_untrained_probe": Arm("probe", "efficientnet", size=128),
    "imagenet_continued_probe": Arm("probe", "efficientnet", weights="--weights", size=128),
    "random_continued_probe": Arm("probe", "efficientnet", weights="--weights", size=128),
    "imagenet_probe_224": Arm("probe", "efficientnet", weights="imagenet", size=224),
    "imagenet_continued_probe_224": Arm("probe", "efficientnet", weights="--weights", size=224),
    "imagenet_tuned": Arm("tuned", "efficientnet", weights="imagenet", size=96, recipe=IMAGENET),
    "imagenet_continued_tuned": Arm(
        "tuned", "efficientnet", weights="--weights", size=96, recipe=IMAGENET
    ),
    "cnn_128": Arm("tuned", "cnn", size=128, recipe=replace(SCRATCH, learning_rate=2e-3)),
}


def scores_of(
    arm: Arm, data: Set, fraction: float, seed: int, file: Path
) -> tuple[NDArray, list[float]]:
    """Logits ``(M, 12)`` of the held-out images, and the validation's mean AUC after each epoch of a training."""
    rows = data.training_rows(fraction, seed)
    torch.manual_seed(seed)
    if arm.kind == "tuned":
        training = Training(arm, data, rows, seed, file)
        network = training.run()
        # other images can be scored later
        torch.save(network.state_dict(), file.with_suffix(".weights.pt"))
        return in_batches(network, data.images[torch.from_numpy(data.held_out)]), training.history
    if arm.kind == "pixels":
        features = pixel_components(data.images.flatten(1).numpy(), data.rows("training"), seed)
    else:
        features = cached_features(arm, data, seed, file.parent / "cache")
    return probe_of(data, features, rows).logits(features[data.held_out]), []


def run(
    name: str, arm: Arm, read: Callable[[int], Set], fraction: float, seed: int, output: Path
) -> None:
    """One run, unless its scores are there."""
    stem = f"{name}_{fraction:g}_{seed}"
    file = output / f"{stem}.npz"
    if file.is_file():
        return
    data = read(arm.size)
    scores, history = scores_of(arm, data, fraction, seed, output / f"{stem}.pt")
    np.savez_compressed(file, scores=scores.astype(np.float32), rows=data.held_out)
    validation = data.rows("validation")
    auc = mean_auc(data.labels[validation], scores[np.isin(data.held_out, validation)])
    found = {"run": stem, "validation": auc, "history": history}
    (output / f"{stem}.json").write_text(json.dumps({**found, "arm": asdict(arm)}))
    (output / f"{stem}.pt").unlink(missing_ok=True)
    print(json.dumps(found), flush=True)


def write_ensemble(arms: str, fraction: float, seed: int, output: Path) -> None:
    """The mean of the logits of arms joined by "+", as an arm of its own, where all of them are there."""
    files = [output / f"{name}_{fraction:g}_{seed}.npz" for name in arms.split("+")]
    if all(file.is_file() for file in files):
        members = [dict(np.load(file)) for file in files]
        scores = np.mean([member["scores"] for member in members], axis=0)
        np.savez_compressed(
            output / f"{arms}_{fraction:g}_{seed}.npz", scores=scores, rows=members[0]["rows"]
        )


def table(data: Set, output: Path, section: str, draws: int, reference: str) -> pd.DataFrame:
    """AUC of each share of the labels and arm, and its difference to the reference over the seeds that both have."""
    chosen = data.rows(section)
    weights = patient_weights(data.table["patient_id"].iloc[chosen], draws, include_original=True)
    aucs: dict[tuple[str, str], dict[str, NDArray]] = {}
    for file in sorted(output.glob("*.npz")):
        arm, fraction, seed = file.stem.rsplit("_", 2)
        drawn = bootstrap_aucs(data.labels[chosen], _scores(file, chosen), weights)
        aucs.setdefault((fraction, arm), {})[seed] = drawn
    found = {}
    for (fraction, arm), seeds in aucs.items():
        others = aucs.get((fraction, reference), {})
        whole = pd.Series([drawn[0] for drawn in seeds.values()])
        found[fraction, arm] = {
            "each seed": " ".join(map("{:.3f}".format, whole)),
            "sd": whole.std(),
        }
        found[fraction, arm] |= _with_interval("AUC", list(seeds.values()))
        pairs = [drawn - others[seed] for seed, drawn in seeds.items() if seed in others]
        if arm != reference and pairs:
            found[fraction, arm] |= _with_interval(f"- {reference}", pairs)
            found[fraction, arm]["p"] = bootstrap_p_value(np.mean(pairs, axis=0)[1:])
    return pd.DataFrame.from_dict(found, orient="index").sort_index()


def print_table(data: Set, output: Path, section: str, draws: int, reference: str) -> None:
    """The table, for people; ``data`` is the set whose rows the runs have scored."""
    found = table(data, output, section, draws, reference)
    print(found.to_string(float_format="{:.3f}".format, na_rep=""))


def _with_interval(name: str, drawn: list[NDArray]) -> dict[str, float]:
    """Mean over the seeds, and its interval over the patients; the first draw is all of them."""
    mean, *others = np.mean(drawn, axis=0)
    low, high = np.quantile(others, [0.025, 0.975])
    return {name: float(mean), f"{name}, low": float(low), f"{name}, high": float(high)}


def _scores(file: Path, chosen: NDArray[np.int64]) -> NDArray:
    with np.load(file) as content:
        order = np.searchsorted(content["rows"], chosen)
        return content["scores"][order]


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="nih_cxr_7k")
    parser.add_argument("--output", type=Path, default=Path("results/nih_findings"))
    parser.add_argument("--arms", nargs="+", default=[], choices=list(ARMS))
    parser.add_argument(
        "--ensembles", nargs="+", default=[], help="arms joined by +, whose logits are averaged"
    )
    parser.add_argument(
        "--fractions", type=float, nargs="+", default=[1.0], help="of the training patients"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--recipe",
        type=json.loads,
        default={},
        help="JSON with fields of Recipe to change, to tune",
    )
    parser.add_argument(
        "--weights", help="file of the pre-trained encoder, for the arms that need one"
    )
    parser.add_argument(
        "--field_of_view", choices=FIELDS_OF_VIEW, default="image", help="default: %(default)s"
    )
    parser.add_argument("--name", default="", help="ending of the arms' names with another recipe")
    parser.add_argument("--table", choices=["validation", "test"])
    parser.add_argument("--bootstraps", type=int, default=BOOTSTRAPS)
    parser.add_argument(
        "--reference", default="cnn", help="arm that the table compares the others with"
    )
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)

    def read(size: int) -> Set:
        return read_set(options.data, size, options.output / "cache", options.field_of_view)

    for fraction in options.fractions:
        for seed in options.seeds:
            for name in options.arms:
                arm = replace(ARMS[name], recipe=replace(ARMS[name].recipe, **options.recipe))
                if arm.weights == "--weights":
                    arm = replace(
                        arm, weights=options.weights or parser.error(f"{name} needs --weights")
                    )
                run(
                    name + ending_of(options.field_of_view) + options.name,
                    arm,
                    read,
                    fraction,
                    seed,
                    options.output,
                )
            for arms in options.ensembles:
                write_ensemble(arms, fraction, seed, options.output)
    if options.table:
        print_table(read(64), options.output, options.table, options.bootstraps, options.reference)


if __name__ == "__main__":
    main()
