# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Cohort of the phantom data set: the patients of each section and their lesions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from monai_afire.data.phantom.lesions import LESION_KINDS
from monai_afire.data.phantom.phantom import ChestPhantom, check_image_size, draw_chest_phantom

SECTIONS = ("training", "validation", "test")

MAX_LESIONS = 2

_SECOND_LESION_PROBABILITY = 0.25


@dataclass(frozen=True)
class Cohort:
    """The patients of one section: who is abnormal, and with which lesions. All of it follows from the fields."""

    section: str
    num_patients: int
    image_size: Any = 224
    abnormal_fraction: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.section not in SECTIONS:
            raise ValueError(f"section is {self.section!r}: use one of {SECTIONS}.")
        if not 0.0 <= self.abnormal_fraction <= 1.0:
            share = "a share lies between 0 and 1"
            raise ValueError(f"abnormal_fraction is {self.abnormal_fraction}: {share}.")
        check_image_size(self.image_size)

    def patient_id(self, index: int) -> str:
        """Name of a patient, unique over all sections."""
        return f"{self.section}_{index:05d}"

    def _stream(self, index: int, *purpose: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(
            self.seed, spawn_key=(SECTIONS.index(self.section), index, *purpose)
        )

    def lesions(self, index: int) -> tuple[str, ...]:
        """Kinds of the lesions of a patient, none for a normal one."""
        # The small number keeps 0.1 * 30 and its like from falling below the whole number that is meant.
        before, after = (
            math.floor(number * self.abnormal_fraction + 1e-9) for number in (index, index + 1)
        )
        if after == before:
            return ()
        main = LESION_KINDS[before % len(LESION_KINDS)]
        others = [kind for kind in LESION_KINDS if kind != main]
        rng = np.random.default_rng(self._stream(index, 99))
        if rng.random() < _SECOND_LESION_PROBABILITY:
            return main, others[int(rng.integers(len(others)))]
        return (main,)

    def draw(self, index: int) -> ChestPhantom:
        """The radiograph of one patient."""
        return draw_chest_phantom(self._stream(index), self.image_size, self.lesions(index))

    def draw_all(self, progress: bool = True) -> Iterator[ChestPhantom]:
        """The radiographs of all patients in order."""
        yield from tqdm(
            map(self.draw, range(self.num_patients)),
            total=self.num_patients,
            desc=f"drawing {self.section}",
            delay=2.0,
            disable=not progress,
        )
