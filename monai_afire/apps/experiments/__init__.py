# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Experiments: a bundle repeated over initializations, label fractions, seeds and folds, and compared."""

from __future__ import annotations

from monai_afire.apps.experiments.execution import (
    Outcome,
    execute_runs,
    pretrained_weights,
    read_metrics,
)
from monai_afire.apps.experiments.experiment_tables import (
    comparison_figure,
    comparison_markdown,
    comparison_table,
    metric_names,
    paired_p_value,
    runs_table,
    welch_p_value,
)
from monai_afire.apps.experiments.plan import (
    Experiment,
    ExperimentError,
    Pretraining,
    Run,
    as_initialization,
    plan_runs,
    read_arms,
)

__all__ = [
    "Experiment",
    "ExperimentError",
    "Outcome",
    "Pretraining",
    "Run",
    "as_initialization",
    "comparison_figure",
    "comparison_markdown",
    "comparison_table",
    "execute_runs",
    "metric_names",
    "paired_p_value",
    "plan_runs",
    "pretrained_weights",
    "read_arms",
    "read_metrics",
    "runs_table",
    "welch_p_value",
]
