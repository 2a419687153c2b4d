# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Subgroup tables for the cards of the released files, on validation images of NIH 7k.

``python -m tests.benchmarks.released.card_subgroups --data /path/to/sets`` prints a table for each file, and its gaps:
the differences between a group and the other images whose 95 % interval over patients leaves zero out. Images that are
among the adult normals are left out, since files were trained on them. Test images are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from monai.transforms import Compose, Resize
from numpy.typing import NDArray
from torch.nn import functional as F
from tqdm import tqdm

from monai_afire.apps.compare import ComparedEncoder, compared_encoder, encode_images
from monai_afire.apps.evaluation.metrics import (
    FEWEST_IMAGES,
    GROUP_METRICS,
    PROPERTIES,
    group_rows,
    subgroup_metrics,
)
from monai_afire.apps.evaluation.patient_bootstrap import patient_weights, weighted_metrics
from monai_afire.detection import load_detector
from monai_afire.metrics import fit_linear_probe
from monai_afire.networks import LungFinder
from monai_afire.networks.nets.pose_classifier import POSES, PoseClassifier, turned
from monai_afire.networks.nets.raw_pixels import RawPixels
from monai_afire.networks.weights.model_file import ModelFile
from monai_afire.transforms import LoadRadiograph, StandardizeContrast
from tests.benchmarks.released.lung_finder import INPUT, dice, two_lungs
from tests.benchmarks.released.organ_segmenter import plausible
from tests.benchmarks.released.sets import maker_parser, nih_rows
from tests.benchmarks.released.support import detector_pictures, standardized

DETECTOR = "bundles/afire/released/detector.safetensors"
CLASSIFIER = "bundles/radiograph_classification/released/nih_findings.pt"
SEGMENTER = "bundles/radiograph_segmentation/released/lungs_and_heart.pt"
ENCODERS = {
    "encoder.safetensors": "released",
    "vit_tiny_patch16_224.safetensors": "released_224",
    "efficientnet_lite0_contrast.safetensors": "released_cnn",
    **{name: f"bundles/{name}/models/model.pt" for name in ("afire", "peac", "ace", "dino", "mae")},
}
FINDINGS = (
    *("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Effusion", "Emphysema"),
    *("Fibrosis", "Infiltration", "Mass", "Nodule", "Pleural_Thickening", "Pneumothorax"),
)  # Hernia and Pneumonia have 3 and 1 test images
SIDE = (64, 64)
DRAWS = 1000
TITLES = {"auc": "AUC", "sensitivity": "Sensitivity", "specificity": "Specificity"}
NO_INTERVAL = (np.nan, np.nan)  # of a group with too few images
Difference = Callable[[NDArray, NDArray, NDArray], NDArray]
"""Of the images with two sets of numbers, in each set of weights ``(R, M)``: ``(R, columns)``."""


def read_images(data: Path) -> pd.DataFrame:
    """Training and validation images as text: file, patient, sex, age, view, findings, section, and ``seen`` before."""
    parts = {"training": nih_rows(data, "train"), "validation": nih_rows(data, "val")}
    table = pd.concat(
        [part.assign(section=name) for name, part in parts.items()], ignore_index=True
    )
    seen = table["same_image_in_adult_normals"] != ""
    return table.assign(image=table["path"], seen=seen)


def findings_of(table: pd.DataFrame) -> NDArray[np.float64]:
    """Labels ``(M, 12)`` of 1 and 0."""
    found = table["findings"].str.get_dummies("|").reindex(columns=list(FINDINGS), fill_value=0)
    return found.to_numpy(np.float64)


@dataclass(frozen=True)
class Decided:
    """Findings of images: ``(M, K)`` labels and scores, ``(K,)`` thresholds, NaN for none."""

    labels: NDArray
    scores: NDArray
    thresholds: NDArray
    columns = GROUP_METRICS

    def rows(self, table: pd.DataFrame) -> dict[str, dict[str, object]]:
        """A row per group, as evaluations report it."""
        names = [str(number) for number in range(self.labels.shape[1])]
        together = table[["patient_id"]].assign(view="all")  # one group
        rows: dict[str, dict[str, object]] = {}
        for part, groups in ((together, groups_of(together)), (table, groups_of(table))):
            measured = subgroup_metrics(
                part, self.labels, self.scores, self.thresholds, names, DRAWS
            )
            for name, group, _ in groups:
                entry = measured[name][group]
                cells = {
                    c: with_interval(entry[c], *entry.get(f"{c}_interval", NO_INTERVAL))
                    for c in self.columns
                }
                title = "all" if part is together else f"{name} {group}"
                rows[title] = {"images": entry["images"], "findings": entry["num_classes"], **cells}
        return rows

    def difference(self, own: NDArray, others: NDArray, weights: NDArray) -> NDArray:
        """Means over the findings that both sets have enough images of."""
        found = []
        for truth, scores, limit in zip(self.labels.T, self.scores.T, self.thresholds, strict=True):
            counts = [(truth[rows] == value).sum() for rows in (own, others) for value in (0, 1)]
            if min(counts) >= FEWEST_IMAGES:
                pair = [
                    weighted_metrics(weights[:, r], truth[r], scores[r], limit)[[*GROUP_METRICS]]
                    for r in (own, others)
                ]
                found.append((pair[0] - pair[1]).to_numpy())
        return np.mean(found, axis=0) if found else np.full((1, len(self.columns)), np.nan)


@dataclass(frozen=True)
class Answered:
    """Shares ``(M, columns)`` of right answers about each image."""

    shares: pd.DataFrame

    @property
    def columns(self) -> tuple[str, ...]:
        """What was asked."""
        return tuple(self.shares.columns)

    def rows(self, table: pd.DataFrame) -> dict[str, dict[str, object]]:
        """A row per group."""
        rows: dict[str, dict[str, object]] = {}
        for name, group, own in (("", "all", np.arange(len(table))), *groups_of(table)):
            weights = patient_weights(table["patient_id"].iloc[own], DRAWS, include_original=True)
            value, *drawn = self._means(own, weights)
            limits = np.quantile(drawn, [0.025, 0.975], axis=0)
            cells = (
                map(with_interval, value, *limits)
                if len(own) >= FEWEST_IMAGES
                else [""] * len(self.columns)
            )
            rows[f"{name} {group}".strip()] = {
                "images": len(own),
                **dict(zip(self.columns, cells, strict=True)),
            }
        return rows

    def difference(self, own: NDArray, others: NDArray, weights: NDArray) -> NDArray:
        """Of the mean shares."""
        if min(len(own), len(others)) < FEWEST_IMAGES:
            return np.full((1, len(self.columns)), np.nan)
        return self._means(own, weights[:, own]) - self._means(others, weights[:, others])

    def _means(self, rows: NDArray, weights: NDArray) -> NDArray:
        return weights @ self.shares.to_numpy()[rows] / weights.sum(1, keepdims=True)


def with_interval(value: float, low: float, high: float) -> str:
    """A cell of a card's table."""
    return "" if np.isnan(value) else f"{value:.2f} ({low:.2f}-{high:.2f})"


def groups_of(table: pd.DataFrame) -> list[tuple[str, str, NDArray]]:
    """Property, group and numbers of its images, where the group is known."""
    return [
        (name, *each) for name in PROPERTIES for each in group_rows(table, name).items() if each[0]
    ]


def gaps(table: pd.DataFrame, columns: tuple[str, ...], difference: Difference) -> list[str]:
    """A sentence for each difference between a group and the other images of known groups beyond its interval."""
    weights = patient_weights(table["patient_id"], DRAWS, include_original=True)
    everyone = groups_of(table)
    sentences = []
    for name, group, own in everyone:
        rest = {g: rows for n, g, rows in everyone if n == name and g != group}
        if not rest or (len(rest) == 1 and group > next(iter(rest))):
            # of two groups, one difference says all
            continue
        value, *drawn = difference(own, np.concatenate(list(rest.values())), weights)
        against = f"{name} {next(iter(rest))}" if len(rest) == 1 else f"the other groups of {name}"
        drawn = drawn or [value]  # too few images: NaN
        limits = pd.DataFrame(drawn).quantile([0.025, 0.975]).to_numpy()  # leaves NaN out
        for column, found, low, high in zip(columns, value, *limits, strict=True):
            if low > 0 or high < 0:
                way = "higher" if found > 0 else "lower"
                ends = sorted([abs(low), abs(high)])
                text = f"{TITLES.get(column, column)} is {abs(found):.2f} {way} for {name} {group} than for {against}"
                sentences.append(f"{text} ({ends[0]:.3f} to {ends[1]:.3f}).")
    return sentences or ["No difference between groups is beyond its interval."]


def probed(table: pd.DataFrame, features: NDArray, evaluated: NDArray) -> Decided:
    """A linear probe of frozen features, whose penalty is chosen on validation. No thresholds."""
    labels = findings_of(table)
    training, validation = (
        np.flatnonzero(table["section"] == section) for section in ("training", "validation")
    )
    probe = fit_linear_probe(
        features[training], labels[training], features[validation], labels[validation]
    )
    return Decided(
        labels[evaluated], probe.logits(features[evaluated]), np.full(len(FINDINGS), np.nan)
    )


@torch.inference_mode()
def detected(abnormal: NDArray, paths: list[str]) -> Decided:
    """The fused score of the released detector, at its own threshold."""
    detector = load_detector(DETECTOR)
    images = standardized(detector_pictures(detector, paths))
    scores = torch.cat([detector(batch)["scores"][:, -1:] for batch in images.split(64)]).numpy()
    return Decided(abnormal[:, None], scores, detector.thresholds[-1:].numpy())


@torch.inference_mode()
def classified(labels: NDArray, images: torch.Tensor) -> Decided:
    """Probabilities of the released classifier, at its own thresholds."""
    network = ModelFile(CLASSIFIER).build()
    scores = torch.cat([network(batch).sigmoid() for batch in images.split(64)])
    return Decided(labels, scores.numpy(), network.thresholds.numpy())


@torch.inference_mode()
def posed(images: torch.Tensor) -> Answered:
    """The pose classifier on copies in all eight poses, and on the images and their negatives."""
    classifier = PoseClassifier.released()
    poses = torch.stack([classifier(turned(images, pose))[0].argmax(1) for pose in range(POSES)], 1)
    negatives = torch.stack(
        [classifier(1 - images)[1][:, 0] > 0, classifier(images)[1][:, 0] <= 0], 1
    )
    right = {"Right poses": poses == torch.arange(POSES), "Right about negatives": negatives}
    return Answered(
        pd.DataFrame({name: each.double().mean(1).numpy() for name, each in right.items()})
    )


@torch.inference_mode()
def lungs_found(images: torch.Tensor) -> Answered:
    """How often the lung finder's mask looks like two lungs, and its Dice with that of the mirrored picture."""
    finder = LungFinder.released()
    masks, mirrored = (
        (finder(images)[:, 0] > 0.5).numpy(),
        (finder(images.flip(3)).flip(3)[:, 0] > 0.5).numpy(),
    )
    two = [float(two_lungs(mask) is not None) for mask in masks]
    same = [dice(*pair) if pair[0].any() else 0.0 for pair in zip(masks, mirrored, strict=True)]
    return Answered(pd.DataFrame({"Two lungs": two, "Mirrored Dice": same}))


@torch.inference_mode()
def organs_found(paths: Sequence[str]) -> Answered:
    """How often masks lie as lungs and heart do, and the Dice of the lungs with those of the mirrored picture."""
    file = ModelFile(SEGMENTER, "segmenter")
    network = file.build()
    load = Compose(
        [LoadRadiograph(), Resize((file.image_size,) * 2, mode="area"), StandardizeContrast()]
    )
    rows = []
    for path in tqdm(paths, "segmenting"):
        image = torch.as_tensor(np.asarray(load(path)))[None]
        found = network(image)[0] > 0
        mirrored = (network(image.flip(3)).flip(3)[0] > 0)[:2].any(0).numpy()
        small = F.interpolate(found[None].float(), (INPUT, INPUT), mode="area")[0] > 0.5
        lungs = found[:2].any(0).numpy()
        same = dice(lungs, mirrored) if lungs.any() else 0.0
        as_organs = float(plausible(small.numpy()) is not None)
        rows.append({"Lungs and heart": as_organs, "Mirrored Dice": same})
    return Answered(pd.DataFrame(rows))


def results(table: pd.DataFrame, folder: Path) -> Iterator[tuple[str, Decided | Answered]]:
    """Each file with what it gives on the validation images that were not seen before."""
    pixels = RawPixels(1, SIDE, SIDE)
    pictures = [
        ComparedEncoder(n, pixels, n == "standardized", "image") for n in ("raw", "standardized")
    ]
    encoders = [compared_encoder(f"{name}={word}", "image") for name, word in ENCODERS.items()]
    tokens = encode_images(table.to_dict("records"), [*pictures, *encoders], folder, "images")
    evaluated = np.flatnonzero((table["section"] == "validation") & ~table["seen"])
    labels, own = findings_of(table)[evaluated], {}
    for each in pictures:
        stored = torch.from_numpy(tokens[each.name][evaluated]).float().view(-1, 1, *SIDE)
        own[each.name] = pixels.denormalize(stored)
    abnormal = (table["findings"].iloc[evaluated] != "No Finding").to_numpy(np.float64)
    paths = table["image"].iloc[evaluated].tolist()
    yield "detector.safetensors", detected(abnormal, paths)
    yield "nih_findings.pt", classified(labels, own["standardized"])
    yield "pose.safetensors", posed(own["raw"])
    yield "lungs.safetensors", lungs_found(own["raw"])
    yield "lungs_and_heart.pt", organs_found(paths)
    for each in encoders:
        yield each.name, probed(table, tokens[each.name].mean(1, dtype=np.float32), evaluated)


def card(rows: Mapping[str, Mapping[str, object]]) -> str:
    """A table in Markdown; columns without a value are left out, and a single metric is laid along the groups."""
    frame = (
        pd.DataFrame.from_dict(rows, orient="index")
        .replace("", np.nan)
        .dropna(axis="columns", how="all")
    )
    if "auc" in frame and "sensitivity" not in frame:
        frame = frame[["auc"]].dropna().T
    frame = (
        frame.rename(TITLES).rename(TITLES, axis="columns").fillna("too few").reset_index(names="")
    )
    lines = [list(frame.columns), ["---"] * len(frame.columns), *frame.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def main() -> None:
    """Run from the repository's root."""
    options = maker_parser(__doc__, "results/card_subgroups").parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    table = read_images(options.data)
    evaluated = table[(table["section"] == "validation") & ~table["seen"]].reset_index(drop=True)
    print(f"{len(evaluated)} images of {evaluated['patient_id'].nunique()} patients")
    for name, found in results(table, options.output):
        print(
            f"\n{name}\n\n{card(found.rows(evaluated))}\n",
            *gaps(evaluated, found.columns, found.difference),
            sep="\n",
        )


if __name__ == "__main__":
    main()
