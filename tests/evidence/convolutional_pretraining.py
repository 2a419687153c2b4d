# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which objective without findings lifts a small encoder over itself from scratch on findings of NIH.

``python -m tests.evidence.convolutional_pretraining --data /path/to/sets --arm masked --epochs 5`` pre-trains the
encoder of the arm ``residual`` of ``nih_findings`` on images without findings, then fine-tunes it with two recipes.
``--network vit`` or ``stem`` takes the released vision transformer's shape, without or with a convolutional stem;
``swin`` and ``convnext`` (which needs timm) are a small Swin and ConvNeXt-Atto, for ``contrast`` and ``masked``.
``--arm scratch`` fine-tunes only, and ``--arm NAME --weights model.pt`` what a bundle has pre-trained. Everything that
is interrupted continues at its last epoch. ``--table`` compares the runs with one, ``--reference``, on the same
validation patients. Test images are read by ``--test RUN`` only, which scores them with the networks of finished runs;
each such look is counted. The protocol is in docs/reports/convolutional_pretraining.md.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR
from torch.optim.swa_utils import update_bn
from tqdm import tqdm

from monai_afire.inferers import AutocastInferer
from monai_afire.losses import DINOLoss, MaskedReconstructionLoss
from monai_afire.networks import (
    DINO,
    MAE,
    RadiographEncoder,
    ResidualEncoder,
    SwinEncoder,
    ViTEncoder,
)
from monai_afire.networks.blocks.patches import patchify
from monai_afire.optimizers import weight_decay_groups
from monai_afire.transforms import synth_lesion_masks
from tests.evidence import nih_findings
from tests.evidence.nih_findings import (
    Arm,
    Classifier,
    Recipe,
    Set,
    augmented,
    batches,
    encoder_of,
    in_batches,
    read_set,
)
from tests.evidence.radiograph_sets import images_beside_nih, pictures

SIZE = 64
HIDDEN = 0.6  # share of the patches that the encoder does not see
VIEW_SIZE, LOCAL_SIZE = 48, 32  # convolutions take views of any size, and smaller ones are faster
TEMPERATURE = 0.2
REFRESHED = 2048  # images that the statistics of batch normalization are taken from at the end
RECIPES = {
    "as_scratch": Recipe(learning_rate=2e-3, layer_decay=1.0, warm_head=False),
    "careful": Recipe(learning_rate=1e-3, layer_decay=0.7, warm_head=True),
    "as_scratch_slow": Recipe(
        learning_rate=1e-3, layer_decay=1.0, warm_head=False
    ),  # of the ViT in transfer_nih
    # against the overfitting that both of them show with all labels
    "as_scratch_strong": Recipe(
        learning_rate=2e-3, layer_decay=1.0, warm_head=False, dropout=0.3, strength=2.0
    ),
    "careful_strong": Recipe(
        learning_rate=1e-3, layer_decay=0.7, warm_head=True, dropout=0.3, strength=2.0
    ),
}


@dataclass(frozen=True)
class Unlabeled:
    """Images ``(M, 1, H, W)`` in [0, 1]; headers ``(M, 3)`` are age / 20 years, male, and view PA, or NaN."""

    images: torch.Tensor
    headers: torch.Tensor

    def rows(self, number: int | None, with_headers: bool) -> np.ndarray:
        """Numbers of all images that can be used, or of some of them in a fixed order."""
        known = (
            torch.isfinite(self.headers).all(1)
            if with_headers
            else torch.ones(len(self.images), dtype=torch.bool)
        )
        return np.random.default_rng(0).permutation(np.flatnonzero(known.numpy()))[:number]


def without_test(data: Set) -> Set:
    """The training and validation images only."""
    kept = (data.table["section"] != "test").to_numpy()
    return Set(
        data.table[kept].reset_index(drop=True),
        data.images[torch.tensor(kept)],
        data.labels[kept],
    )


def unlabeled_images(folder: Path, findings: Set, cache: Path) -> Unlabeled:
    """Training images of NIH 7k, adult normals that NIH 7k lacks, and ChildCXR's training patients."""
    training = findings.table.iloc[findings.rows("training")]
    file = cache / f"unlabeled_{SIZE}.npy"
    if not file.is_file():
        images, _ = pictures(images_beside_nih(folder), SIZE)
        np.save(file, images.numpy().astype(np.float16))
    others = torch.from_numpy(np.load(file)).float()
    age = pd.to_numeric(training["age"], errors="coerce") / 20
    headers = np.stack([age, training["sex"] == "M", training["view"] == "PA"], axis=1).astype(
        np.float32
    )
    unknown = torch.full((len(others), headers.shape[1]), torch.nan)
    own = findings.images[torch.from_numpy(findings.rows("training"))]
    return Unlabeled(torch.cat([own, others]), torch.cat([torch.from_numpy(headers), unknown]))


class Objective(nn.Module):
    """An encoder with what its pre-training adds; ``forward`` is the loss of images ``(B, 1, H, W)``."""

    with_headers = False
    batch_size = 64
    learning_rate = 2e-3  # the highest of the schedule

    def __init__(self, encoder: RadiographEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def after_step(self) -> None:
        """What follows a step of the optimizer."""


class Restoration(Objective):
    """Hidden patches, and those under painted lesions if wanted, are restored from the other patches."""

    def __init__(self, encoder: RadiographEncoder, lesions: bool = False) -> None:
        super().__init__(encoder)
        self.lesions = lesions
        width, pixels = encoder.hidden_size, math.prod(encoder.patch_size)
        layers = [nn.Conv2d(width, width, 3, padding=1), nn.GELU(), nn.Conv2d(width, pixels, 1)]
        self.decoder = nn.Sequential(*layers)
        self.loss = MaskedReconstructionLoss()

    def forward(
        self, images: torch.Tensor, headers: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        """Squared error of the hidden and the changed patches."""
        patch, grid = self.encoder.patch_size, self.encoder.grid_size
        tokens = math.prod(grid)
        places = torch.rand(len(images), tokens, generator=generator).argsort(1)
        hidden = places < round(HIDDEN * tokens)
        counted, seen = hidden, images
        if self.lesions:
            variants, maps = synth_lesion_masks(images, generator=generator)
            seen = variants[:, 0]
            counted = hidden | (patchify(maps[:, 0], patch) > 0).any(-1)
        mask = hidden.view(-1, 1, *grid).float()
        mask = F.interpolate(mask, size=images.shape[2:])
        seen = torch.lerp(seen, images.mean((2, 3), keepdim=True), mask)
        features = self.encoder(seen).transpose(1, 2).unflatten(2, grid)
        restored = self.decoder(features).flatten(2).transpose(1, 2)
        return self.loss(restored, patchify(images, patch), counted)


class MaskedAutoencoder(Objective):
    """MAE of the package: a quarter of the patches is seen, a light decoder restores the others."""

    def __init__(self, encoder: RadiographEncoder) -> None:
        super().__init__(encoder)
        assert isinstance(encoder, ViTEncoder)
        self.method = MAE(encoder, decoder_dim=96, decoder_layers=2, decoder_heads=3)
        self.loss = MaskedReconstructionLoss()

    def forward(
        self, images: torch.Tensor, headers: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        """Squared error of the hidden patches, each standardized."""
        tokens = math.prod(self.encoder.grid_size)
        visible = torch.rand(len(images), tokens, generator=generator).argsort(1)[:, : tokens // 4]
        found = self.method(augmented(images, 0.5, generator), visible)
        return self.loss(found["reconstructed"], found["target"], found["hidden"])


class Contrast(Objective):
    """SimCLR (Chen et al., ICML 2020): two views of an image are closer than those of other images."""

    batch_size = 128

    def __init__(self, encoder: RadiographEncoder) -> None:
        super().__init__(encoder)
        width = encoder.hidden_size
        self.view_size = VIEW_SIZE if isinstance(encoder, (ViTEncoder, ResidualEncoder)) else SIZE
        layers = [nn.Linear(width, width), nn.ReLU(inplace=True), nn.Linear(width, 64)]
        if isinstance(encoder, SwinEncoder):
            # without it, all images get the same features from the first epoch on
            layers.insert(1, nn.BatchNorm1d(width))
            self.learning_rate = 1e-3
        self.projection = nn.Sequential(*layers)

    def forward(
        self, images: torch.Tensor, headers: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        """InfoNCE over the 2 B views."""
        return self.contrast(self.features(images, generator))

    def features(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Mean tokens ``(2 B, D)``; rows k and k + B are the views of image k."""
        encode = self.encoder if self.view_size == SIZE else self.encoder.encode_any_size
        return torch.cat(
            [encode(view_of(images, generator, self.view_size)).mean(1) for _ in range(2)]
        )

    def contrast(self, features: torch.Tensor) -> torch.Tensor:
        """InfoNCE of the projected mean tokens."""
        return info_nce(F.normalize(self.projection(features).float(), dim=1))


class SelfDistillation(Objective):
    """DINO of the package: two views of 48 x 48 pixels and two local ones of 32 x 32; the teacher is kept."""

    batch_size = 128

    def __init__(self, encoder: RadiographEncoder) -> None:
        student = encoder_of("residual", VIEW_SIZE)
        student.load_state_dict(encoder.state_dict())
        settings = {
            "num_prototypes": 1024,
            "head_dim": 512,
            "bottleneck_dim": 128,
        }  # those of the bundle
        # with the bundle's center instead, all images get the same distribution within three epochs
        method = DINO(student, **settings, teacher_balance="sinkhorn", teacher_decay=0.99)
        super().__init__(method.teacher_encoder)
        self.method = method
        self.loss = DINOLoss()

    def forward(
        self, images: torch.Tensor, headers: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        """Cross-entropy of the student with the teacher's view of other crops."""
        crops = torch.stack([view_of(images, generator) for _ in range(2)], 1)
        local = torch.stack(
            [view_of(images, generator, LOCAL_SIZE, (0.15, 0.5)) for _ in range(2)], 1
        )
        return self.loss(self.method(crops, local))

    def after_step(self) -> None:
        """The teacher follows."""
        self.method.update_teacher()


class Headers(Objective):
    """Age, sex and view, which are no findings, but not free of labels either."""

    with_headers = True

    def __init__(self, encoder: RadiographEncoder) -> None:
        super().__init__(encoder)
        self.head = nn.Linear(encoder.hidden_size, 3)

    def forward(
        self, images: torch.Tensor, headers: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        """Loss of the headers."""
        return headers_loss(
            self.head(self.encoder(augmented(images, 0.5, generator)).mean(1)), headers
        )


class ContrastHeaders(Contrast):
    """Contrast of all images; views of those with headers also tell age, sex and view."""

    def __init__(self, encoder: RadiographEncoder) -> None:
        super().__init__(encoder)
        self.head = nn.Linear(encoder.hidden_size, 3)

    def forward(
        self, images: torch.Tensor, headers: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        """InfoNCE over the 2 B views plus the loss of the headers over views that have them."""
        features = self.features(images, generator)
        return self.contrast(features) + headers_loss(self.head(features), headers.repeat(2, 1))


def headers_loss(outputs: torch.Tensor, headers: torch.Tensor) -> torch.Tensor:
    """Squared error of the age plus the cross-entropies of sex and view, a mean over the rows that have headers."""
    known = torch.isfinite(headers).all(1)
    outputs, headers = outputs[known].float(), headers[known]
    age = (outputs[:, 0] - headers[:, 0]).square()
    others = F.binary_cross_entropy_with_logits(
        outputs[:, 1:], headers[:, 1:], reduction="none"
    ).sum(1)
    return (age + others).sum() / known.sum().clamp_min(1)


OBJECTIVES: dict[str, Callable[[RadiographEncoder], Objective]] = {
    "masked": Restoration,
    "mae": MaskedAutoencoder,
    "lesions": lambda encoder: Restoration(encoder, lesions=True),
    "contrast": Contrast,
    "contrast_headers": ContrastHeaders,
    "dino": SelfDistillation,
    "headers": Headers,
}


def view_of(
    images: torch.Tensor,
    generator: torch.Generator,
    size: int = VIEW_SIZE,
    area: tuple[float, float] = (0.5, 1.0),
) -> torch.Tensor:
    """A crop of a share of the area, turned by up to 15 degrees, mirrored, with other gamma, blur and noise."""
    draws = torch.rand(len(images), 7, generator=generator)
    side = (area[0] + (area[1] - area[0]) * draws[:, 0]).sqrt()
    angle, mirror = (
        math.radians(15) * (2 * draws[:, 1] - 1),
        torch.where(draws[:, 2] < 0.5, -1.0, 1.0),
    )
    shift = (2 * draws[:, 3:5] - 1) * (1 - side)[:, None]
    cosine, sine = angle.cos() * side, angle.sin() * side
    rows = [
        torch.stack([cosine * mirror, -sine, shift[:, 0]], 1),
        torch.stack([sine * mirror, cosine, shift[:, 1]], 1),
    ]
    shape = [len(images), 1, size, size]
    grid = F.affine_grid(torch.stack(rows, 1), shape, align_corners=False)
    moved = F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    blurred = F.avg_pool2d(F.pad(moved, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    moved = torch.lerp(moved, blurred, draws[:, 5].view(-1, 1, 1, 1))
    curved = moved.clamp(1e-4, 1) ** (1.5 ** (2 * draws[:, 6] - 1)).view(-1, 1, 1, 1)
    return (curved + 0.03 * torch.randn(shape, generator=generator)).clamp(0, 1)


def info_nce(projected: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of finding the other view among all; rows k and k + B of unit length are one image's."""
    similarities = projected @ projected.T / TEMPERATURE
    similarities.fill_diagonal_(-torch.inf)
    partners = torch.arange(len(projected)).roll(len(projected) // 2)
    return F.cross_entropy(similarities, partners)


class Pretraining:
    """Pre-training by one objective: a state that each epoch moves on, and that a file keeps."""

    def __init__(
        self,
        name: str,
        data: Unlabeled,
        number: int | None,
        epochs: int,
        file: Path,
        network: str = "residual",
    ) -> None:
        self.data, self.epochs, self.file, self.network = data, epochs, file, network
        torch.manual_seed(0)
        self.objective = OBJECTIVES[name](encoder_of(network, SIZE)).to(
            memory_format=torch.channels_last
        )
        self.rows = data.rows(number, self.objective.with_headers)
        rate = self.objective.learning_rate
        self.optimizer = torch.optim.AdamW(weight_decay_groups(self.objective, 0.05), rate)
        steps = (
            sum(1 for _ in batches(self.rows, self.objective.batch_size, torch.Generator()))
            * epochs
        )
        self.schedule = OneCycleLR(
            self.optimizer, rate, steps, pct_start=0.15, cycle_momentum=False
        )
        self.generator = torch.Generator().manual_seed(0)
        self.history: list[float] = []
        if file.is_file():
            self._resume()

    def run(self, weights: Path) -> None:
        """Pre-train to the end and write the encoder's weights."""
        with tqdm(total=self.epochs, initial=len(self.history), desc=self.file.stem) as bar:
            while len(self.history) < self.epochs:
                self.epoch()
                bar.set_postfix(loss=f"{self.history[-1]:.4f}")
                bar.update()
        # hidden patches and smaller views give other statistics of batch normalization than whole images
        encoder = encoder_of(self.network, SIZE)
        encoder.load_state_dict(self.objective.encoder.state_dict())
        images = self.data.images[torch.from_numpy(self.rows[:REFRESHED])]
        AutocastInferer()(
            images, lambda every: update_bn(every.split(self.objective.batch_size), encoder)
        )
        self.objective.encoder.load_state_dict(encoder.state_dict())
        torch.save(encoder.state_dict(), weights)
        weights.with_suffix(".json").write_text(
            json.dumps({"images": len(self.rows), "loss": self.history})
        )

    def epoch(self) -> None:
        """One pass over the images, then the file."""
        self.objective.train()
        losses = []
        for numbers in batches(self.rows, self.objective.batch_size, self.generator):
            images, headers = self.data.images[numbers], self.data.headers[numbers]
            loss = AutocastInferer()(images, self.objective, headers, self.generator)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.objective.parameters(), 3.0)
            self.optimizer.step()
            self.objective.after_step()
            self.schedule.step()
            losses.append(loss.item())
        self.history.append(float(np.mean(losses)))
        self._save()

    def _save(self) -> None:
        parts = {
            "objective": self.objective,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
        }
        state = {name: part.state_dict() for name, part in parts.items()}
        rest = {"history": self.history, "generator": self.generator.get_state()}
        torch.save({**state, **rest}, self.file.with_suffix(".tmp"))
        self.file.with_suffix(".tmp").replace(self.file)

    def _resume(self) -> None:
        state = torch.load(self.file, weights_only=True)
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.history = state["history"]
        self.generator.set_state(state["generator"])


def options_of() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help="folder with nih_cxr_7k, adult_normals and childcxr",
    )
    parser.add_argument("--output", type=Path, default=Path("results/convolutional_pretraining"))
    parser.add_argument(
        "--arm", help=f"scratch, {', '.join(OBJECTIVES)}, or any name for --weights"
    )
    parser.add_argument("--weights", type=Path, help="of an encoder that is pre-trained already")
    parser.add_argument(
        "--network", choices=["residual", "vit", "stem", "swin", "convnext"], default="residual"
    )
    parser.add_argument("--epochs", type=int, default=5, help="of the pre-training")
    parser.add_argument("--images", type=int, help="how many to pre-train on; all without it")
    parser.add_argument(
        "--recipes", nargs="*", default=["as_scratch", "careful"], choices=[*RECIPES, "probe"]
    )
    parser.add_argument(
        "--fractions", type=float, nargs="+", default=[0.1], help="of the training patients"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tuning-epochs", type=int, default=30)
    parser.add_argument("--table", action="store_true", help="print the validation results")
    parser.add_argument(
        "--test",
        nargs="+",
        help="tuned runs of --network, as NAME_FRACTION, to score the test images",
    )
    parser.add_argument(
        "--reference",
        default="scratch-as_scratch",
        help="run that the table compares the others with",
    )
    options = parser.parse_args()
    if not options.weights and options.arm not in [None, "scratch", *OBJECTIVES]:
        parser.error(f"--arm {options.arm} is no objective; give --weights for it")
    return options


def main() -> None:
    """Run from the repository's root."""
    options = options_of()
    cache = options.output / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    everything = read_set(options.data / "nih_cxr_7k", SIZE, cache)
    findings = without_test(everything)
    if options.arm:
        network = "" if options.network == "residual" else f"{options.network}-"
        name = f"{network}{options.arm}" + (f"{options.images}" if options.images else "")
        fine_tune(name, options.weights or pretrained(name, findings, options), findings, options)
    if options.test:
        for run in options.test:
            score_held_out(run, options.network, everything, options.output)
        nih_findings.print_table(
            everything, options.output / "test", "test", 1000, options.reference
        )
    if options.table:
        nih_findings.print_table(findings, options.output, "validation", 1000, options.reference)


def pretrained(name: str, findings: Set, options: argparse.Namespace) -> Path | None:
    """Weights of the arm's objective, pre-trained unless they are there; none for ``scratch``."""
    if options.arm == "scratch":
        return None
    weights: Path = options.output / f"{name}.weights.pt"
    if not weights.is_file():
        data = unlabeled_images(options.data, findings, options.output / "cache")
        file = options.output / f"{name}.pretraining.pt"
        Pretraining(options.arm, data, options.images, options.epochs, file, options.network).run(
            weights
        )
    return weights


def fine_tune(name: str, weights: Path | None, findings: Set, options: argparse.Namespace) -> None:
    """Every recipe, share of the patients and seed; what is there is kept."""
    for fraction in options.fractions:
        for recipe in options.recipes:
            arm = Arm("tuned", options.network, str(weights) if weights else None)
            if recipe == "probe":
                arm = replace(arm, kind="probe")
            else:
                arm = replace(arm, recipe=replace(RECIPES[recipe], epochs=options.tuning_epochs))
            for seed in options.seeds:
                run_name = f"{name}-{recipe}"
                nih_findings.run(run_name, arm, lambda _: findings, fraction, seed, options.output)


def score_held_out(run: str, network: str, data: Set, output: Path) -> None:
    """Logits of the validation and test images by the fine-tuned networks of a run, one per seed, into ``test``."""
    (output / "test").mkdir(exist_ok=True)
    suffix = ".weights.pt"
    files = sorted(output.glob(f"{run}_*{suffix}"))
    if not files:
        raise FileNotFoundError(
            f"{output}: no networks {run}_*{suffix}; fine-tune them first (--arm, --recipes)."
        )
    for file in files:
        classifier = Classifier(nih_findings.features_of(Arm("tuned", network), 0), dropout=0.0)
        classifier.load_state_dict(torch.load(file, weights_only=True))
        scores = in_batches(classifier, data.images[torch.from_numpy(data.held_out)])
        name = file.name.removesuffix(suffix)
        np.savez_compressed(
            output / "test" / f"{name}.npz", scores=scores.astype(np.float32), rows=data.held_out
        )


if __name__ == "__main__":
    main()
