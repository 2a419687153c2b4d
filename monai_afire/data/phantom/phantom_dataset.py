# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The data set of the phantom: radiographs, drawn when they are first asked for and kept on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from monai.data import Dataset
from monai.transforms import Transform

from monai_afire.data.cache.disk_cache import DiskCachedDataset
from monai_afire.data.phantom.lesions import LESION_KINDS
from monai_afire.data.phantom.phantom_cohort import MAX_LESIONS, Cohort

# Raise it with every change of the pictures: caches of other versions are then drawn again.
PHANTOM_VERSION = 2


class ChestPhantomDataset(Dataset):
    """Procedurally drawn chest radiographs with complete ground truth: a data set without download.

    An image is drawn when it is first asked for (about 20 radiographs per second of one core at 224²), and kept in a
    file under ``root_dir`` by :class:`monai_afire.data.DiskCachedDataset`: other arguments draw anew, a damaged file
    is never trusted. Sections share no patient.

    An item is a dictionary (``H = W = image_size``):

    * ``"image"``: float32 ``(1, H, W)`` in [0, 1], bright = dense, of 256 gray levels;
    * ``"label"``: float32 ``(5,)``, 1 for each kind of ``LESION_KINDS`` that is present;
    * ``"abnormal"``: int, 1 if any lesion is present, else 0;
    * ``"organs"``: uint8 ``(5, H, W)`` of 0 and 1, one channel for each of ``ORGAN_NAMES``;
    * ``"lesion_truth"``: uint8 ``(1, H, W)`` of 0 and 1;
    * ``"landmarks"``: float32 ``(15, 2)``, ``(row, column)`` in pixels for each of ``LANDMARK_NAMES``;
    * ``"boxes"``: float32 ``(2, 4)``, ``(x, y, width, height)`` in pixels, rows of zeros where there is no lesion;
    * ``"box_kinds"``: int64 ``(2,)``, index into ``LESION_KINDS`` of each box, -1 where there is none;
    * ``"patient_id"``: str; ``"sex"``: "F" or "M"; ``"pixel_size"``: float, mm.

    Args:
        root_dir: folder of the cache, made if it is missing.
        section: "training", "validation" or "test".
        transform: transforms of the items.
        num_patients: number of patients of this section.
        image_size: rows and columns of the radiographs, 32 or more.
        abnormal_fraction: share of patients with lesions; 0 for the pre-training on normal pictures.
        seed: seed of all sections.

    Raises:
        ValueError: when an argument has a value that it cannot have.
        OSError: when ``root_dir`` cannot be written to.

    Example:
        >>> import tempfile
        >>> dataset = ChestPhantomDataset(tempfile.mkdtemp(), "validation", num_patients=2, image_size=64)
        >>> len(dataset), dataset[0]["image"].shape, [item["abnormal"] for item in dataset]
        (2, (1, 64, 64), [0, 1])
    """

    def __init__(
        self,
        root_dir: str | os.PathLike[str],
        section: str,
        transform: Sequence[Callable] | Callable = (),
        num_patients: int = 100,
        image_size: int = 224,
        abnormal_fraction: float = 0.5,
        seed: int = 0,
    ) -> None:
        cohort = Cohort(section, num_patients, image_size, abnormal_fraction, seed)
        numbers = [{"number": number} for number in range(num_patients)]
        drawn = DiskCachedDataset(numbers, _Draw(cohort), root_dir)
        super().__init__(drawn, transform)  # type: ignore[arg-type]  # any data set with a length will do


class _Draw(Transform):
    """From a patient's number to the item that the data set documents."""

    def __init__(self, cohort: Cohort) -> None:
        self.cohort = cohort
        self.version = PHANTOM_VERSION  # one of the settings that a cache on disk depends on

    def __call__(self, data: Mapping[str, Any]) -> dict[str, Any]:
        chest = self.cohort.draw(data["number"])
        item = {
            "label": chest.label,
            "abnormal": int(chest.label.any()),
            "organs": chest.organs,
            "lesion_truth": chest.lesion_mask,
            "landmarks": chest.landmarks,
            "patient_id": self.cohort.patient_id(data["number"]),
            "sex": chest.patient.sex,
        }
        boxes, kinds = np.zeros((MAX_LESIONS, 4), np.float32), np.full(MAX_LESIONS, -1)
        for number, lesion in enumerate(chest.lesions):
            boxes[number], kinds[number] = lesion.box, LESION_KINDS.index(lesion.kind)
        image = np.round(chest.image * 255.0) / np.float32(255.0)
        return {
            "image": image,
            **item,
            "boxes": boxes,
            "box_kinds": kinds,
            "pixel_size": chest.pixel_size,
        }
