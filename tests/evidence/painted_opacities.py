# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Does an encoder become a better detector by telling normal lungs from the same with opacities painted into them?

``python -m tests.evidence.painted_opacities --data /path/to/childcxr`` cuts the lungs' square out of all pictures,
trains the released encoder further on the training normals and painted copies of them, and prints how well it detects
before and after, by its verdict, by PCA, and by sums of these; no abnormal picture is learned from. Mean and deviation
over encoders (``--weights``, "" for random ones) and seeds, and with several of these the mean of all their scores;
validation images alone unless ``--test`` is given. Scores are kept in ``--output``: an interrupted command goes on, and
the second look costs nothing. Of two encoders, the paired differences are printed, too.
"""

from __future__ import annotations

import argparse
import copy
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from monai_afire.apps.compare.component_errors import pca_errors
from monai_afire.detection.field_of_view import LungView, moved
from monai_afire.networks import released_encoder
from tests.evidence.fair_controls import auc_samples, with_interval
from tests.evidence.radiograph_sets import in_section, other_normals, pictures, validation_normals
from tests.evidence.real_detection import figures, read_set, settings_code, summary
from tests.evidence.real_encoders import (
    SHAPE_OPTIONS,
    add_shape_options,
    encoder,
    encoder_scores,
    shape_of,
)
from tests.evidence.real_probe import tokens

SCORES = ("before", "after", "verdict", "PCA", "before + after", "before + verdict", "all three")
SCORES += ("before + PCA", "before + verdict + PCA")
COLUMNS = ["AUC", "Q1", "Q2", "Q3", "Q4", "matched", "ACC", "F1", "spec."]
SPECIFICITY = 0.95  # of the thresholds, on the validation normals
PICTURES = 32  # of a step, and as many painted copies
WARMUP = 50


@torch.no_grad()
def lung_squares(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The squares around the lungs of pictures ``(M, 1, H, W)``, and how likely each pixel of them is lung."""
    view, cut, lungs = LungView(), [], []
    for batch in images.split(256):
        squares, (zoom, shift) = view(batch)
        found = F.interpolate(view.finder(batch), batch.shape[2:], mode="bilinear")
        cut.append(squares)
        lungs.append(moved(found, zoom, torch.zeros_like(zoom[:, 0]), shift, mode="bilinear"))
    return torch.cat(cut), torch.cat(lungs)


def clouds(count: int, side: int, generator: torch.Generator) -> torch.Tensor:
    """Soft random shapes ``(count, 1, side, side)`` in [0, 1], a tenth to a half of the picture each."""
    shapes = []
    for _ in range(count):
        cells = int(torch.randint(3, 9, (1,), generator=generator))
        field = torch.randn(1, 1, cells, cells, generator=generator)
        field = F.interpolate(field, (side, side), mode="bicubic")
        level = field.flatten().quantile(0.5 + 0.4 * torch.rand(1, generator=generator))
        shapes.append(
            ((field - level) / (0.3 + 0.5 * torch.rand(1, generator=generator))).clamp(0, 1)
        )
    return torch.cat(shapes)


def painted(images: torch.Tensor, lungs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Copies with opacities in the lungs, towards the brightness of dense parts or of another place."""
    count, side = len(images), images.shape[-1]
    draw = torch.rand(count, 3, 1, 1, 1, generator=generator)
    dense = images.flatten(1).quantile(
        0.7 + 0.25 * float(torch.rand(1, generator=generator)), dim=1
    )
    elsewhere = torch.roll(
        images, tuple(torch.randint(side, (2,), generator=generator).tolist()), (2, 3)
    )
    towards = torch.where(draw[:, 0] < 0.7, dense.view(-1, 1, 1, 1), elsewhere.maximum(images))
    strength = (0.15 + 0.75 * draw[:, 1]) * lungs * clouds(count, side, generator)
    return images + strength * (towards - images)


def trained_further(
    network: nn.Module,
    images: torch.Tensor,
    lungs: torch.Tensor,
    options: argparse.Namespace,
    seed: int,
) -> tuple[nn.Module, nn.Linear]:
    """A copy of the encoder and a head that tell pictures from painted copies of them."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    network = copy.deepcopy(network).train()
    head = nn.Linear(options.hidden_size, 1)
    optimizer = torch.optim.AdamW(
        [*network.parameters(), *head.parameters()], options.learning_rate, weight_decay=0.05
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        options.learning_rate,
        total_steps=options.steps,
        pct_start=min(0.5, WARMUP / options.steps),
    )
    for _ in tqdm(range(options.steps), "training"):
        chosen = torch.randint(len(images), (min(PICTURES, len(images)),), generator=generator)
        normal = images[chosen]
        both = torch.cat([normal, painted(normal, lungs[chosen], generator)])
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
            verdict = head(network(both).mean(1))[:, 0].float()
        truth = torch.arange(len(both)).ge(len(normal)).float()
        loss = F.binary_cross_entropy_with_logits(verdict, truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return network.eval(), head


@torch.no_grad()
def verdicts(network: nn.Module, head: nn.Linear, images: torch.Tensor) -> torch.Tensor:
    """How abnormal the encoder says that pictures are, ``(M,)``."""
    return head(tokens(network, images).mean(1))[:, 0]


def with_scores(
    table: pd.DataFrame,
    images: torch.Tensor,
    normals: tuple[torch.Tensor, ...],
    options: argparse.Namespace,
    seed: int,
) -> pd.DataFrame:
    """The pictures that are judged: scores before and after, and their sums in deviations of the validation normals."""
    before = encoder(options.encoder, shape_of(options), seed).eval()
    training = in_section(table, "training")
    after, head = trained_further(before, *normals, options, seed)
    rows = encoder_scores(table, images, before).rename(columns={"fused": "before"})
    rows["after"] = encoder_scores(table, images, after)["fused"]
    rows["verdict"] = verdicts(after, head, images[~training]).numpy()
    pixels = images.flatten(1).numpy()
    rows["PCA"] = pca_errors(pixels[training], pixels[~training])
    scaled = in_deviations(rows, ["before", "after", "verdict", "PCA"])
    rows["before + after"] = scaled["before"] + scaled["after"]
    rows["before + verdict"] = scaled["before"] + scaled["verdict"]
    rows["all three"] = rows["before + after"] + scaled["verdict"]
    rows["before + PCA"] = scaled["before"] + scaled["PCA"]
    rows["before + verdict + PCA"] = rows["before + verdict"] + scaled["PCA"]
    return rows


def in_deviations(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Scores in standard deviations of the validation normals."""
    normal = rows.loc[validation_normals(rows), [*names]]
    return (rows[[*names]] - normal.mean()) / normal.std()


def mean_of_runs(runs: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The same pictures, scored by all runs together: the mean of their scores, each in deviations of the normals."""
    scaled = [in_deviations(rows, SCORES) for rows in runs]
    return runs[0].assign(
        **{name: sum(part[name] for part in scaled) / len(scaled) for name in SCORES}
    )


def normal_pictures(
    table: pd.DataFrame, images: torch.Tensor, lungs: torch.Tensor, options: argparse.Namespace
) -> tuple[torch.Tensor, torch.Tensor]:
    """What is painted on: the set's training normals and, if there are any, others."""
    training = in_section(table, "training")
    if options.normals is None:
        return images[training], lungs[training]
    paths = [str(path) for path in other_normals(options.normals, options.every)]
    others = lung_squares(pictures(paths, options.image_size)[0])
    return torch.cat([images[training], others[0]]), torch.cat([lungs[training], others[1]])


def stored_scores(options: argparse.Namespace, seed: int) -> Path:
    """The file of a run's scores, another one for other settings."""
    names = ("encoder", "normals", "every", "steps", "learning_rate", "bf16", *SHAPE_OPTIONS)
    return options.output / f"painted_{settings_code(options, names)}_{seed}.csv"


def scored_runs(options: argparse.Namespace) -> list[pd.DataFrame]:
    """The scores of every encoder and seed, those on disk where there are any."""
    table, images = read_set(options.data.resolve(), options.output.resolve(), options.image_size)
    images, lungs = lung_squares(images)
    runs, normals = [], None
    for weights, seed in itertools.product(options.weights, options.seeds):
        run = argparse.Namespace(**vars(options), encoder=weights)
        stored = stored_scores(run, seed)
        if not stored.is_file():
            normals = normals or normal_pictures(table, images, lungs, options)
            with_scores(table, images, normals, run, seed).to_csv(stored, index=False)
        runs.append(pd.read_csv(stored, keep_default_na=False))
    return runs


def table_of(rows: pd.DataFrame, section: str) -> pd.DataFrame:
    """Figures of a section's pictures, with thresholds by the validation normals."""
    normal = rows[validation_normals(rows)]
    thresholds = {name: float(normal[name].quantile(SPECIFICITY)) for name in SCORES}
    return figures(rows[rows["section"] == section], SCORES, thresholds)[COLUMNS]


def compared(options: argparse.Namespace) -> pd.DataFrame:
    """Every score over the runs, and by all of them together."""
    options.output.mkdir(parents=True, exist_ok=True)
    section = "test" if options.test else "validation"
    runs = scored_runs(options)
    result = summary([table_of(rows, section) for rows in runs])
    if len(runs) == 1:
        return result
    together = summary([table_of(mean_of_runs(runs), section)])
    return pd.concat([result, together.rename("{}, all runs together".format)])


def differences(options: argparse.Namespace) -> pd.Series:
    """AUC of the first encoder less the second, means over the seeds, with 95 % intervals over patients."""
    section, runs = "test" if options.test else "validation", scored_runs(options)
    parts = [rows[rows["section"] == section] for rows in runs]
    halves = parts[: len(options.seeds)], parts[len(options.seeds) :]
    samples = {
        name: [np.mean([auc_samples(rows, name) for rows in each], 0) for each in halves]
        for name in SCORES
    }
    return pd.Series(
        {name: with_interval(first - second, "+") for name, (first, second) in samples.items()}
    )


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="ChildCXR, or a folder with manifest.csv"
    )
    parser.add_argument(
        "--weights",
        nargs="+",
        default=[str(released_encoder())],
        help="of one encoder or several (default: released)",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("bundles/afire/output/painted_opacities")
    )
    parser.add_argument(
        "--normals", type=Path, help="folder of further normal pictures to paint on"
    )
    parser.add_argument("--every", type=int, default=3, help="which of them: every so many")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument(
        "--bf16",
        action="store_true",
        help="train in bfloat16, three times as fast where a CPU has it",
    )
    parser.add_argument(
        "--test", action="store_true", help="the test images, once everything is chosen"
    )
    add_shape_options(parser)
    options = parser.parse_args()
    print(compared(options).to_string())
    if len(options.weights) == 2:
        print(differences(options).to_string())


if __name__ == "__main__":
    main()
