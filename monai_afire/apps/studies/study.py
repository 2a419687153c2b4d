# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The protocol of a study, its result, and the exception for images that a study cannot be made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import pandas as pd
from matplotlib.figure import Figure

from monai_afire.apps.studies.images.study_images import StudyImages
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder

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
        question: one paragraph: what is asked, how it is measured, what a good and what a chance value is.
        table: a row for each encoder, its name in the index, a column for each metric.
        figures: pictures by their captions.
        details: further tables by their captions, e.g. a row per landmark.
    """

    title: str
    question: str
    table: pd.DataFrame
    figures: Mapping[str, Figure] = field(default_factory=dict)
    details: Mapping[str, pd.DataFrame] = field(default_factory=dict)


@dataclass(kw_only=True)
class StudySettings:
    """
    Settings that most studies share.

    Args:
        seed: of what is drawn at random.
        batch_size: pictures in a pass of an encoder.
        progress: whether to show progress bars.
    """

    needs: ClassVar[Sequence[str]] = ()
    seed: int = 0
    batch_size: int = 32
    progress: bool = True

    @property
    def encoding(self) -> dict[str, Any]:
        """Arguments of functions that encode images."""
        return {"batch_size": self.batch_size, "progress": self.progress}


class Study(Protocol):
    """
    A question that is asked of any number of encoders, side by side.

    Attributes:
        needs: fields of :class:`StudyImages` without which the study cannot be made.
    """

    @property
    def needs(self) -> Sequence[str]:
        """Fields of the images without which the study is left out."""

    def __call__(
        self, encoders: Mapping[str, RadiographEncoder], images: StudyImages
    ) -> StudyResult:
        """
        Make the study.

        Args:
            encoders: by the names that the report shows.
            images: of the study; the fields in ``needs`` are not None.

        Returns:
            Tables and figures.

        Raises:
            NothingToCompareError: when the images have the fields, but leave nothing to compare.
        """


def mean_by(
    tables: Mapping[str, pd.DataFrame], item: str, value: str, names: Sequence[str]
) -> pd.DataFrame:
    """
    The mean of a column for each item and encoder.

    Args:
        tables: by the encoders' names, with the columns ``item``, numbers from 0, and ``value``.
        item: what the rows of the result are, e.g. "landmark".
        value: the column to average.
        names: of the items.

    Returns:
        A row per name, a column per encoder; NaN where a table has no such item.

    Example:
        >>> table = pd.DataFrame({"organ": [1, 1], "dice": [0.5, 0.75]})
        >>> mean_by({"mine": table}, "organ", "dice", ["lung", "heart"])["mine"].to_dict()
        {'lung': nan, 'heart': 0.625}
    """
    means = pd.DataFrame(
        {name: table.groupby(item)[value].mean() for name, table in tables.items()}
    )
    return means.reindex(range(len(names))).set_axis(list(names))
