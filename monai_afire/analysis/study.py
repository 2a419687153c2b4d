# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The protocol of a study, its result, and the exception for images that a study cannot be made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pandas as pd
from matplotlib.figure import Figure

from monai_afire.analysis.images.study_images import StudyImages
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["NothingToCompareError", "Study", "StudyResult"]


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


class Study(Protocol):
    """
    A question that is asked of any number of encoders, side by side.

    Attributes:
        needs: fields of :class:`StudyImages` without which the study cannot be made.
    """

    needs: Sequence[str]

    def __call__(self, encoders: Mapping[str, RadiographEncoder], images: StudyImages) -> StudyResult:
        """
        Make the study.

        Args:
            encoders: by the names that the report shows.
            images: what to look at; the fields in ``needs`` are not None.

        Returns:
            Tables and figures.

        Raises:
            NothingToCompareError: when the images have the fields, but leave nothing to compare.
        """
