# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Volumes of the phantom as NIfTI files, and as items of a data set."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import torch
from monai.data import CacheDataset, MetaTensor
from monai.transforms import Compose, Transform

from monai_afire.data.phantom.anatomy import ORGAN_NAMES
from monai_afire.data.phantom.cohort import VolumeCohort, as_kinds
from monai_afire.data.phantom.lesions import LESION_KINDS
from monai_afire.data.phantom.volume import ChestVolume

__all__ = ["ChestVolumeDataset", "write_volume"]


class ChestVolumeDataset(CacheDataset):
    """Procedurally drawn CT-like volumes of the chest with complete ground truth, which need no download.

    The patients are those of :class:`ChestPhantomDataset`: the anatomy of the radiographs, given a depth. They are
    drawn into memory; :func:`export_phantom` with ``spatial_dims=3`` keeps them as files.

    An item is a dictionary with the keys of a radiograph's, its axes to the right, the front and up:

    * ``"image"``: float32 ``(1, X, Y, Z)`` in Hounsfield units, a MetaTensor with its affine matrix;
    * ``"label"``: float32 ``(5,)``, 1 for each kind of ``LESION_KINDS`` that is present;
    * ``"abnormal"``: int, 1 if any lesion is present, else 0;
    * ``"organs"``: uint8 ``(5, X, Y, Z)`` of 0 and 1, one channel for each of ``ORGAN_NAMES``;
    * ``"lesion_truth"``: uint8 ``(1, X, Y, Z)`` of 0 and 1;
    * ``"landmarks"``: float32 ``(15, 3)`` in voxels for each of ``LANDMARK_NAMES``;
    * ``"patient_id"``: str; ``"sex"``: "F" or "M"; ``"pixel_size"``: three floats, mm.

    Args:
        section: "training", "validation" or "test", which share no patient.
        transform: transforms of the items.
        num_patients: number of patients.
        image_size: voxels along each axis, one number or three, 16 or more.
        abnormal_fraction: share of patients with lesions.
        lesion_kinds: kinds of lesions that occur.
        seed: seed of all sections.
        progress: whether to show a progress bar.
        **cache: other arguments of `monai.data.CacheDataset`.

    Example:
        >>> dataset = ChestVolumeDataset("test", num_patients=2, image_size=16, progress=False)
        >>> dataset[1]["image"].shape, dataset[1]["organs"].shape, dataset[1]["abnormal"]
        (torch.Size([1, 16, 16, 16]), (5, 16, 16, 16), 1)
    """

    def __init__(
        self,
        section: str,
        transform: Sequence[Callable] | Callable = (),
        num_patients: int = 16,
        image_size: int | Sequence[int] = 64,
        abnormal_fraction: float = 0.5,
        lesion_kinds: Sequence[str] = LESION_KINDS,
        seed: int = 0,
        progress: bool = True,
        **cache: Any,
    ) -> None:
        self.cohort = VolumeCohort(section, num_patients, image_size, abnormal_fraction, as_kinds(lesion_kinds), seed)
        following = transform if isinstance(transform, Sequence) else [transform]
        steps = Compose([_Draw(self.cohort), *following])
        super().__init__(data=list(range(num_patients)), transform=steps, progress=progress, **cache)


class _Draw(Transform):
    """From a patient's number to the item that is documented in `ChestVolumeDataset`."""

    def __init__(self, cohort: VolumeCohort) -> None:
        self.cohort = cohort

    def __call__(self, data: int) -> dict[str, Any]:
        volume = self.cohort.draw(data)
        return {
            "image": MetaTensor(volume.image, affine=torch.as_tensor(volume.affine)),
            "label": volume.label,
            "abnormal": int(volume.label.any()),
            "organs": volume.organs,
            "lesion_truth": volume.lesion_mask,
            "landmarks": volume.landmarks,
            "patient_id": self.cohort.patient_id(data),
            "sex": volume.patient.sex,
            "pixel_size": list(volume.voxel_size),
        }


def write_volume(folder: Path, patient_id: str, volume: ChestVolume) -> dict[str, Any]:
    """
    Write one patient's files.

    Args:
        folder: of the phantom.
        patient_id: name of the patient.
        volume: what to write.

    Returns:
        The entry of the datalist.
    """

    def save(array: np.ndarray, name: str) -> str:
        path = folder / f"{name}.nii.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = nibabel.Nifti1Image(array, volume.affine)
        path.write_bytes(gzip.compress(image.to_bytes(), compresslevel=1, mtime=0))
        return f"{name}.nii.gz"

    return {
        "image": save(np.rint(volume.image[0]).astype(np.int16), f"images/{patient_id}"),
        "label": [int(value) for value in volume.label],
        "abnormal": int(volume.label.any()),
        "organs": [
            save(mask, f"organs/{patient_id}_{name}") for name, mask in zip(ORGAN_NAMES, volume.organs, strict=True)
        ],
        "lesion_truth": save(volume.lesion_mask[0], f"lesions/{patient_id}"),
        "landmarks": [[round(float(value), 2) for value in point] for point in volume.landmarks],
        "boxes": [list(lesion.box) for lesion in volume.lesions],
        "box_findings": [lesion.kind for lesion in volume.lesions],
        "patient_id": patient_id,
        "sex": volume.patient.sex,
        "pixel_size": [round(size, 4) for size in volume.voxel_size],
    }
