# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the readers of public sets' label files, and the records that they give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

UNCERTAIN = -1  # of a finding that may be there, and of `abnormal` where the labels do not say


@dataclass(slots=True)
class LabeledImage:
    """
    One image of a set.

    Args:
        name: as the label files call it, for messages.
        file: its path, None if it is not there.
        item: what the datalist says of it: always "label", "abnormal" (0, 1, or -1 if the labels do not say),
            "patient_id" and "view" ("PA", "AP", "frontal", "lateral", "unknown", or as the set has it).
        section: "training", "validation" or "test" of the official split, None if there is no such split.
        draw_mask: makes its mask, a (rows, columns) array of 0 and 1.
    """

    name: str
    file: str | None
    item: dict[str, Any]
    section: str | None = None
    draw_mask: Callable[[], np.ndarray] | None = None


@dataclass
class LabeledSet:
    """
    All images of a set.

    Args:
        images: the images, in the order of the label files.
        header: what the datalist says of the whole: "finding_names" if labels are lists, or "labels", the name of
            each class.
        notes: lines for the person who makes the datalist.
    """

    images: list[LabeledImage]
    header: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def option(default: Any, explanation: str, choices: Sequence[str] | None = None) -> Any:
    """
    Declare an option of a reader, which becomes an option of the command.

    Args:
        default: its value if it is not given; False makes a switch, a tuple an option with several values.
        explanation: a line for ``--help``.
        choices: the values that it can have.
    """
    return field(default=default, metadata={"help": explanation, "choices": choices})


@dataclass
class LabelReader(ABC):
    """
    Reader of one set's label files.

    A new set is a module with a subclass, and a line in :data:`monai_afire.apps.readers.READERS`. Its docstring is the
    help of the command: where the files come from, and how they must lie. Its options are dataclass fields made with
    :func:`option`.

    Attributes:
        title: name of the set.
        reference: what to cite.
        has_split: whether there is an official split.
        has_masks: whether images come with `draw_mask`.
    """

    title: ClassVar[str]
    reference: ClassVar[str]
    has_split: ClassVar[bool] = False
    has_masks: ClassVar[bool] = False

    @abstractmethod
    def read(self, root: Path, labels: Path, official: bool) -> LabeledSet:
        """
        Read the label files and find the images.

        Args:
            root: folder of the images.
            labels: folder of the label files.
            official: whether the official split is wanted.

        Returns:
            All images that the labels list, those that are not on disk included.

        Raises:
            DatalistError: When a label file is missing, malformed or contradicts itself.
        """
