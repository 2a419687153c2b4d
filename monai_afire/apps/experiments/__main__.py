# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``monai-afire experiments --config_file TRAIN.json ...``: initializations compared over repeated runs."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from monai_afire.apps.experiments.execution import Outcome, execute_runs
from monai_afire.apps.experiments.experiment_tables import (
    comparison_figure,
    comparison_markdown,
    comparison_table,
    metric_names,
    runs_table,
)
from monai_afire.apps.experiments.paired_patients import patient_p_values
from monai_afire.apps.experiments.plan import (
    Experiment,
    ExperimentError,
    Pretraining,
    as_initialization,
    plan_runs,
    read_arms,
)
from monai_afire.utils.files import write_text
from monai_afire.visualize.figures import save_figure
from monai_afire_cli.options.overrides import wrong_options
from monai_afire_cli.process.interrupts import INTERRUPTED_EXIT_CODE
from monai_afire_cli.process.pipes import until_unread

_PRETRAINING = "pretraining::"
_EPILOG = """\
The bundle gets any further --key value in all runs, as in python -m monai.bundle run. --pretraining::key value goes to
all pre-trainings of --arms.

examples:
  monai-afire experiments --config_file bundles/radiograph_classification/configs/train.json \\
      --output_dir results --initializations scratch= afire=bundles/afire/models/model.pt \\
      --label_fraction 0.01 0.1 1.0 --seed 0 1 2 --num_processes 2 --metrics mean_auc

  monai-afire experiments --config_file bundles/radiograph_classification/configs/train.json \\
      --output_dir results --arms arms.json --seed 0 1 2 --network_def::freeze_encoder True \\
      --pretraining::dataset_dir normals

with arms.json. The first arm is the reference of the others, and null means an untrained encoder of the same shape:
  {"config_file": "bundles/afire/configs/train.json", "overrides": {"epochs": 5},
   "arms": {"full": {}, "without prototypes": {"network_def::use_prototypes": false}, "untrained": null}}

The same command continues an interrupted experiment; finished runs are not repeated. It writes runs.csv, table.csv,
table.md, table.png and, for each run, the folder runs/NAME with its log.txt.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options, further = _parser().parse_known_args(arguments)
    try:
        overrides = _overrides(further)
        pretraining = {
            key: overrides.pop(key) for key in list(overrides) if key.startswith(_PRETRAINING)
        }
        compared = _initializations(
            options, {key.removeprefix(_PRETRAINING): v for key, v in pretraining.items()}
        )
        experiment = Experiment(tuple(options.config_file), Path(options.output_dir), overrides)
        if problems := wrong_options([], [word.replace(_PRETRAINING, "") for word in further]):
            raise ExperimentError("; ".join(problems))
        runs = plan_runs(
            compared,
            options.seed,
            options.label_fraction,
            options.fold,
            options.num_folds,
            options.frozen,
        )
        print(f"{len(runs)} runs; logs: {experiment.output_dir / 'runs'}/*/log.txt", flush=True)
        outcomes = execute_runs(experiment, runs, options.num_processes)
        return _report(experiment, outcomes, options.metrics)
    except (ExperimentError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the same command continues", file=sys.stderr)
        return INTERRUPTED_EXIT_CODE


def _initializations(
    options: argparse.Namespace, pretraining: Mapping[str, str]
) -> list[tuple[str, str | Pretraining | None]]:
    """What is compared: given weights, then arms that are pre-trained first."""
    if pretraining and not options.arms:
        raise ExperimentError(
            f"--{_PRETRAINING}{next(iter(pretraining))} is for the pre-trainings of --arms"
        )
    given: list[tuple[str, str | Pretraining | None]] = [
        as_initialization(text) for text in options.initializations
    ]
    if options.arms:
        root = Path(options.output_dir) / "pretraining"
        arms = read_arms(options.arms, root, pretraining)
        given += [(arm, None) if isinstance(arm, str) else (arm.name, arm) for arm in arms]
    return given


def _report(experiment: Experiment, outcomes: Sequence[Outcome], metrics: Sequence[str]) -> int:
    """Write and print the tables, then say what failed."""
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    try:
        _write_tables(experiment, outcomes, metrics)
    finally:
        if failed:
            print(f"\n{len(failed)} of {len(outcomes)} runs failed:", file=sys.stderr)
        for outcome in failed:
            print(f"  {outcome.run.name}: {outcome.reason}", file=sys.stderr)
    return 1 if failed else 0


def _write_tables(
    experiment: Experiment, outcomes: Sequence[Outcome], metrics: Sequence[str]
) -> None:
    folder = experiment.output_dir
    table = runs_table(experiment, outcomes, metrics)
    write_text(folder / "runs.csv", table.to_csv(index=False))
    if all(outcome.status == "failed" for outcome in outcomes):
        return
    names = metric_names(table, metrics)
    if not names:
        raise ExperimentError(
            f"no metrics.json has a top-level number to compare: see {folder}/runs.csv"
        )
    comparison = comparison_table(table, names).merge(
        patient_p_values(experiment, outcomes), how="left"
    )
    write_text(folder / "table.csv", comparison.to_csv(index=False))
    text = comparison_markdown(comparison)
    write_text(folder / "table.md", text)
    save_figure(comparison_figure(comparison), folder / "table.png")
    print(
        f"\n{text}\ntables: runs.csv, table.csv and table.md in {folder}; figure: {folder}/table.png",
        flush=True,
    )


def _overrides(words: Sequence[str]) -> dict[str, str]:
    """``--key value`` and ``--key=value``."""
    overrides: dict[str, str] = {}
    rest = list(words)
    while rest:
        key, sign, value = rest.pop(0).partition("=")
        if (
            not key.startswith("--")
            or not (sign or rest)
            or (not sign and rest[0].startswith("--"))
        ):
            raise ExperimentError(
                f"{key!r} is neither an option of this command nor --key value; see --help"
            )
        name = key[2:]
        if name in overrides:
            raise ExperimentError(f"--{name} is given twice")
        overrides[name] = value if sign else rest.pop(0)
    return overrides


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="monai-afire experiments",
        description="Repeat a fine-tuning bundle, and pre-trainings before it, over initializations, label fractions, "
        "seeds and folds, and compare.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # --learning_rate is an option of the bundle
    )
    add = parser.add_argument
    add(
        "--config_file",
        nargs="+",
        required=True,
        help="the bundle's train.json, and overlays of it if any",
    )
    add("--output_dir", required=True, help="folder of the results")
    add(
        "--initializations",
        nargs="+",
        default=[],
        metavar="NAME=FILE",
        help="weights of the encoder to compare; NAME= for random ones in the encoder of the first file; p-values are "
        "against the first",
    )
    add(
        "--frozen",
        action="store_true",
        help="compare each with a frozen encoder, too (linear probe), as NAME-frozen",
    )
    add(
        "--arms",
        metavar="FILE",
        help="JSON file of pre-trainings to do first, each once per seed; see below",
    )
    add("--seed", nargs="+", type=int, default=[0], help="seeds (default: 0)")
    add(
        "--label_fraction",
        nargs="+",
        type=float,
        default=[],
        help="shares of the labels (default: the bundle's own)",
    )
    add(
        "--fold",
        nargs="+",
        type=int,
        default=[],
        help="folds to leave out (default: all of --num_folds)",
    )
    add("--num_folds", type=int, help="parts of a cross-validation (default: none)")
    add("--num_processes", type=int, default=1, help="runs at the same time (default: 1)")
    add(
        "--metrics",
        nargs="+",
        default=[],
        help="names in metrics.json to compare, nested ones as per_class::Mass::auc (default: its top-level numbers "
        "less the counts)",
    )
    return parser


def _terminate(signal_number: int, frame: FrameType | None) -> None:
    """Leave by an exception, on whose way the processes of the runs are ended."""
    sys.exit(128 + signal_number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(until_unread(main))
