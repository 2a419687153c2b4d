# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What the audit measures of one file: its bytes, its header and its picture."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from monai.transforms import Transform
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import Dataset
from scipy import ndimage
from scipy.sparse.csgraph import connected_components

from monai_afire.transforms import LoadRadiographd
from monai_afire.transforms.radiograph_files import RadiographWarning
from monai_afire.transforms.radiograph_header import (
    SCANNER_ELEMENTS,
    frontal_view,
    header_of,
    other_than_frontal_chest,
    scanner_of,
)

SMALL = 64  # side of the picture that networks and the search for duplicates see
IDENTIFYING = (
    "PatientName",
    "PatientBirthDate",
    "PatientBirthTime",
    "PatientAddress",
    "PatientTelephoneNumbers",
    "OtherPatientIDs",
    "OtherPatientNames",
    "PatientMotherBirthName",
    "MedicalRecordLocator",
    "ReferringPhysicianName",
    "PerformingPhysicianName",
    "OperatorsName",
    "InstitutionName",
    "InstitutionAddress",
    "AccessionNumber",
)
_TEXT_SIDE = 768
_EDGE = 2  # pixels of 64
_UNIFORM = 0.02  # largest spread of a row or column that belongs to a border


class MeasureRadiograph(Transform):
    """
    Replace an item by what the audit measures of its file: plain numbers and texts, and a picture of 64 x 64.

    Nothing of the header but the view, the scanner, the patient's presence and the names of fields leaves this class.

    Example:
        >>> MeasureRadiograph()({"image": "no/such/file.png"})["unreadable"]
        '...
    """

    def __init__(self) -> None:
        self.load = LoadRadiographd("image", rejected_key="unreadable")

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[str, Any]:
        """Measure the file under ``"image"``."""
        path = data["image"]
        with warnings.catch_warnings():
            # blank, in color: the audit counts what matters
            warnings.simplefilter("ignore", RadiographWarning)
            item = self.load({"image": path})
        image = np.asarray(item["image"][0], dtype=np.float32)
        header = header_of(path, (*SCANNER_ELEMENTS, *IDENTIFYING))
        return {
            "unreadable": item["unreadable"].removeprefix(f"{path}: "),
            "digest": "" if item["unreadable"] else content_digest(path),
            "height": image.shape[0],
            "width": image.shape[1],
            **header_facts(header),
            **exposure(image),
            "border": border_share(image),
            "letters": longest_text(image),
            "small": small_picture(image),
        }


def content_digest(path: str) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return sha256(file.read()).hexdigest()


def header_facts(header: Dataset) -> dict[str, str]:
    """
    Scanner, view, objection against it, and names of the identifying elements that are filled.

    Example:
        >>> header = Dataset()
        >>> header.PatientName, header.Manufacturer = "Doe^Jane", "Acme"
        >>> header_facts(header)
        {'scanner': 'Acme', 'view': '', 'other_view': '', 'identifying': 'PatientName'}
    """
    filled = [keyword for keyword in IDENTIFYING if str(header.get(keyword) or "").strip()]
    return {
        "scanner": scanner_of(header),
        "view": frontal_view(header),
        "other_view": other_than_frontal_chest(header),
        "identifying": ", ".join(filled),
    }


def exposure(image: NDArray[np.float32]) -> dict[str, float]:
    """
    Range, brightness and clipping of a picture ``(H, W)`` in [0, 1].

    Returns:
        "spread" from the 1 % to the 99 % quantile, "brightness" (median), "contrast" (between quartiles), "white",
        share of the pixels at the largest value, and "black_inside", share at the smallest value in the middle, half as
        high and wide: dark air around the patient is not counted.
    """
    middle = image[tuple(slice(side // 4, side - side // 4) for side in image.shape)]
    low, first, median, third, high = np.quantile(image, (0.01, 0.25, 0.5, 0.75, 0.99))
    level = 1 / 255
    return {
        "spread": float(high - low),
        "brightness": float(median),
        "contrast": float(third - first),
        "white": float((image >= image.max() - level).mean()),
        "black_inside": float((middle <= image.min() + level).mean()),
    }


def border_share(image: NDArray[np.float32]) -> float:
    """
    Share of the area outside of the box without uniform rows and columns at the edges.

    Example:
        >>> round(border_share(np.pad(np.random.default_rng(0).random((80, 80), np.float32), 10)), 2)
        0.36
    """
    kept = 1.0
    for axis in (0, 1):
        filled = np.flatnonzero(image.std(axis) > _UNIFORM)
        kept *= (filled[-1] - filled[0] + 1) / image.shape[1 - axis] if len(filled) else 1.0
    return float(1 - kept)


def lung_facts(lungs: torch.Tensor) -> dict[str, list[float]]:
    """
    What cut lungs look like, from masks of lungs ``(B, H, W)``.

    Returns:
        "lungs_at_edge", how far they touch the upper or lower edge, as a fraction of the root of their area; and
        "second_lung", the area of the second largest part as a fraction of the largest's, small where one is missing.
    """
    touching = torch.stack(
        [lungs[:, part].any(1).sum(1) for part in (slice(_EDGE), slice(-_EDGE, None))]
    ).amax(0)
    return {
        "lungs_at_edge": (touching / lungs.sum((1, 2)).clamp_min(1).sqrt()).tolist(),
        "second_lung": [_second_part(mask) for mask in lungs.numpy()],
    }


def _second_part(mask: NDArray[np.bool_]) -> float:
    """Area of the second largest connected part, relative to the largest."""
    areas = np.sort(np.bincount(ndimage.label(mask)[0].ravel(), minlength=3)[1:])
    return float(areas[-2] / max(areas[-1], 1))


def longest_text(image: NDArray[np.float32]) -> int:
    """
    Number of letters in the longest line of burnt-in text.

    Letters are parts much brighter or darker than what surrounds them, of similar height, in a row.
    """
    if max(image.shape) > _TEXT_SIDE:
        factor = _TEXT_SIDE / max(image.shape)
        size = [max(1, round(side * factor)) for side in image.shape[::-1]]
        image = np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BOX))
    values = image - image.min()
    values /= max(float(values.max()), 1e-6)
    window = max(7, max(values.shape) // 40)
    return max(_letters_in_line(values, window), _letters_in_line(1 - values, window))


def _letters_in_line(values: NDArray[np.float32], window: int) -> int:
    """Letters in the longest line of bright text."""
    marks = (values > 0.75) & (values - ndimage.grey_opening(values, size=window) > 0.3)
    parts, _ = ndimage.label(marks, structure=np.ones((3, 3)))
    boxes = np.array(
        [(r.start, r.stop, c.start, c.stop) for r, c in ndimage.find_objects(parts)], dtype=float
    )
    boxes = boxes.reshape(-1, 4)
    height, width = boxes[:, 1] - boxes[:, 0], boxes[:, 3] - boxes[:, 2]
    side = max(values.shape)
    likely = (
        (height >= 5) & (height < 0.06 * side) & (width <= 1.5 * height) & (width >= 0.1 * height)
    )
    boxes, height = boxes[likely][:500], height[likely][:500]
    if len(boxes) < 2:
        return len(boxes)
    tallest = np.maximum(height[:, None], height)
    alike = np.minimum(height[:, None], height) > 0.6 * tallest
    aligned = np.abs(boxes[:, None, 1] - boxes[:, 1]) < 0.3 * tallest
    gap = boxes[:, None, 2] - boxes[:, 3]  # of a letter from the one before it
    near = (gap > -0.3 * tallest) & (gap < 0.9 * tallest)
    _, line = connected_components(alike & aligned & near, directed=False)
    return int(np.bincount(line).max())


def small_picture(image: NDArray[np.float32]) -> torch.Tensor:
    """``(1, 64, 64)`` in [0, 1], stretched from its smallest to its largest number."""
    small = torch.nn.functional.interpolate(
        torch.from_numpy(image.copy())[None, None], (SMALL, SMALL), mode="area"
    )[0]
    low, high = small.aminmax()
    return (small - low) / (high - low).clamp_min(1e-6)
