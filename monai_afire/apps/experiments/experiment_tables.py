# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tables of an experiment: mean and standard deviation over runs, and a test between initializations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from monai_afire.apps.experiments.execution import Outcome, read_metrics
from monai_afire.apps.experiments.plan import Experiment, ExperimentError
from monai_afire.apps.results.report_text import format_number

_FACTS = (
    "name",
    "initialization",
    "label_fraction",
    "fold",
    "seed",
    "status",
    "reason",
)  # what is no metric
_SEPARATOR = "::"  # of the names of nested metrics, as in MONAI's configs


def runs_table(
    experiment: Experiment, outcomes: Sequence[Outcome], metrics: Sequence[str] = ()
) -> pd.DataFrame:
    """
    One row per run.

    Args:
        experiment: what the runs share.
        outcomes: of :func:`execute_runs`.
        metrics: names of metrics to add, ``per_class::Mass::auc`` for nested ones; the top-level numbers are there
            anyway.

    Returns:
        "name", "initialization", "label_fraction", "fold", "seed", "status", "reason", and a column per metric, NaN
        where it is not defined or the run failed.
    """
    rows = [_row(experiment, outcome, metrics) for outcome in outcomes]
    table = pd.DataFrame(rows)
    counts = {name: "Int64" for name in table if _has_counts([row.get(name) for row in rows])}
    return table.astype({"label_fraction": "float64", "fold": "Int64", **counts})


def _has_counts(values: Sequence[Any]) -> bool:
    """Whether all known values of a column are whole numbers."""
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int) for value in known)


def metric_names(table: pd.DataFrame, metrics: Sequence[str] = ()) -> list[str]:
    """
    Names of the metrics to compare.

    Args:
        table: of :func:`runs_table`.
        metrics: the wanted ones; none for all but integers, which are counts.

    Returns:
        Their names.

    Raises:
        ExperimentError: for a wanted metric that no run has.

    Example:
        >>> metric_names(pd.DataFrame({"seed": [0], "status": ["done"], "mean_auc": [1.0], "num_images": [7]}))
        ['mean_auc']
    """
    known = table.drop(columns=[name for name in _FACTS if name in table]).dropna(axis=1, how="all")
    succeeded = (table["status"] != "failed").any()
    if unknown := [name for name in metrics if succeeded and name not in known]:
        there = f"{', '.join(known) or 'no numbers'}, and nested ones as in per_class{_SEPARATOR}NAME{_SEPARATOR}auc"
        raise ExperimentError(
            f"--metrics {' '.join(unknown)}: not in the metrics.json of any run; there are {there}"
        )
    return list(metrics) or list(known.select_dtypes("float"))


def welch_p_value(first: ArrayLike, second: ArrayLike) -> float:
    """
    Two-sided p of the t-test of two independent samples whose variances may differ (Welch).

    Args:
        first: sample.
        second: sample.

    Returns:
        p in [0, 1]; NaN with fewer than two values in either, or where neither varies: then no test is possible.

    Example:
        >>> round(welch_p_value([1.0, 2.0, 3.0], [3.0, 4.0, 5.0]), 4), welch_p_value([1.0], [2.0, 3.0])
        (0.0705, nan)
    """
    samples = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if min(map(len, samples)) < 2 or all(np.ptp(sample) == 0 for sample in samples):
        return math.nan
    return float(stats.ttest_ind(*samples, equal_var=False).pvalue)


def paired_p_value(differences: ArrayLike) -> float:
    """
    Two-sided p of the t-test of paired samples.

    Args:
        differences: of the partners, such as runs of the same seed.

    Returns:
        p in [0, 1]; NaN with fewer than two of them, or where all are equal: then no test is possible.

    Example:
        >>> round(paired_p_value([1.0, 2.0, 3.0]), 4), paired_p_value([1.0])
        (0.0742, nan)
    """
    values = np.asarray(differences, dtype=float)
    if len(values) < 2 or np.ptp(values) == 0:
        return math.nan
    return float(stats.ttest_1samp(values, 0.0).pvalue)


def comparison_table(table: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """
    Mean and standard deviation over seeds and folds, each initialization against the first one.

    Args:
        table: of :func:`runs_table`.
        metrics: names of those to compare.

    Returns:
        A row per metric, initialization and label fraction, with "n" (runs that have the metric), "mean", "sd" (of the
        sample, n - 1; NaN for one run), "difference" of the means from the first initialization, "p_value", see
        :func:`welch_p_value`, and of the "pairs" of runs with the same seed and fold how many are "higher" than their
        partner and the "paired_p_value", see :func:`paired_p_value`.

    Example:
        >>> runs = pd.DataFrame({"initialization": ["a", "a", "b"], "label_fraction": 1.0, "auc": [0.5, 0.7, 0.8]})
        >>> comparison_table(runs, ["auc"])[["initialization", "n", "mean", "sd"]].round(3).values.tolist()
        [['a', 2, 0.6, 0.141], ['b', 1, 0.8, nan]]
    """
    names = table["initialization"].unique()
    by_fraction = list(table.groupby("label_fraction", dropna=False))
    rows = []
    for metric, (fraction, group), name in product(metrics, by_fraction, names):
        facts = {"metric": metric, "initialization": name, "label_fraction": fraction}
        rows.append(facts | _compared(group, names[0], name, metric))
    return pd.DataFrame(rows)


def comparison_markdown(comparison: pd.DataFrame) -> str:
    """
    The comparison as tables to read: a row per initialization, a column per label fraction.

    Args:
        comparison: of :func:`comparison_table`.

    Returns:
        Markdown.

    Example:
        >>> runs = pd.DataFrame({"initialization": ["a", "a", "b"], "label_fraction": 1.0, "auc": [0.5, 0.7, 0.8]})
        >>> print(comparison_markdown(comparison_table(runs, ["auc"])).split("Mean")[0].strip())
        ## auc
        <BLANKLINE>
        | initialization | 100 % of the labels |
        | --- | --- |
        | a | 0.600 ± 0.141 (2) |
        | b | 0.800 (1), p = n/a |
    """
    parts = []
    first = comparison["initialization"].iloc[0]
    for metric, of_metric in comparison.groupby("metric", sort=False):
        columns = {
            fraction: _fraction_title(fraction) for fraction in of_metric["label_fraction"].unique()
        }
        lines = [
            "| initialization | " + " | ".join(columns.values()) + " |",
            "| --- " * (len(columns) + 1) + "|",
        ]
        for name, of_name in of_metric.groupby("initialization", sort=False):
            cells = [_cell(row, name == first) for row in of_name.to_dict("records")]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        parts.append("\n".join([f"## {metric}", "", *lines]))
    parts.append(
        "Mean ± standard deviation of the sample (number of runs, over seeds and folds); p: two-sided Welch t-test "
        f"against {first}, n/a where a side has fewer than two runs or neither varies; higher: runs above the run of "
        f"{first} with the same seed and fold (table.csv has the paired t-test); by patient: paired bootstrap of the "
        "test patients."
    )
    return "\n\n".join(parts) + "\n"


def comparison_figure(comparison: pd.DataFrame) -> Figure:
    """
    Mean ± standard deviation over label fractions, a panel per metric and a line per initialization.

    Args:
        comparison: of :func:`comparison_table`.

    Returns:
        The figure, for ``save_figure``.

    Example:
        >>> runs = pd.DataFrame({"initialization": ["a", "a", "b"], "label_fraction": 1.0, "auc": [0.5, 0.7, 0.8]})
        >>> len(comparison_figure(comparison_table(runs, ["auc"])).axes)
        1
    """
    metrics = comparison["metric"].unique()
    columns = min(3, len(metrics))
    rows = -(-len(metrics) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.6 * rows), dpi=130, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, metric in zip(axes, metrics, strict=False):
        _draw_panel(axis, comparison[comparison["metric"] == metric])
        axis.set_title(metric, fontsize=10, parse_math=False)
    for axis in axes[len(metrics) :]:
        axis.remove()
    for text in axes[0].legend(fontsize=8, frameon=False).get_texts():
        text.set_parse_math(False)
    return figure


def _compared(runs: pd.DataFrame, first: str, name: str, metric: str) -> dict[str, float]:
    """Mean and spread of an initialization, and what they are against the first one."""
    reference, values = (
        runs.loc[runs["initialization"] == each, metric].dropna().astype("float64")
        for each in (first, name)
    )
    is_other = name != first
    differences = _differences(runs, first, name, metric) if is_other else np.empty(0)
    return {
        "n": len(values),
        "mean": values.mean(),
        "sd": values.std(),
        "difference": values.mean() - reference.mean() if is_other else math.nan,
        "p_value": welch_p_value(reference, values) if is_other else math.nan,
        "pairs": len(differences),
        "higher": int((differences > 0).sum()),
        "paired_p_value": paired_p_value(differences),
    }


def _differences(runs: pd.DataFrame, first: str, second: str, metric: str) -> NDArray[np.float64]:
    """What the runs of an initialization have more than their partners of the same seed and fold."""
    keys = [name for name in ("seed", "fold") if name in runs and runs[name].notna().all()]
    if not keys:
        return np.empty(0)
    values = runs[runs["initialization"].isin([first, second])].pivot_table(
        metric, keys, "initialization"
    )
    return (
        (values[second] - values[first]).dropna().to_numpy()
        if {first, second} <= {*values}
        else np.empty(0)
    )


def _row(experiment: Experiment, outcome: Outcome, metrics: Sequence[str]) -> dict[str, Any]:
    """The row of a run; None where there is nothing to say."""
    run = outcome.run
    facts = (
        run.name,
        run.initialization,
        run.label_fraction,
        run.fold,
        run.seed,
        outcome.status,
        outcome.reason,
    )
    row: dict[str, Any] = dict(zip(_FACTS, facts, strict=True))
    if outcome.status == "failed":
        return row
    values = read_metrics(experiment.folder(run))
    row.update(
        {name: value for name, value in values.items() if _is_number(value) and name not in _FACTS}
    )
    row.update({name: _nested(values, name) for name in metrics})
    return row


def _draw_panel(axis: Axes, comparison: pd.DataFrame) -> None:
    fractions = comparison["label_fraction"].unique()
    positions = np.arange(len(fractions))
    names = comparison["initialization"].unique()
    for number, name in enumerate(names):
        chosen = comparison[comparison["initialization"] == name]
        # beside one another, so that bars of equal height do not hide each other
        shifted = positions + 0.06 * (number - (len(names) - 1) / 2)
        spread = chosen["sd"].fillna(0).to_numpy()
        axis.errorbar(
            shifted, chosen["mean"], yerr=spread, marker="o", markersize=4, capsize=3, label=name
        )
    axis.set_xticks(positions, [_fraction_title(fraction, short=True) for fraction in fractions])
    axis.set_xlim(-0.5, len(fractions) - 0.5)
    axis.set_xlabel("labels used in training")
    axis.grid(color="0.9", linewidth=0.6)
    axis.set_axisbelow(True)


def _cell(row: Mapping[str, Any], is_reference: bool) -> str:
    if not row["n"]:
        return "-"
    # radial errors are small fractions of the side
    decimals = 1 if abs(row["mean"]) >= 10 else 3 if abs(row["mean"]) >= 0.1 else 4
    spread = "" if math.isnan(row["sd"]) else f" ± {format_number(row['sd'], decimals)}"
    text = f"{format_number(row['mean'], decimals)}{spread} ({row['n']})"
    if is_reference:
        return text
    paired = f", {row['higher']} of {row['pairs']} higher" if row["pairs"] else ""
    of_patients = row.get("patient_p_value", math.nan)
    by_patient = "" if math.isnan(of_patients) else f", by patient {_p_text(of_patients)}"
    return f"{text}, {_p_text(row['p_value'])}{paired}{by_patient}"


def _p_text(p_value: float) -> str:
    return "p < 0.001" if p_value < 0.001 else f"p = {format_number(p_value)}"


def _fraction_title(fraction: float, short: bool = False) -> str:
    if math.isnan(fraction):
        return "as in the config" if short else "labels as in the config"
    return f"{100 * fraction:g} %" + ("" if short else " of the labels")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _nested(metrics: Mapping[str, Any], name: str) -> float:
    """The metric of this name, in dictionaries of dictionaries; NaN where there is none."""
    value: Any = metrics
    for key in [name] if name in metrics else name.split(_SEPARATOR):
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if _is_number(value) else math.nan
