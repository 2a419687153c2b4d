# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The phantom as files: pictures and their masks, with a MONAI datalist."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from monai.utils import ensure_tuple
from PIL import Image

from monai_afire.data.datalist.drawn_images import drawn_mark
from monai_afire.data.phantom.anatomy import LANDMARK_NAMES, ORGAN_NAMES
from monai_afire.data.phantom.lesions import LESION_KINDS
from monai_afire.data.phantom.phantom import ChestPhantom
from monai_afire.data.phantom.phantom_cohort import SECTIONS, Cohort
from monai_afire.utils.files import write_text

_NAME = "chest phantom"  # by which its datalist is recognized
_NUM_PATIENTS = {"training": 16, "validation": 4, "test": 8}


def export_phantom(
    out_dir: str | os.PathLike[str],
    num_patients: Mapping[str, int] | None = None,
    image_size: int | Sequence[int] = 224,
    abnormal_fraction: float | Mapping[str, float] = 0.5,
    seed: int = 0,
    progress: bool = True,
) -> Path:
    """Writes phantom radiographs as 8-bit PNG files with masks and a MONAI datalist in JSON.

    The files hold the same patients and gray levels as `ChestPhantomDataset` with the same arguments, and an entry of
    the datalist has the same keys as one of its items: ``image``, ``lesion_truth`` (paths relative to ``out_dir``;
    masks hold 0 and 255), ``organs`` (five paths, in the order of ``ORGAN_NAMES``), ``label`` (multi-label),
    ``abnormal``, ``landmarks`` (row, column), ``boxes`` (x, y, width, height; one for each lesion, without padding),
    ``box_findings`` (kind of each box), ``patient_id``, ``sex`` and ``pixel_size``.

    Args:
        out_dir: folder to write to, made if it is missing; files of an earlier phantom are replaced.
        num_patients: number of patients by section, 16, 4 and 8 if None; a section that is not named is left out.
        image_size: rows and columns of the pictures, which are square, with the longer side of two numbers.
        abnormal_fraction: share of patients with lesions, for all sections or by section.
        seed: seed of all sections.
        progress: whether to show progress bars.

    Returns:
        Path of the datalist, ``out_dir/datalist.json``.

    Raises:
        ValueError: when an argument has a value that it cannot have.
        FileExistsError: when the folder holds a ``datalist.json`` that is not a phantom's.

    Example:
        >>> import tempfile
        >>> from monai.data import load_decathlon_datalist
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = export_phantom(folder, {"test": 2}, image_size=64, progress=False)
        ...     items = load_decathlon_datalist(path, is_segmentation=False, data_list_key="test")
        >>> [item["abnormal"] for item in items]
        [0, 1]
    """
    folder = Path(out_dir)
    _refuse_foreign(folder / "datalist.json")
    size = max(ensure_tuple(image_size))
    cohorts = []
    for section, number in (_NUM_PATIENTS if num_patients is None else num_patients).items():
        share = (
            abnormal_fraction.get(section, 0.5)
            if isinstance(abnormal_fraction, Mapping)
            else abnormal_fraction
        )
        cohorts.append(Cohort(section, number, size, share, seed))
    lists: dict[str, list[dict[str, Any]]] = {}
    for cohort in sorted(cohorts, key=lambda cohort: SECTIONS.index(cohort.section)):
        lists[cohort.section] = [
            _write_patient(folder, cohort.patient_id(index), phantom)
            for index, phantom in enumerate(cohort.draw_all(progress))
        ]
    return _write_list(folder, lists)


def _refuse_foreign(path: Path) -> None:
    """Keep a datalist that somebody else made from being replaced."""
    if not path.exists():
        return
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or content.get("name") != _NAME:
        remedy = (
            "give the phantom another folder (items::phantom::folder), or use the list (datalist)"
        )
        raise FileExistsError(
            f"{path} is not the list of a phantom, which would replace it: {remedy}"
        )


def _save(folder: Path, name: str, array: np.ndarray) -> str:
    """Write a picture; returns the name with its extension."""
    path = folder / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array.astype(np.uint8)).save(path, format="PNG", pnginfo=drawn_mark())
    return path.relative_to(folder).as_posix()


def _write_patient(folder: Path, patient_id: str, chest: ChestPhantom) -> dict[str, Any]:
    """Write one patient's files and return the entry of the datalist."""
    return {
        "image": _save(folder, f"images/{patient_id}", np.round(chest.image[0] * 255.0)),
        "label": chest.label.astype(int).tolist(),
        "abnormal": int(chest.label.any()),
        "organs": [
            _save(folder, f"organs/{patient_id}_{name}", mask * 255)
            for name, mask in zip(ORGAN_NAMES, chest.organs, strict=True)
        ],
        "lesion_truth": _save(folder, f"lesions/{patient_id}", chest.lesion_mask[0] * 255),
        "landmarks": [[round(float(value), 2) for value in point] for point in chest.landmarks],
        "boxes": [list(lesion.box) for lesion in chest.lesions],
        "box_findings": [lesion.kind for lesion in chest.lesions],
        "patient_id": patient_id,
        "sex": chest.patient.sex,
        "pixel_size": round(chest.pixel_size, 4),
    }


def _write_list(folder: Path, lists: Mapping[str, list[dict[str, Any]]]) -> Path:
    content: dict[str, Any] = {
        "name": _NAME,
        "description": "Procedurally drawn chest radiographs with organ masks, landmarks and lesions.",
        "finding_names": list(LESION_KINDS),
        "organ_names": list(ORGAN_NAMES),
        "landmark_names": list(LANDMARK_NAMES),
        "box_mode": "xywh",
        "tensorImageSize": "2D",
        "modality": {"0": "CR/DX"},
    }
    content.update({f"num{section.capitalize()}": len(items) for section, items in lists.items()})
    content.update(lists)
    path = folder / "datalist.json"
    write_text(path, json.dumps(content, indent=1))
    return path
