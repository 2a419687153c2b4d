# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Arms compared over draws of training patients and over test patients at once.

``python -m tests.evidence.draws_and_patients --pack results/imagenet --data /path/to/nih_cxr_7k`` puts the test scores
of the runs of ``nih_findings`` into one file, ``tests/evidence/scores/imagenet.npz``. Without ``--pack`` the command
makes the tables of docs/reports/imagenet.md from that file alone.

A draw of training patients changes a result as a draw of test patients does. So each sample of the bootstrap draws
both with replacement: an interval over patients alone is too narrow for a statement about the method.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from monai_afire.apps.evaluation.patient_bootstrap import (
    bootstrap_aucs,
    bootstrap_p_value,
    patient_weights,
)
from tests.evidence.component_endpoint import holm
from tests.evidence.nih_findings import findings_of

SCORES = Path(__file__).parent / "scores" / "imagenet.npz"
SAMPLES = 2000


@dataclass(frozen=True)
class Family:
    """Comparisons of a part of the protocol, whose p-values are corrected together."""

    comparisons: tuple[tuple[str, str], ...]
    labels: tuple[str, ...] = ("0.01", "0.1", "1")


FAMILIES = {
    "part 1": Family(
        (("vit_tiny_probe", "imagenet_probe"), ("released_probe", "imagenet_probe")),
    ),
    "part 3": Family(
        (
            ("released_tuned_80", "cnn_80"),
            ("released_tuned_80", "residual_80"),
            ("released_tuned_80", "scratch_tuned_80"),
            ("released_tuned_80", "released_probe"),
            ("imagenet_tuned_1e-3", "released_tuned_80"),
        ),
        labels=("0.1",),
    ),
    "part 6": Family((("imagenet_continued_probe", "imagenet_probe"),)),
    "part 7": Family(
        (
            ("imagenet_continued_60_probe", "imagenet_continued_probe"),
            ("imagenet_continued_60_probe", "imagenet_probe"),
        )
    ),
    "part 7, fine-tuned": Family(
        (("imagenet_continued_tuned_1e-3", "imagenet_tuned_1e-3"),), labels=("0.1",)
    ),
    "part 8": Family(
        (
            ("imagenet_continued_tuned_1e-3", "imagenet_tuned_1e-3"),
            ("imagenet_continued_tuned_1e-3", "cnn"),
            ("imagenet_continued_tuned_1e-3", "residual"),
        ),
        labels=("1",),
    ),
    "part 9": Family(
        (
            ("imagenet_continued_probe_lejepa", "imagenet_continued_probe"),
            ("imagenet_continued_probe_lejepa", "imagenet_probe"),
        )
    ),
    "part 10": Family(
        (
            ("imagenet_probe_224", "imagenet_probe"),
            ("vit_tiny_probe", "imagenet_probe_224"),
            ("imagenet_continued_probe_224", "imagenet_probe_224"),
        ),
        labels=("0.1", "1"),
    ),
    "part 11": Family(
        (
            ("imagenet_continued_probe_afire", "imagenet_probe"),
            ("imagenet_continued_probe_ace", "imagenet_probe"),
            ("imagenet_continued_probe_dino", "imagenet_probe"),
        ),
        labels=("0.1", "1"),
    ),
    "part 12": Family(
        (
            ("imagenet_continued_probe", "random_continued_probe"),
            ("random_continued_probe", "imagenet_untrained_probe"),
            ("imagenet_probe", "random_continued_probe"),
        ),
        labels=("0.1", "1"),
    ),
}
"""By the part of the protocol."""


def resampled_means(aucs: NDArray[np.float64], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """
    Means over draws, of which each sample takes others.

    Args:
        aucs: ``(D, B)``: of each draw in each sample of the test patients.
        chosen: ``(B, D)``: numbers of the draws that each sample takes, with replacement.

    Returns:
        ``(B,)``.

    Example:
        >>> resampled_means(np.array([[0.5, 0.6], [0.7, 0.8]]), np.array([[0, 1], [1, 1]]))
        array([0.6, 0.8])
    """
    samples = np.arange(aucs.shape[1])
    return aucs[chosen.T, samples].mean(axis=0)


def compact(scores: NDArray[Any]) -> NDArray[np.float16]:
    """
    Scores ``(M, ...)`` in half precision, with mean 0 and standard deviation 1 over the M images.

    Only their order counts here. As they are, scores that differ by little would become equal.

    Example:
        >>> compact(np.array([5.0, 5.0001, 5.0002]))
        array([-1.225,  0.   ,  1.225], dtype=float16)
    """
    centered = scores.astype(np.float64) - scores.mean(axis=0, dtype=np.float64)
    spread = centered.std(axis=0)
    return (centered / np.where(spread > 0, spread, 1)).astype(np.float16)


def pack(folder: Path, data: Path, file: Path) -> None:
    """Put the test scores of all runs of a folder into one file, with what tables need of the list; runs in it stay."""
    table = pd.read_csv(data / "manifest.csv", dtype={"patient_id": str})
    test = np.flatnonzero(table["split"] == "test")
    packed = {
        "patient": table["patient_id"].iloc[test].to_numpy(str),
        "image": table["image"].iloc[test].to_numpy(str),
        "labels": findings_of(table)[test].astype(np.int8),
    }
    if file.is_file():
        with np.load(file) as content:
            packed |= {name: content[name] for name in content.files if name.startswith("run:")}
    for run in sorted(folder.glob("*.npz")):
        with np.load(run) as content:
            places = np.searchsorted(content["rows"], test)
            packed[f"run:{run.stem}"] = compact(content["scores"][places])
    file.parent.mkdir(exist_ok=True)
    np.savez_compressed(file, **packed)


def read_aucs(
    file: Path, samples: int = SAMPLES
) -> dict[tuple[str, str], dict[str, NDArray[np.float64]]]:
    """AUCs ``(1 + samples,)`` of each draw, by share of the labels and arm; the first is that of all test patients."""
    found: dict[tuple[str, str], dict[str, NDArray[np.float64]]] = {}
    with np.load(file) as content:
        weights = patient_weights(content["patient"], samples, include_original=True)
        labels = content["labels"].astype(float)
        for name in content.files:
            if not name.startswith("run:"):
                continue
            arm, fraction, draw = name.removeprefix("run:").rsplit("_", 2)
            aucs = bootstrap_aucs(labels, content[name].astype(np.float32), weights)
            found.setdefault((fraction, arm), {})[draw] = aucs
    return found


def interval(values: NDArray[np.float64]) -> str:
    """Mean and 95 % interval, the mean first."""
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return f"{values[0]:.3f} ({low:.3f} to {high:.3f})"


def both_ways(aucs: NDArray[np.float64], seed: int = 0) -> NDArray[np.float64]:
    """
    The mean over draws, or pre-trainings, and its samples over them and patients.

    Args:
        aucs: ``(D, 1 + B)``: of each draw with all patients, then in each sample of them.
        seed: of the draws that a sample takes.

    Returns:
        ``(1 + B,)``.
    """
    draws, samples = len(aucs), aucs.shape[1] - 1
    chosen = np.random.default_rng(seed).integers(draws, size=(samples, draws))
    return np.concatenate([[aucs[:, 0].mean()], resampled_means(aucs[:, 1:], chosen)])


def arms_table(found: dict[tuple[str, str], dict[str, NDArray[np.float64]]]) -> pd.DataFrame:
    """A row per share of the labels and arm: number of draws, their spread, and the interval over both."""
    rows = []
    for (fraction, arm), aucs in sorted(found.items()):
        draws = sorted(aucs)
        whole = [aucs[draw][0] for draw in draws]
        spread = float(np.std(whole, ddof=1)) if len(whole) > 1 else float("nan")
        rows.append(
            {
                "labels": fraction,
                "arm": arm,
                "draws": len(draws),
                "sd over draws": f"{spread:.3f}" if len(whole) > 1 else "",
                "test AUC": interval(both_ways(np.stack([aucs[draw] for draw in draws]))),
            }
        )
    return pd.DataFrame(rows)


def differences_table(found: dict[tuple[str, str], dict[str, NDArray[np.float64]]]) -> pd.DataFrame:
    """A row per comparison and share of the labels: the paired difference, its interval over both, and p after Holm."""
    tables = []
    for name, family in FAMILIES.items():
        table = pd.DataFrame(_differences(found, family))
        if len(table):
            tables.append(table.assign(**{"p, Holm": holm(table["p"].to_numpy()), "of": name}))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _differences(
    found: dict[tuple[str, str], dict[str, NDArray[np.float64]]],
    family: Family,
) -> Iterator[dict[str, Any]]:
    for fraction in family.labels:
        for arm, other in family.comparisons:
            first, second = found.get((fraction, arm), {}), found.get((fraction, other), {})
            draws = sorted(set(first) & set(second))
            if not draws:
                continue
            paired = both_ways(np.stack([first[draw] - second[draw] for draw in draws]))
            yield {
                "labels": fraction,
                "difference": f"{arm} - {other}",
                "draws": len(draws),
                "AUC": interval(paired),
                "p": bootstrap_p_value(paired[1:]),
            }


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pack", type=Path, help="folder with the runs of nih_findings")
    parser.add_argument("--data", type=Path, help="nih_cxr_7k, for --pack")
    parser.add_argument("--scores", type=Path, default=SCORES)
    options = parser.parse_args()
    if options.pack:
        pack(options.pack, options.data, options.scores)
        return
    found = read_aucs(options.scores)
    print(arms_table(found).to_string(index=False))
    print()
    print(differences_table(found).to_string(index=False, float_format="{:.3f}".format))


if __name__ == "__main__":
    main()
