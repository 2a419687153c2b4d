# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``monai-afire experiments``: a fine-tuning bundle repeated over starting weights, labels, seeds and folds."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from monai_afire.apps.evaluation.patient_bootstrap import (
    bootstrap_aucs,
    bootstrap_p_value,
    patient_weights,
)
from monai_afire.utils.files import write_text
from monai_afire.utils.uncertain_labels import resolve_uncertain
from monai_afire.visualize.figures import save_figure

__all__ = ["Job", "comparison_table", "main", "patient_p_values", "runs_table"]

_FACTS = ["initialization", "label_fraction", "fold", "seed"]
_EPILOG = """\
Any further --key value goes to the bundle in all runs.

  monai-afire experiments --config_file bundles/radiograph_classification/configs/train.json \\
      --output_dir results --initializations scratch= released=released mine=latest \\
      --label_fraction 0.1 1.0 --seed 0 1 2 --dataset_dir /path --datalist labels.json

--arms names a JSON file of pre-trainings to do first, once per seed. The first arm is the reference; null is random
weights:
  {"config_file": "bundles/afire/configs/train.json", "overrides": {"epochs": 5},
   "arms": {"full": {}, "without prototypes": {"network_def::use_prototypes": false}, "random": null}}

The same command continues an interrupted experiment. It writes runs.csv, table.csv, table.md and table.png.
"""


@dataclass(frozen=True)
class Job:
    """
    Training in a folder of its own, by ``monai-afire run``.

    Args:
        folder: of the results.
        config_files: of the training, the bundle's ``train.json`` first.
        settings: further options of the run.
        evaluation: overlay that evaluates the trained network; None for a pre-training.
        facts: what the run is, for the table.
    """

    folder: Path
    config_files: Sequence[str]
    settings: Mapping[str, Any]
    evaluation: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> Path:
        """File of the trained network."""
        return self.folder / "models" / "model.pt"

    def run(self) -> str:
        """Do what is not done yet; the reason why it failed, or nothing."""
        done = self.folder / "settings.json"
        settings = json.dumps({"config_files": self.config_files, **self.settings}, indent=2)
        if done.is_file():
            if done.read_text(encoding="utf-8") == settings:
                return ""
            return f"{self.folder} has a run of other settings: choose another folder"
        self.folder.mkdir(parents=True, exist_ok=True)
        resume = (self.folder / "models" / "checkpoint.pt").is_file()
        steps = [(self.config_files, {**self.settings, "resume": resume})]
        if self.evaluation is not None:
            # the network to evaluate is built from its file
            kept = {k: v for k, v in self.settings.items() if not k.startswith("network_def::")}
            steps.append(([*self.config_files, self.evaluation], {**kept, "weights": self.model}))
        with open(self.folder / "log.txt", "a", encoding="utf-8") as log:
            for files, options in steps:
                if subprocess.run(self._command(files, options), stdout=log, stderr=log).returncode:
                    lines = (self.folder / "log.txt").read_text(errors="replace").split("\n")
                    return next((line for line in reversed(lines) if line.strip()), "no log")
        write_text(done, settings)
        return ""

    def _command(self, files: Sequence[str], options: Mapping[str, Any]) -> list[str]:
        words = [sys.executable, "-m", "monai_afire_cli", "run", str(Path(files[0]).parents[1])]
        words += files
        for name, value in {**options, "output_dir": self.folder}.items():
            words += [f"--{name}", value if isinstance(value, str) else _word(value)]
        return words


def _word(value: Any) -> str:
    """A value as a word of the command line."""
    return str(value) if isinstance(value, Path) else json.dumps(value)


def read_arms(path: str, shared: Mapping[str, Any]) -> dict[str, dict[str, Any] | None]:
    """The settings of each pre-training of a JSON file, with those that all share; None for random weights."""
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not content.get("arms"):
        raise ValueError(f'{path}: write {{"config_file": ..., "arms": {{"name": {{...}}}}}}')
    common = {"config_file": content.get("config_file"), **content.get("overrides", {})}
    return {
        name: None if changes is None else {**common, **changes, **shared}
        for name, changes in content["arms"].items()
    }


def planned_jobs(
    options: argparse.Namespace, further: Mapping[str, Any]
) -> list[tuple[Job, Job | None]]:
    """
    Every combination of what is compared, and the pre-training that it starts from, if any.

    Random weights are in the encoder of the first weights that are compared: the two differ in the weights alone.
    Further settings that begin with "pretraining::" are of the pre-trainings.
    """
    mark = "pretraining::"
    shared = {k.removeprefix(mark): v for k, v in further.items() if k.startswith(mark)}
    own = {k: v for k, v in further.items() if not k.startswith(mark)}
    starts: dict[str, Any] = dict(text.partition("=")[::2] for text in options.initializations)
    starts |= read_arms(options.arms, shared) if options.arms else {}
    if not starts:
        raise ValueError("nothing to compare: give --initializations or --arms")
    reference = next((name for name, start in starts.items() if start), None)
    folds = [None] if options.num_folds is None else options.fold or range(options.num_folds)
    fractions, frozen = options.label_fraction or [None], [False, True][: 1 + options.frozen]
    jobs = []
    for fraction, fold, seed, name, is_frozen in product(
        fractions, folds, options.seed, starts, frozen
    ):
        source = name if starts[name] else reference
        start = None if source is None else starts[source]
        pretraining = _pretraining(source, start, seed, Path(options.output_dir))
        weights = start if pretraining is None else str(pretraining.model)
        settings = {**own, "seed": seed, "weights": weights or None}
        if source != name:
            settings["encoder_def::pretrained"] = False
        if is_frozen:
            settings["network_def::freeze_encoder"] = True
        if fraction is not None:
            settings["items::label_fraction"] = fraction
        if fold is not None:
            settings |= {"items::fold": fold, "items::num_folds": options.num_folds}
        shown = f"{name}-frozen" if is_frozen else name
        facts = dict(zip(_FACTS, (shown, fraction, fold, seed), strict=True))
        jobs.append((_job(options, settings, facts), pretraining))
    return jobs


def _job(options: argparse.Namespace, settings: Mapping[str, Any], facts: Mapping[str, Any]) -> Job:
    details = [f"{name}_{facts[name]}" for name in _FACTS[1:] if facts[name] is not None]
    folder = Path(options.output_dir, "runs", "-".join([facts["initialization"], *details]))
    evaluation = str(Path(options.config_file[0]).with_name("evaluate.json"))
    return Job(folder, options.config_file, settings, evaluation, facts)


def _pretraining(
    name: str | None, start: Mapping[str, Any] | str | None, seed: int, output_dir: Path
) -> Job | None:
    """The pre-training of an arm; None where there is none."""
    if not isinstance(start, Mapping):
        return None
    settings = {key: value for key, value in start.items() if key != "config_file"}
    files = start["config_file"]
    folder = output_dir / "pretraining" / f"{name}-seed_{seed}"
    return Job(folder, [files] if isinstance(files, str) else files, {**settings, "seed": seed})


def run_jobs(jobs: Sequence[tuple[Job, Job | None]], num_processes: int) -> list[str]:
    """Do the pre-trainings, then the runs, some at a time: for each run the reason why it failed, or ""."""
    pretrainings = {str(job.folder): job for _, job in jobs if job is not None}
    with ThreadPoolExecutor(num_processes) as pool:
        failed = dict(zip(pretrainings, pool.map(Job.run, pretrainings.values()), strict=True))

        def run(pair: tuple[Job, Job | None]) -> str:
            job, pretraining = pair
            reason = failed[str(pretraining.folder)] if pretraining is not None else ""
            reason = reason or job.run()
            print(f"{'failed' if reason else 'done'}: {job.folder.name} {reason}", flush=True)
            return reason

        return list(pool.map(run, jobs))


def runs_table(jobs: Sequence[Job]) -> pd.DataFrame:
    """A row per run: what it is, and its metrics, nested ones by names such as ``per_class::Mass::auc``."""
    rows = []
    for job in jobs:
        metrics = json.loads((job.folder / "metrics.json").read_text(encoding="utf-8"))
        flat = pd.json_normalize(metrics, sep="::").iloc[0].to_dict()
        numbers = {k: v for k, v in flat.items() if isinstance(v, (int, float))}
        rows.append({**job.facts, **numbers})
    return pd.DataFrame(rows).astype({"label_fraction": float, "fold": float})


def comparison_table(table: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """
    Mean and standard deviation over seeds and folds, each initialization against the first one.

    Args:
        table: of :func:`runs_table`.
        metrics: names of those to compare.

    Returns:
        A row per metric, label fraction and initialization with "n", "mean", "sd" (of the sample), "difference" of the
        means, "p_value" (Welch), and of the "pairs" of runs with the same seed and fold how many are "higher" and
        "paired_p_value".

    Example:
        >>> runs = pd.DataFrame({"initialization": ["a", "a", "b"], "label_fraction": 1.0, "fold": 0.0,
        ...                      "seed": [0, 1, 0], "auc": [0.5, 0.7, 0.8]})
        >>> comparison_table(runs, ["auc"])[["initialization", "n", "mean", "sd"]].round(3).values.tolist()
        [['a', 2, 0.6, 0.141], ['b', 1, 0.8, nan]]
    """
    first = table["initialization"].iloc[0]
    rows = []
    for metric in metrics:
        for fraction, group in table.groupby("label_fraction", dropna=False):
            by_run = group.pivot_table(
                metric, "initialization", ["seed", "fold"], sort=False, dropna=False
            )
            for name, values in by_run.iterrows():
                facts = {"metric": metric, "label_fraction": fraction, "initialization": name}
                rows.append(facts | _compared(by_run.loc[first], values, name == first))
    return pd.DataFrame(rows)


def _compared(reference: pd.Series, values: pd.Series, is_reference: bool) -> dict[str, float]:
    """The columns of one initialization."""
    own = values.dropna()
    facts = {"n": len(own), "mean": own.mean(), "sd": own.std()}
    if is_reference:
        return facts
    differences, first = (values - reference).dropna(), reference.dropna()
    can_test = min(len(first), len(own)) > 1 and first.var() + own.var() > 0
    welch = stats.ttest_ind(first, own, equal_var=False).pvalue if can_test else np.nan
    paired = stats.ttest_1samp(differences, 0.0).pvalue if differences.var() > 0 else np.nan
    return facts | {
        "difference": own.mean() - first.mean(),
        "p_value": welch,
        "pairs": len(differences),
        "higher": int((differences > 0).sum()),
        "paired_p_value": paired,
    }


def patient_p_values(jobs: Sequence[Job], num_samples: int = 1000) -> pd.DataFrame:
    """
    Two-sided p of the difference of the mean AUC from the first initialization, by a paired bootstrap of patients.

    It says whether other patients would give the same order, given these networks; the t-tests say whether other seeds
    would. Runs without ``predictions.csv`` have none.
    """
    first = jobs[0].facts["initialization"]
    pairs: dict[tuple[str, float | None], list[tuple[pd.DataFrame, pd.DataFrame]]] = {}
    references = {_part(job): job for job in jobs if job.facts["initialization"] == first}
    for job in jobs:
        reference = references[_part(job)]
        files = [each.folder / "predictions.csv" for each in (reference, job)]
        if job is not reference and all(file.is_file() for file in files):
            uncertain = job.settings.get("uncertain", "ignore")
            one, other = (_predictions(file, uncertain) for file in files)
            key = job.facts["initialization"], job.facts["label_fraction"]
            pairs.setdefault(key, []).append((one, other.loc[one.index]))
    rows = [("mean_auc", *key, _patient_p(tables, num_samples)) for key, tables in pairs.items()]
    names = ["metric", "initialization", "label_fraction", "patient_p_value"]
    return pd.DataFrame(rows, columns=names).astype({"label_fraction": float})


def _part(job: Job) -> tuple[Any, ...]:
    """What partners of two initializations have in common."""
    return tuple(job.facts[name] for name in _FACTS[1:])


def _predictions(file: Path, uncertain: str) -> pd.DataFrame:
    """A row per image, labels as the run counted them; a class may be named "None" or "3", a patient "007"."""
    texts = dict.fromkeys(("image", "patient_id", "label"), str)
    table = pd.read_csv(file, dtype=texts, keep_default_na=False, na_values=[""])
    for name in table.filter(regex="^label_"):
        labels = torch.tensor(table[name].to_numpy(dtype=float))
        table[name] = resolve_uncertain(labels, uncertain).numpy()
    return table.drop_duplicates("image").set_index("image")


def _patient_p(pairs: Sequence[tuple[pd.DataFrame, pd.DataFrame]], num_samples: int) -> float:
    """Of the mean difference of pairs of tables over the same samples of patients."""
    patients = pd.concat([table["patient_id"] for table, _ in pairs])
    weights = patient_weights(patients.tolist(), num_samples)
    parts = np.split(weights, np.cumsum([len(table) for table, _ in pairs])[:-1], axis=1)
    differences = [
        _mean_auc(other, part) - _mean_auc(one, part)
        for (one, other), part in zip(pairs, parts, strict=True)
    ]
    return bootstrap_p_value(np.mean(differences, axis=0))


def _mean_auc(table: pd.DataFrame, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of several findings, or of exclusive classes against the others, for each set of weights."""
    scores = table.filter(regex="^probability_")
    names = [column.removeprefix("probability_") for column in scores]
    if "label" in table:
        known = table["label"].notna()
        truth = pd.DataFrame({name: (table["label"] == name).where(known) for name in names})
    else:
        truth = table[[f"label_{name}" for name in names]]
    return bootstrap_aucs(truth.to_numpy(dtype=float), scores.to_numpy(dtype=float), weights)


def comparison_markdown(comparison: pd.DataFrame) -> str:
    """Tables to read: a row per initialization, a column per label fraction."""
    parts = []
    for metric, rows in comparison.groupby("metric", sort=False):
        cells = rows.assign(cell=[_cell(row) for row in rows.to_dict("records")])
        cells["labels"] = [_labels(fraction) for fraction in cells["label_fraction"]]
        wide = cells.pivot(index="initialization", columns="labels", values="cell")
        wide = wide.loc[rows["initialization"].unique(), cells["labels"].unique()]
        head = ["initialization", *wide.columns]
        lines = [head, ["---"] * len(head), *wide.reset_index().to_numpy().tolist()]
        parts.append(f"## {metric}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))
    parts.append(
        "Mean ± standard deviation (number of runs, over seeds and folds); p: two-sided Welch t-test against the first "
        "row; higher: runs above the first row's run of the same seed and fold; by patient: paired bootstrap of the "
        "test patients."
    )
    return "\n\n".join(parts) + "\n"


def _cell(row: Mapping[str, Any]) -> str:
    # errors of landmarks are small fractions of the side
    digits = 3 if abs(row["mean"]) >= 0.1 else 4
    spread = "" if np.isnan(row["sd"]) else f" ± {row['sd']:.{digits}f}"
    text = f"{row['mean']:.{digits}f}{spread} ({row['n']})"
    for title, name in (("p =", "p_value"), ("by patient p =", "patient_p_value")):
        if not np.isnan(row.get(name, np.nan)):
            text += f", {title} {row[name]:.3f}"
    higher = row.get("pairs", np.nan)
    return text if np.isnan(higher) else f"{text}, {row['higher']:.0f} of {higher:.0f} higher"


def _labels(fraction: float) -> str:
    return "all labels" if np.isnan(fraction) else f"{100 * fraction:g} % of the labels"


def comparison_figure(comparison: pd.DataFrame) -> Figure:
    """Mean ± standard deviation over label fractions, a panel per metric and a line per initialization."""
    metrics = comparison["metric"].unique()
    figure = Figure(figsize=(4.6 * len(metrics), 3.6), dpi=130, layout="constrained")
    axes = figure.subplots(1, len(metrics), squeeze=False)[0]
    style = {"marker": "o", "capsize": 3}
    for axis, metric in zip(axes, metrics, strict=True):
        rows = comparison[comparison["metric"] == metric]
        for name, line in rows.groupby("initialization", sort=False):
            labels = [_labels(fraction) for fraction in line["label_fraction"]]
            axis.errorbar(labels, line["mean"], line["sd"].fillna(0), label=name, **style)
        axis.set_title(metric, fontsize=10)
        axis.legend(fontsize=8, frameon=False)
    return figure


def main(words: Sequence[str] | None = None) -> int:
    """Run the command."""
    options, further = _parser().parse_known_args(words)
    try:
        jobs = planned_jobs(options, _settings(further))
        reasons = run_jobs(jobs, options.num_processes)
        done = [job for (job, _), reason in zip(jobs, reasons, strict=True) if not reason]
        if done:
            write_tables(done, options.metrics, Path(options.output_dir))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 1 if any(reasons) else 0


def write_tables(jobs: Sequence[Job], metrics: Sequence[str], folder: Path) -> None:
    """Write and print the tables of the runs that are done; without names of metrics, all but the counts."""
    table = runs_table(jobs)
    table.to_csv(folder / "runs.csv", index=False)
    chosen = metrics or [n for n in table if n not in _FACTS and "::" not in n and "num_" not in n]
    comparison = comparison_table(table, chosen).merge(patient_p_values(jobs), how="left")
    comparison.to_csv(folder / "table.csv", index=False)
    text = comparison_markdown(comparison)
    write_text(folder / "table.md", text)
    save_figure(comparison_figure(comparison), folder / "table.png")
    print(f"\n{text}\ntables: {folder}/table.md, table.csv, runs.csv; figure: {folder}/table.png")


def _settings(words: Sequence[str]) -> dict[str, str]:
    """``--key value`` and ``--key=value``, as they are."""
    settings, rest = {}, list(words)
    while rest:
        key, is_joined, value = rest.pop(0).partition("=")
        if not key.startswith("--") or not (is_joined or rest):
            raise ValueError(f"{key!r} is neither an option of this command nor --key value")
        settings[key[2:]] = value if is_joined else rest.pop(0)
    return settings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "monai-afire experiments",
        description="Repeat a fine-tuning bundle, and pre-trainings before it, and compare.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # --learning_rate is an option of the bundle
    )
    add = parser.add_argument
    add("--config_file", nargs="+", required=True, help="the bundle's train.json, and overlays")
    add("--output_dir", required=True, help="folder of the results")
    weights = "see --weights of a bundle; NAME= for random ones"
    add("--initializations", nargs="+", default=[], metavar="NAME=WEIGHTS", help=weights)
    add("--frozen", action="store_true", help="compare each with a frozen encoder, too")
    add("--arms", metavar="FILE", help="JSON file of pre-trainings to do first; see below")
    add("--seed", nargs="+", type=int, default=[0], help="seeds (default: 0)")
    add("--label_fraction", nargs="+", type=float, default=[], help="shares of the labels")
    add("--fold", nargs="+", type=int, default=[], help="folds to leave out (default: all)")
    add("--num_folds", type=int, help="parts of a cross-validation (default: none)")
    add("--num_processes", type=int, default=1, help="runs at the same time (default: 1)")
    metrics = "names in metrics.json, such as mean_auc or per_class::Mass::auc"
    add("--metrics", nargs="+", default=[], help=metrics)
    return parser


if __name__ == "__main__":
    sys.exit(main())
