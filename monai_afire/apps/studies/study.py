# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a study returns, and the tables that studies share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

SAME_PLACE = "same place"
"""Name in tables of the baseline that copies positions and needs no encoder."""


class NothingToCompareError(ValueError):
    """Raised by a study whose question does not arise for these images; a report leaves it out and says why."""


@dataclass(frozen=True)
class StudyResult:
    """
    What a study found, ready for a report.

    Args:
        title: a few words.
        question: what is asked, how it is measured, what a good and what a chance value is.
        table: a row for each encoder, its name in the index, a column for each metric.
        figures: pictures by their captions.
        details: further tables by their captions, e.g. a row per landmark.
    """

    title: str
    question: str
    table: pd.DataFrame
    figures: Mapping[str, Figure] = field(default_factory=dict)
    details: Mapping[str, pd.DataFrame] = field(default_factory=dict)


def metrics_table(metrics: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """A row for each encoder from its metrics by name."""
    return pd.DataFrame.from_dict(dict(metrics), orient="index")


def mean_by(
    tables: Mapping[str, pd.DataFrame], item: str, value: str, names: Sequence[str]
) -> pd.DataFrame:
    """Mean of ``value`` for each item (a row by its name; tables number them from 0) and encoder; NaN for no item."""
    means = {name: table.groupby(item)[value].mean() for name, table in tables.items()}
    return pd.DataFrame(means).reindex(range(len(names))).set_axis(list(names))
