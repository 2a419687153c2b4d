# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The published tables, made from the scores of single images in ``scores``.

``python -m tests.benchmarks.tables detector`` compares the released detector with controls on four sets, ``untouched``
detectors on patients whom no pre-training has seen, ``findings`` frozen and fine-tuned encoders on twelve findings of
NIH 7k, ``equal_time`` the methods after the same time, and ``organs`` the released segmenter with outlines by hand.

AUCs have 95 % intervals over 2,000 bootstraps of patients and, where there are several, of runs. Differences are paired
by patient; p-values are corrected by Holm's method within each table of differences.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from monai_afire.apps.evaluation import bootstrap_aucs, bootstrap_p_value, patient_weights

SCORES = Path(__file__).parent / "scores"
SAMPLES = 2000
Samples = NDArray[np.float64]
"""``(1 + SAMPLES,)``: a value of all patients, then of each sample of them."""


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """P-values corrected for their number: the smallest times n, the next times n - 1, never falling (Holm, 1979)."""
    p_values = np.asarray(p_values, dtype=float)
    order = np.argsort(p_values)
    corrected = p_values[order] * np.arange(len(p_values), 0, -1)
    found = np.empty_like(p_values)
    found[order] = np.minimum(1, np.maximum.accumulate(corrected))
    return found


def over_runs(aucs: NDArray[np.float64], seed: int = 0) -> Samples:
    """The mean of ``(R, 1 + SAMPLES)`` over runs; each sample of the patients has other runs, drawn anew."""
    chosen = np.random.default_rng(seed).integers(len(aucs), size=(SAMPLES, len(aucs)))
    resampled = aucs[chosen.T, np.arange(1, 1 + SAMPLES)].mean(axis=0)
    return np.concatenate([[aucs[:, 0].mean()], resampled])


def interval(samples: Samples, sign: str = "") -> str:
    """The value of all patients with its 95 % interval."""
    low, high = np.quantile(samples[1:], [0.025, 0.975])
    return f"{samples[0]:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def differences(found: Mapping[str, Samples]) -> pd.DataFrame:
    """A row per difference: its interval, p, and p after Holm's correction for the number of rows."""
    p_values = [bootstrap_p_value(samples[1:]) for samples in found.values()]
    columns = {"AUC": [interval(samples, "+") for samples in found.values()], "p": p_values}
    return pd.DataFrame({"difference": found.keys(), **columns, "p, Holm": holm(p_values)})


def detector() -> Iterator[pd.DataFrame]:
    """Each score in each set; the detector minus two other encoders, and minus the best simple control of each set."""
    rows = pd.read_csv(SCORES / "detector_test.csv", dtype={"patient": str})
    names = list(rows.columns[rows.columns.get_loc("label") + 1 :])
    first, controls = names[0], names[names.index("PCA, square") :]
    parts = {**dict(list(rows.groupby("set"))), "nih_cxr_7k, PA": rows[rows["view"] == "PA"]}
    found = {}
    for title, part in parts.items():
        weights = patient_weights(part["patient"], SAMPLES, include_original=True)
        labels = part[["label"]].to_numpy(float)
        found[title] = {
            name: bootstrap_aucs(labels, part[[name]].to_numpy(), weights) for name in names
        }
    shown = {title: {n: interval(a) for n, a in aucs.items()} for title, aucs in found.items()}
    yield pd.DataFrame(shown)
    best = {title: max(controls, key=lambda n: aucs[n][0]) for title, aucs in found.items()}
    for other in ("ImageNet encoder, square", "untrained encoder, square", None):
        less = {}
        for title, aucs in found.items():
            name = other or best[title]
            less[f"{title}: {first} - {name}"] = aucs[first] - aucs[name]
        yield differences(less)
    yield released_on_unseen_patients()


def released_on_unseen_patients() -> pd.DataFrame:
    """The released file as it is, minus the best simple baseline and the file that it replaced, by view."""
    with np.load(SCORES / "untouched_detection.npz") as content:
        columns = ("patient", "view", "label", "fold")
        rows = pd.DataFrame({name: content[name] for name in columns})
        names = ("PCA, square", "PCA, box", "pixel neighbors, square", "pixel neighbors, box")
        names += ("blur", "darkness")
        controls = {name: content[f"run:{name}"] for name in names}
        released, earlier = content["released detector"], content["earlier detector"]
    table = []
    for view, kept in by_view(rows):
        aucs = {name: fold_aucs(rows[kept], scores[kept]) for name, scores in controls.items()}
        best = max(aucs, key=lambda name: aucs[name][0])
        own, old = (fold_aucs(rows[kept], scores[kept]) for scores in (released, earlier))
        table.append(
            {
                "unseen patients": view,
                "released detector": interval(own),
                "best baseline": f"{best} {interval(aucs[best])}",
                "difference": interval(own - aucs[best], "+"),
                "earlier detector": interval(old),
                "difference to it": interval(own - old, "+"),
            }
        )
    return pd.DataFrame(table)


def untouched() -> Iterator[pd.DataFrame]:
    """Detectors by view; AFiRe minus pixel neighbors is the endpoint, and the others are corrected together."""
    first, endpoint = "AFiRe", "pixel neighbors, square"
    with np.load(SCORES / "untouched_detection.npz") as content:
        columns = ("patient", "view", "label", "fold")
        rows = pd.DataFrame({name: content[name] for name in columns})
        scores = {n.removeprefix("run:"): content[n] for n in content.files if n.startswith("run:")}
    for view, kept in by_view(rows):
        runs: dict[str, list[Samples]] = {}
        for name, values in scores.items():
            aucs = fold_aucs(rows[kept], values[kept])
            runs.setdefault(name.split("-seed_")[0], []).append(aucs)
        means = {
            a: over_runs(np.stack(aucs), k) for k, (a, aucs) in enumerate(sorted(runs.items()))
        }
        yield pd.DataFrame({view: {a: interval(s) for a, s in means.items()}})
        less = {f"{first} - {name}": means[first] - means[name] for name in means if name != first}
        yield differences({f"{first} - {endpoint}": less.pop(f"{first} - {endpoint}")})
        yield differences(less)


def by_view(rows: pd.DataFrame) -> list[tuple[str, NDArray[np.bool_]]]:
    """The rows of PA views, then those of all views."""
    return [
        ("PA views", (rows["view"] == "PA").to_numpy()),
        ("all views", np.ones(len(rows), bool)),
    ]


def fold_aucs(rows: pd.DataFrame, scores: NDArray) -> Samples:
    """Mean over folds of the AUC within the fold: other normal images gave the scores of another fold."""
    found = []
    for fold in range(5):
        judged = (rows["fold"] == fold).to_numpy()
        part = rows[judged]
        weights = patient_weights(part["patient"], SAMPLES, seed=fold, include_original=True)
        labels = part[["label"]].to_numpy(float)
        found.append(bootstrap_aucs(labels, scores[judged][:, None].astype(float), weights))
    return np.mean(found, axis=0)


def findings() -> Iterator[pd.DataFrame]:
    """Mean AUC of twelve findings over draws of training patients; comparisons by the part of the protocol."""
    found: dict[str, dict[str, Samples]] = {}
    with np.load(SCORES / "imagenet.npz") as content:
        weights = patient_weights(content["patient"], SAMPLES, include_original=True)
        labels = content["labels"].astype(float)
        for name in (name for name in content.files if name.startswith("run:")):
            arm, fraction, draw = name.removeprefix("run:").rsplit("_", 2)
            aucs = bootstrap_aucs(labels, content[name].astype(np.float32), weights)
            found.setdefault(f"{arm}, {fraction}", {})[draw] = aucs
    rows = {}
    for arm, runs in sorted(found.items()):
        aucs = np.stack([runs[draw] for draw in sorted(runs)])
        rows[arm] = {"draws": len(aucs), "AUC": interval(over_runs(aucs))}
    yield pd.DataFrame(rows).T
    for part, family in json.loads((SCORES / "imagenet_comparisons.json").read_text()).items():
        less = {}
        for fraction in family["labels"]:
            for first, second in family["comparisons"]:
                one, two = found[f"{first}, {fraction}"], found[f"{second}, {fraction}"]
                draws = sorted(set(one) & set(two))
                paired = over_runs(np.stack([one[draw] - two[draw] for draw in draws]))
                less[f"{first} - {second}, {fraction}"] = paired
        yield differences(less).assign(part=part)


def equal_time() -> Iterator[pd.DataFrame]:
    """Both endpoints of each method; AFiRe minus each other one, and each other one minus the untrained encoder."""
    runs: dict[str, list[Samples]] = {}
    with np.load(SCORES / "equal_time.npz") as content:
        weights = patient_weights(content["patient"], SAMPLES, include_original=True)
        labels = {"probe": content["labels"], "detector": content["abnormal"][:, None]}
        for name in (name for name in content.files if ":" in name):
            endpoint, method, _ = name.split(":")
            scores = content[name].astype(float).reshape(len(content[name]), -1)
            aucs = bootstrap_aucs(labels[endpoint].astype(float), scores, weights)
            runs.setdefault(f"{method}, {endpoint}", []).append(aucs)
    means = {name: over_runs(np.stack(aucs)) for name, aucs in runs.items()}
    yield pd.DataFrame({"AUC": {name: interval(samples) for name, samples in means.items()}})
    methods = sorted({name.split(", ")[0] for name in runs} - {"AFiRe", "untrained"})
    for pairs in (
        [("AFiRe", other) for other in (*methods, "untrained")],
        [(method, "untrained") for method in methods],
    ):
        less = {}
        for end in labels:
            for one, two in pairs:
                # the runs of two methods are drawn apart
                other = over_runs(np.stack(runs[f"{two}, {end}"]), seed=1)
                less[f"{one} - {two}, {end}"] = means[f"{one}, {end}"] - other
        yield differences(less)


def organs() -> Iterator[pd.DataFrame]:
    """Mean Dice of the released segmenter over images, and the smallest."""
    rows, found = pd.read_csv(SCORES / "organs_dice.csv"), {}
    for names, part in rows.groupby(["set", "structure"]):
        values = part["dice"].to_numpy()
        weights = patient_weights(part["image"], SAMPLES, include_original=True)
        means = weights @ values / len(values)
        found[", ".join(names)] = {"Dice": interval(means), "smallest": f"{values.min():.3f}"}
    yield pd.DataFrame(found).T


TABLES = {make.__name__: make for make in (detector, untouched, findings, equal_time, organs)}


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=TABLES)
    for table in TABLES[parser.parse_args().name]():
        print(table.to_markdown(index="difference" not in table, floatfmt=".3f"), end="\n\n")


if __name__ == "__main__":
    main()
