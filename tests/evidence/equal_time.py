# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Methods at equal time: each is pre-trained for the same seconds of one core, then probed and used as a detector.

``python -m tests.evidence.equal_time --normals /path/to/normals --data /path/to/nih_cxr_7k`` pre-trains each method at
three learning rates with seed 0, keeps the rate with the best validation figures, and repeats it with further seeds.
Runs that are there are not repeated, ``--only`` shares the methods among several processes, and an interrupted run
goes on at its last epoch. ``--pack`` puts the figures of validation and the test scores of the chosen runs into
``tests/evidence/scores``, and ``--report`` makes the tables from these files alone. The protocol is in
docs/reports/equal_time.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from monai_afire.apps.evaluation.patient_bootstrap import (
    bootstrap_aucs,
    bootstrap_p_value,
    patient_weights,
)
from monai_afire.apps.experiments import Pretraining, pretrained_weights, read_arms
from monai_afire.metrics import mean_auc
from monai_afire.metrics.binary_classification import roc_auc
from monai_afire.networks import ViTEncoder
from tests.evidence import nih_findings, real_detection
from tests.evidence.component_endpoint import holm
from tests.evidence.draws_and_patients import both_ways, compact, interval
from tests.evidence.nih_findings import MeanToken
from tests.evidence.real_encoders import encoder, encoder_scores, shape_in

PLAN = Path("tests/evidence/real_radiographs/methods_equal_time.json")
SCORES = Path(__file__).parent / "scores"
RATES = (3e-4, 1e-3, 3e-3)
REFERENCE, UNTRAINED = "AFiRe", "untrained"
ENDPOINTS = ("probe", "detector")
SAMPLES = 2000
CONTROLS = {"probe": "pixels", "detector": "pixel neighbors, box"}
"""The strongest simple control of each endpoint, scored by the commands that made the other files of scores."""


@dataclass(frozen=True)
class Data:
    """NIH 7k as a probe and as a detector read it; the second lacks training images with findings."""

    findings: nih_findings.Set
    table: pd.DataFrame
    images: torch.Tensor

    @classmethod
    def read(cls, folder: Path, cache: Path, size: int) -> Data:
        """Both, kept in ``cache``."""
        return cls(
            nih_findings.read_set(folder, size, cache),
            *real_detection.read_set(folder, cache, size),
        )


def run_name(method: str, rate: float | None, seed: int) -> str:
    """Name of a run; an untrained encoder has no rate."""
    middle = "" if rate is None else f"-rate_{rate:g}"
    return f"{method}{middle}-seed_{seed}"


def at_rate(arm: Pretraining, rate: float) -> Pretraining:
    """The same pre-training at another learning rate."""
    overrides = {**dict(arm.overrides), "learning_rate": f"{rate:g}"}
    return replace(arm, name=f"{arm.name}-rate_{rate:g}", overrides=tuple(overrides.items()))


def scores_of(network: ViTEncoder, data: Data) -> dict[str, NDArray[np.float32]]:
    """Of the held-out images: logits ``(M, 12)`` of the probe and scores ``(M,)`` of the detector."""
    features = nih_findings.in_batches(MeanToken(network), data.findings.images)
    probe = nih_findings.probe_of(data.findings, features, data.findings.rows("training"))
    rows = encoder_scores(data.table, data.images, network, field_of_view="lungs")
    return {
        "probe": probe.logits(features[data.findings.held_out]).astype(np.float32),
        "detector": rows["fused"].to_numpy(np.float32),
    }


def measure(network: ViTEncoder, data: Data, file: Path) -> None:
    """Write a run's scores of the held-out images and, beside them, its figures on validation."""
    scores = scores_of(network, data)
    held_out = data.findings.held_out
    validation = np.isin(held_out, data.findings.rows("validation"))
    labels = data.findings.labels[held_out[validation]]
    figures = {
        "run": file.stem,
        "probe": mean_auc(labels, scores["probe"][validation]),
        "detector": roc_auc(labels.any(1), scores["detector"][validation]),
    }
    np.savez_compressed(file, probe=scores["probe"], detector=scores["detector"])
    file.with_suffix(".json").write_text(json.dumps(figures))
    print(json.dumps(figures), flush=True)


def best_rate(method: str, folder: Path) -> float | None:
    """The rate whose mean of both validation figures is highest with seed 0; None until all rates are measured."""
    files = {rate: folder / f"{run_name(method, rate, 0)}.json" for rate in RATES}
    if not all(file.is_file() for file in files.values()):
        return None
    found = {rate: json.loads(file.read_text()) for rate, file in files.items()}
    return max(RATES, key=lambda rate: found[rate]["probe"] + found[rate]["detector"])


class Runs:
    """The runs of a folder of results."""

    def __init__(self, output: Path, data: Data, shape: Mapping[str, int]) -> None:
        self.folder = output / "runs"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data, self.shape = data, shape

    def do(self, arm: Pretraining | str, rate: float | None, seed: int) -> None:
        """Pre-train and measure, unless that is done."""
        method = arm if isinstance(arm, str) else arm.name
        file = self.folder / f"{run_name(method, rate, seed)}.npz"
        if file.with_suffix(".json").is_file():
            return
        weights = ""
        if isinstance(arm, Pretraining) and rate is not None:
            weights = str(pretrained_weights(at_rate(arm, rate), seed))
        measure(encoder(weights, self.shape, seed), self.data, file)

    def do_all(self, arms: list[Pretraining | str], seeds: list[int]) -> None:
        """The rates of all arms with seed 0, then seed by seed all arms at their best rate."""
        for arm in arms:
            for rate in () if isinstance(arm, str) else RATES:
                self.do(arm, rate, 0)
        for seed in seeds:
            for arm in arms:
                chosen = None if isinstance(arm, str) else best_rate(arm.name, self.folder)
                self.do(arm, chosen, seed)


def chosen_runs(method: str, folder: Path) -> dict[int, Path]:
    """The files of a method's runs at its best rate, by seed."""
    rate = None if method == UNTRAINED else best_rate(method, folder)
    if rate is None and method != UNTRAINED:
        return {}
    prefix = run_name(method, rate, 0).removesuffix("0")
    return {int(file.stem.removeprefix(prefix)): file for file in folder.glob(f"{prefix}*.npz")}


def pack(output: Path, data: Path, methods: list[str], scores: Path) -> None:
    """The validation figures of all runs, and the test scores of the chosen ones of seeds that all methods have."""
    table = pd.read_csv(data / "manifest.csv", dtype={"patient_id": str})
    held_out = table[table["split"] != "train"]
    test = (held_out["split"] == "test").to_numpy()
    packed = {
        "patient": held_out["patient_id"][test].to_numpy(str),
        "image": held_out["image"].str.rsplit("/").str[-1][test].to_numpy(str),
        "labels": nih_findings.findings_of(held_out)[test].astype(np.int8),
        "abnormal": (held_out["findings"] != "No Finding").to_numpy()[test].astype(np.int8),
    }
    folder = output / "runs"
    chosen = {method: chosen_runs(method, folder) for method in methods}
    of_all = set.intersection(*(set(files) for files in chosen.values()))
    for method, files in chosen.items():
        for seed in sorted(of_all):
            with np.load(files[seed]) as content:
                for endpoint in ENDPOINTS:
                    found = compact(content[endpoint][test])
                    packed[f"{endpoint}:{method}:{seed}"] = found
    np.savez_compressed(scores / "equal_time.npz", **packed)
    rows = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    pd.DataFrame(rows).round(4).to_csv(scores / "equal_time_validation.csv", index=False)


def control_scores(images: NDArray[np.str_], scores: Path) -> dict[str, NDArray[np.float64]]:
    """By endpoint, scores of the simple control for test images in this order."""
    with np.load(scores / "imagenet.npz") as content:
        pixels = pd.DataFrame(content[f"run:{CONTROLS['probe']}_1_0"].astype(float))
        pixels.index = pd.Index([name.rsplit("/")[-1] for name in content["image"]])
    rows = pd.read_csv(scores / "detector_test.csv")
    neighbors = rows[rows["set"] == "nih_cxr_7k"].set_index("image")[CONTROLS["detector"]]
    return {
        "probe": pixels.loc[images].to_numpy(),
        "detector": neighbors.loc[images].to_numpy()[:, None],
    }


def read_aucs(scores: Path, samples: int = SAMPLES) -> dict[str, dict[str, NDArray[np.float64]]]:
    """
    AUCs ``(S, 1 + samples)`` of each seed, by endpoint and method; the first is that of all test patients.

    Args:
        scores: folder of ``equal_time.npz`` and of the controls' files.
        samples: of the patients.
    """
    runs: dict[str, dict[str, list[NDArray[np.float64]]]] = {name: {} for name in ENDPOINTS}
    with np.load(scores / "equal_time.npz") as content:
        labels = {
            "probe": content["labels"].astype(float),
            "detector": content["abnormal"].astype(float)[:, None],
        }
        weights = patient_weights(content["patient"], samples, include_original=True)
        found = {name: content[name].astype(float) for name in content.files if ":" in name}
        controls = control_scores(content["image"], scores)
    for name, values in found.items():
        endpoint, method, _ = name.split(":")
        columns = values.reshape(len(values), -1)
        aucs = bootstrap_aucs(labels[endpoint], columns, weights)
        runs[endpoint].setdefault(method, []).append(aucs)
    for endpoint, values in controls.items():
        aucs = bootstrap_aucs(labels[endpoint], values, weights)
        runs[endpoint][CONTROLS[endpoint]] = [aucs]
    return {
        endpoint: {method: np.stack(aucs) for method, aucs in methods.items()}
        for endpoint, methods in runs.items()
    }


def arms_table(found: dict[str, dict[str, NDArray[np.float64]]]) -> pd.DataFrame:
    """A row per endpoint and method: seeds, their spread, and the interval over seeds and patients."""
    rows = []
    for endpoint, methods in found.items():
        for method, aucs in methods.items():
            row = {"endpoint": endpoint, "method": method, "seeds": len(aucs)}
            row["sd over seeds"] = f"{np.std(aucs[:, 0], ddof=1):.3f}" if len(aucs) > 1 else ""
            rows.append({**row, "test AUC": interval(both_ways(aucs))})
    return pd.DataFrame(rows)


def compared(
    found: dict[str, dict[str, NDArray[np.float64]]], pairs: list[tuple[str, str]]
) -> pd.DataFrame:
    """A row per endpoint and pair; patients are paired, seeds are drawn for each method alone. Holm over all rows."""
    rows = []
    for endpoint, methods in found.items():
        for first, second in pairs:
            samples = both_ways(methods[first], seed=0) - both_ways(methods[second], seed=1)
            row = {"endpoint": endpoint, "difference": f"{first} - {second}"}
            rows.append({**row, "AUC": interval(samples), "p": bootstrap_p_value(samples[1:])})
    table = pd.DataFrame(rows)
    return table.assign(**{"p, Holm": holm(table["p"].to_numpy())})


def report(scores: Path) -> str:
    """The tables of the protocol."""
    found = read_aucs(scores)
    others = [name for name in found["probe"] if name not in (REFERENCE, CONTROLS["probe"])]
    trained = [method for method in others if method != UNTRAINED]
    tables = [
        pd.read_csv(scores / "equal_time_validation.csv"),
        arms_table(found),
        compared(found, [(REFERENCE, other) for other in others]),
        compared(found, [(method, UNTRAINED) for method in trained]),
    ]
    return "\n\n".join(table.to_string(index=False) for table in tables)


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--normals", type=Path, help="folder of the images to pre-train on")
    parser.add_argument("--data", type=Path, help="nih_cxr_7k")
    parser.add_argument("--output", type=Path, default=Path("results/equal_time"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", help="names of methods (default: all)")
    parser.add_argument("--scores", type=Path, default=SCORES, help="for --pack and --report")
    parser.add_argument("--pack", action="store_true", help="gather what is there")
    parser.add_argument("--report", action="store_true", help="the tables, from the scores alone")
    options = parser.parse_args()
    if options.report:
        print(report(options.scores))
        return
    output, data = options.output.resolve(), options.data.resolve()
    shared = {"dataset_dir": str(options.normals.resolve())} if options.normals else {}
    arms = read_arms(PLAN, output / "pretraining", shared)
    names = {arm if isinstance(arm, str) else arm.name: arm for arm in arms}
    if options.pack:
        pack(output, data, list(names), options.scores)
        return
    shape = shape_in(json.loads(PLAN.read_text())["overrides"])
    runs = Runs(output, Data.read(data, output, shape["image_size"]), shape)
    runs.do_all([names[name] for name in options.only or names], options.seeds)


if __name__ == "__main__":
    main()
