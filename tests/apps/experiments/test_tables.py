# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, special, stats

from monai_afire.apps.experiments.experiment_tables import (
    comparison_figure,
    comparison_markdown,
    comparison_table,
    metric_names,
    paired_p_value,
    welch_p_value,
)
from monai_afire.apps.experiments.plan import ExperimentError
from monai_afire.visualize.figures import figure_to_array


def naive_welch(first: Sequence[float], second: Sequence[float]) -> float:
    """Welch's formulas, and the area under both tails of Student's density."""
    n, m = len(first), len(second)
    mean_1, mean_2 = sum(first) / n, sum(second) / m
    part_1 = sum((x - mean_1) ** 2 for x in first) / (n - 1) / n
    part_2 = sum((x - mean_2) ** 2 for x in second) / (m - 1) / m
    t = abs(mean_1 - mean_2) / math.sqrt(part_1 + part_2)
    freedom = (part_1 + part_2) ** 2 / (part_1**2 / (n - 1) + part_2**2 / (m - 1))
    log_scale = (
        special.gammaln((freedom + 1) / 2)
        - special.gammaln(freedom / 2)
        - math.log(freedom * math.pi) / 2
    )
    density = lambda x: math.exp(log_scale - (freedom + 1) / 2 * math.log1p(x * x / freedom))  # noqa: E731
    return 1 - 2 * integrate.quad(density, 0, t)[0]


@pytest.mark.parametrize("seed", range(10))
def test_p_values_by_hand(seed: int) -> None:
    generator = np.random.default_rng(seed)
    first = generator.normal(0.7, 0.01, generator.integers(2, 6)).tolist()
    second = generator.normal(0.71, 0.05, generator.integers(2, 6)).tolist()
    assert welch_p_value(first, second) == pytest.approx(naive_welch(first, second), abs=1e-7)
    assert welch_p_value(second, first) == pytest.approx(welch_p_value(first, second))


@pytest.mark.parametrize(
    ("first", "second"), [([1.0], [1.0, 2.0]), ([], []), ([1.0, 1.0], [2.0, 2.0]), ([1, 2], [1])]
)
def test_no_p_value_where_no_test_is_possible(
    first: Sequence[float], second: Sequence[float]
) -> None:
    assert math.isnan(welch_p_value(first, second))


@pytest.mark.filterwarnings("ignore:Precision loss occurred")
def test_one_side_that_does_not_vary_is_no_obstacle() -> None:
    assert welch_p_value([1.0, 1.0, 1.0], [2.0, 2.1, 1.9]) == pytest.approx(
        naive_welch([1.0] * 3, [2.0, 2.1, 1.9])
    )


def runs_of(values: Mapping[tuple[str, float], Sequence[float | None]]) -> pd.DataFrame:
    """Runs from ``{(initialization, fraction): [value per seed]}``."""
    rows = [
        {
            "initialization": name,
            "label_fraction": fraction,
            "seed": seed,
            "status": "done",
            "mean_auc": value,
        }
        for (name, fraction), sample in values.items()
        for seed, value in enumerate(sample)
    ]
    return pd.DataFrame(rows)


VALUES: dict[tuple[str, float], Sequence[float | None]] = {
    ("scratch", 0.01): [0.5, 0.6, 0.7],
    ("zeta", 0.01): [0.8, 0.9, 1.0],
    ("afire", 0.01): [0.7, None, None],
    ("scratch", 1.0): [0.7, 0.7, 0.7],
    ("zeta", 1.0): [0.8, 0.8, 0.8],
    ("afire", 1.0): [None, None, None],
}


def test_comparison_against_the_first_one() -> None:
    table = comparison_table(runs_of(VALUES), ["mean_auc"]).set_index(
        ["initialization", "label_fraction"]
    )
    assert list(table.index)[:3] == [("scratch", 0.01), ("zeta", 0.01), ("afire", 0.01)]
    assert table["n"].tolist() == [3, 3, 1, 3, 3, 0]
    np.testing.assert_allclose(table["mean"], [0.6, 0.9, 0.7, 0.7, 0.8, np.nan])
    np.testing.assert_allclose(table["sd"], [0.1, 0.1, np.nan, 0, 0, np.nan], atol=1e-12)
    np.testing.assert_allclose(table["difference"], [np.nan, 0.3, 0.1, np.nan, 0.1, np.nan])
    expected = naive_welch([0.5, 0.6, 0.7], [0.8, 0.9, 1.0])
    np.testing.assert_allclose(table["p_value"], [np.nan, expected, *[np.nan] * 4], rtol=1e-6)


def test_markdown() -> None:
    text = comparison_markdown(comparison_table(runs_of(VALUES), ["mean_auc"]))
    assert text.splitlines()[:7] == [
        "## mean_auc",
        "",
        "| initialization | 1 % of the labels | 100 % of the labels |",
        "| --- | --- | --- |",
        "| scratch | 0.600 ± 0.100 (3) | 0.700 ± 0.000 (3) |",
        "| zeta | 0.900 ± 0.100 (3), p = 0.021, 3 of 3 higher | 0.800 ± 0.000 (3), p = n/a, 3 of 3 higher |",
        "| afire | 0.700 (1), p = n/a, 1 of 1 higher | - |",
    ]
    assert "Welch t-test against scratch" in text


def test_large_numbers_and_small_p_values() -> None:
    table = runs_of({("a", 1.0): [120.0, 120.1, 120.2], ("b", 1.0): [10.0, 10.1, 10.2]})
    text = comparison_markdown(comparison_table(table, ["mean_auc"]))
    assert "| b | 10.1 ± 0.1 (3), p < 0.001, 0 of 3 higher |" in text


def test_without_a_fraction() -> None:
    table = runs_of({("a", None): [0.5, 0.7], ("b", None): [0.6, 0.9]}).astype(
        {"label_fraction": float}
    )
    comparison = comparison_table(table, ["mean_auc"])
    assert comparison["n"].tolist() == [2, 2]
    assert "| labels as in the config |" in comparison_markdown(comparison)
    assert figure_to_array(comparison_figure(comparison)).ndim == 3


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.0152, 0.0148], "0.0150 ± 0.0003"),  # a radial error, a fraction of the side
        ([0.52, 0.48], "0.500 ± 0.028"),
        ([12.0, 14.0], "13.0 ± 1.4"),
    ],
)
def test_decimals_follow_the_size_of_the_value(values: list[float], text: str) -> None:
    runs = pd.DataFrame({"initialization": "scratch", "label_fraction": 1.0, "error": values})
    assert f"| scratch | {text} (2) |" in comparison_markdown(comparison_table(runs, ["error"]))


@pytest.mark.filterwarnings("ignore:Precision loss occurred")
def test_figure_has_a_panel_per_metric_and_a_line_per_initialization() -> None:
    table = runs_of(VALUES)
    table["$a_metric$"] = table["mean_auc"] * 2
    table = pd.concat([table, table.assign(initialization="a$_name$")])
    figure = comparison_figure(comparison_table(table, ["mean_auc", "$a_metric$"]))
    assert [axis.get_title() for axis in figure.axes] == ["mean_auc", "$a_metric$"]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == [
        "scratch",
        "zeta",
        "afire",
        "a$_name$",
    ]
    scratch = figure.axes[0].containers[0]
    np.testing.assert_allclose(scratch.lines[0].get_ydata().astype(float), [0.6, 0.7])
    bars = scratch.lines[2][0].get_segments()
    np.testing.assert_allclose(bars[0][:, 1], [0.5, 0.7])
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["1 %", "100 %"]
    figure_to_array(figure)


def test_metrics_are_the_numbers_that_are_no_counts() -> None:
    table = runs_of({("a", 1.0): [1.0, None]}).assign(
        num_images=pd.array([12, None], dtype="Int64"), empty=math.nan
    )
    assert metric_names(table) == ["mean_auc"]
    assert metric_names(table, ["num_images"]) == ["num_images"]
    with pytest.raises(
        ExperimentError, match=r"--metrics mean_dice: not in .* there are mean_auc, num_images"
    ):
        metric_names(table, ["mean_auc", "mean_dice"])


def test_partners_of_a_seed_and_a_fold() -> None:
    rows = [
        ("a", 0, 0.5),
        ("a", 1, 0.6),
        ("a", 2, 0.7),
        ("b", 2, 0.9),
        ("b", 0, 0.4),
        ("b", 1, 0.65),
        ("b", 3, 0.0),
    ]
    runs = pd.DataFrame(rows, columns=["initialization", "seed", "auc"]).assign(
        label_fraction=1.0, fold=None
    )
    row = comparison_table(runs, ["auc"]).iloc[1]
    assert (row["pairs"], row["higher"]) == (3, 2)
    assert row["paired_p_value"] == pytest.approx(
        stats.ttest_rel([0.4, 0.65, 0.9], [0.5, 0.6, 0.7]).pvalue
    )
    assert "2 of 3 higher" in comparison_markdown(comparison_table(runs, ["auc"]))
    folds = pd.concat(
        [
            runs.assign(fold=0),
            runs.assign(fold=1, auc=runs["auc"] + 0.5 * (runs["initialization"] == "b")),
        ]
    )
    row = comparison_table(folds, ["auc"]).iloc[1]
    assert (row["pairs"], row["higher"]) == (6, 5)


def test_no_paired_test_without_variation() -> None:
    assert math.isnan(paired_p_value([0.1, 0.1]))
    assert math.isnan(paired_p_value([]))
