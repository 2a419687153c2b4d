# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What all studies of the report have in common: how they are called, and what they find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pandas as pd
from matplotlib.figure import Figure

from monai_afire.analysis.images.study_images import StudyImages
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["Study", "StudyResult"]


@dataclass(frozen=True)
class StudyResult:
    """
    What a study found, ready for a report.

    Args:
        title: a few words.
        question: one paragraph: what is asked, how it is measured, what a good and what a chance figure is.
        table: a row for each encoder, its name in the index, a column for each figure of merit.
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
        """
