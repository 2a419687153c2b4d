# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The data sets of the phantom: radiographs, which are kept on disk, and volumes, which are drawn into memory."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.data import CacheDataset, MetaTensor
from monai.transforms import Compose, Transform
from monai.utils import ensure_tuple

from monai_afire.data.phantom.anatomy import LANDMARK_NAMES, ORGAN_NAMES
from monai_afire.data.phantom.cohort import MAX_LESIONS, Cohort, VolumeCohort, as_kinds
from monai_afire.data.phantom.lesions import LESION_KINDS
from monai_afire.data.phantom.phantom import ChestPhantom
from monai_afire.utils.files import atomic_path

# Raise it with every change of the pictures: caches of other versions are then drawn again.
PHANTOM_VERSION = 1

_DEFAULT_NUM_PATIENTS = {"training": 1000, "validation": 100, "test": 200}

_LESION_BIT = len(ORGAN_NAMES)


class ChestPhantomDataset(CacheDataset):
    """Procedurally drawn frontal chest radiographs with complete ground truth, a data set that needs no download.

    The pictures of a section are drawn when first asked for (about 20 per second of one core at 224²) and kept in one
    compressed file under ``root_dir``. The file's name and content carry a fingerprint of the arguments and of the
    version of the drawing, so that a change of either draws anew; a damaged or foreign file is never trusted. Sections
    share no patient.

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
        num_patients: number of patients of this section; 1000, 100 and 200 for the three sections if None.
        image_size: rows and columns of the pictures.
        abnormal_fraction: share of patients with lesions; 0 for the pre-training on normal pictures.
        lesion_kinds: kinds of lesions that occur.
        seed: seed of all sections.
        regenerate: draw anew even if the cache is there.
        num_processes: processes that draw; the default 1 draws in this process, which is safe everywhere. More are
            started afresh ("spawn"): a script then needs its ``if __name__ == "__main__":``.
        progress: whether to show progress bars.
        cache_rate: share of the items whose transformed form is kept in memory; 0 by default, as unpacking an item
            takes less than a millisecond.
        **cache: other arguments of `monai.data.CacheDataset`.

    Raises:
        ValueError: when an argument has a value that it cannot have.
        NotADirectoryError: when ``root_dir`` is a file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dataset = ChestPhantomDataset(folder, "validation", num_patients=2, image_size=64, progress=False)
        >>> len(dataset), dataset[0]["image"].shape, [item["abnormal"] for item in dataset]
        (2, (1, 64, 64), [0, 1])
    """

    def __init__(
        self,
        root_dir: str | os.PathLike[str],
        section: str,
        transform: Sequence[Callable] | Callable = (),
        num_patients: int | None = None,
        image_size: int = 224,
        abnormal_fraction: float = 0.5,
        lesion_kinds: Sequence[str] = LESION_KINDS,
        seed: int = 0,
        regenerate: bool = False,
        num_processes: int = 1,
        progress: bool = True,
        cache_rate: float = 0.0,
        **cache: Any,
    ) -> None:
        if num_patients is None:
            num_patients = _DEFAULT_NUM_PATIENTS.get(section, 1)
        self.cohort = Cohort(section, num_patients, image_size, abnormal_fraction, as_kinds(lesion_kinds), seed)
        self.cache_file = _cache_file(Path(root_dir), self.cohort)
        arrays = None if regenerate else _read(self.cache_file, self.cohort)
        if arrays is None:
            arrays = _pack(self.cohort, num_processes, progress)
            with atomic_path(self.cache_file) as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **arrays)
        data = [
            {"patient_id": self.cohort.patient_id(index), **{key: arrays[key][index] for key in _layout(self.cohort)}}
            for index in range(num_patients)
        ]
        steps = Compose([_Unpack(), *ensure_tuple(transform)]).flatten()
        super().__init__(data, steps, cache_rate=cache_rate, progress=progress, **cache)

    @property
    def section(self) -> str:
        """The section that this data set holds."""
        return self.cohort.section

    def get_num_classes(self) -> int:
        """Number of kinds of lesions, the length of an item's label."""
        return len(LESION_KINDS)


class _Unpack(Transform):
    """Turns the packed arrays of one patient into the item that is documented in `ChestPhantomDataset`."""

    def __call__(self, data: Mapping[str, Any]) -> dict[str, Any]:
        bits = np.arange(_LESION_BIT + 1, dtype=np.uint8)[:, None, None]
        masks = (data["masks"][None] >> bits) & np.uint8(1)
        return {
            "image": data["image"][None].astype(np.float32) / np.float32(255.0),
            "label": data["label"].astype(np.float32),
            "abnormal": int(data["label"].any()),
            "organs": masks[:_LESION_BIT],
            "lesion_truth": masks[_LESION_BIT:],
            "landmarks": data["landmarks"].copy(),
            "boxes": data["boxes"].astype(np.float32),
            "box_kinds": data["box_kinds"].astype(np.int64),
            "patient_id": data["patient_id"],
            "sex": "F" if data["female"] else "M",
            "pixel_size": float(data["pixel_size"]),
        }


def _layout(cohort: Cohort) -> dict[str, tuple[tuple[int, ...], type]]:
    """Shape and type of each array of the cache, one row for each patient."""
    number, size = cohort.num_patients, cohort.image_size
    return {
        "image": ((number, size, size), np.uint8),
        "masks": ((number, size, size), np.uint8),
        "label": ((number, len(LESION_KINDS)), np.uint8),
        "landmarks": ((number, len(LANDMARK_NAMES), 2), np.float32),
        "boxes": ((number, MAX_LESIONS, 4), np.int16),
        "box_kinds": ((number, MAX_LESIONS), np.int8),
        "female": ((number,), np.uint8),
        "pixel_size": ((number,), np.float32),
    }


def _fingerprint(cohort: Cohort) -> str:
    return json.dumps({"version": PHANTOM_VERSION, **asdict(cohort)}, sort_keys=True)


def _cache_file(root: Path, cohort: Cohort) -> Path:
    if root.exists() and not root.is_dir():
        raise NotADirectoryError(f"root_dir {root} is a file: give a folder in which the drawn pictures can be kept.")
    digest = hashlib.sha256(_fingerprint(cohort).encode()).hexdigest()[:12]
    return root / f"chest_phantom_v{PHANTOM_VERSION}_{cohort.section}_{digest}.npz"


def _pack(cohort: Cohort, num_processes: int, progress: bool) -> dict[str, np.ndarray]:
    """Draws all patients of a cohort into the arrays of the cache."""
    arrays: dict[str, np.ndarray] = {key: np.zeros(shape, dtype) for key, (shape, dtype) in _layout(cohort).items()}
    arrays["box_kinds"] -= 1
    for index, phantom in enumerate(cohort.draw_all(num_processes, progress)):
        _pack_one(arrays, index, phantom)
    return {**arrays, "fingerprint": np.array(_fingerprint(cohort))}


def _pack_one(arrays: dict[str, np.ndarray], index: int, phantom: ChestPhantom) -> None:
    arrays["image"][index] = np.round(phantom.image[0] * 255.0)
    for bit, mask in enumerate([*phantom.organs, phantom.lesion_mask[0]]):
        arrays["masks"][index] |= mask << np.uint8(bit)
    arrays["label"][index] = phantom.label
    arrays["landmarks"][index] = phantom.landmarks
    for number, lesion in enumerate(phantom.lesions):
        arrays["boxes"][index, number] = lesion.box
        arrays["box_kinds"][index, number] = LESION_KINDS.index(lesion.kind)
    arrays["female"][index] = phantom.patient.sex == "F"
    arrays["pixel_size"][index] = phantom.pixel_size


def _read(path: Path, cohort: Cohort) -> dict[str, np.ndarray] | None:
    """The arrays of a cache file, or None if there is no file or it is not the complete cache of this cohort."""
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        if str(arrays["fingerprint"]) != _fingerprint(cohort):
            raise ValueError("it was drawn with other arguments")
        for key, (shape, dtype) in _layout(cohort).items():
            if arrays[key].shape != shape or arrays[key].dtype != dtype:
                raise ValueError(f"its array {key!r} is {arrays[key].dtype} {arrays[key].shape}, not {dtype} {shape}")
    except Exception as error:  # a damaged archive can raise anything
        warnings.warn(f"{path} is not a complete cache of this data set ({error}): drawing it again.", stacklevel=3)
        return None
    return arrays


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
        steps = Compose([_Draw(self.cohort), *ensure_tuple(transform)]).flatten()
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
