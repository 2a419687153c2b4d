# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What the audit measures of files: their bytes, their headers and their pictures."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from monai.data import DataLoader, Dataset
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import Dataset as Header
from scipy import ndimage
from scipy.sparse.csgraph import connected_components
from tqdm.auto import tqdm

from monai_afire.networks.nets.lung_finder import LungFinder
from monai_afire.networks.nets.pose_classifier import QUALITIES, PoseClassifier
from monai_afire.networks.nets.view_classifier import ViewClassifier
from monai_afire.transforms import LoadRadiographd
from monai_afire.transforms.radiograph_files import RadiographWarning
from monai_afire.transforms.radiograph_header import (
    frontal_view,
    header_of,
    other_than_frontal_chest,
    scanner_of,
)
from monai_afire.utils.distributed import all_gather_object, global_rank, share_of, world_size

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
_BATCH = 64
_TEXT_SIDE = 768
_EDGE = 2  # pixels of 64
_UNIFORM = 0.02  # largest spread of a row or column that belongs to a border


def measure_images(
    items: Sequence[Mapping[str, Any]], num_workers: int
) -> tuple[pd.DataFrame, NDArray[np.float16]]:
    """
    Measure images. Each rank measures its share of the batches, and all must call it.

    Args:
        items: with "image", the path of a file.
        num_workers: processes that read files.

    Returns:
        One row per image, see :func:`measure_radiograph`, with the probabilities of the networks; and pictures
        ``(N, 32, 32)`` in [0, 1].
    """
    batches = [items[start : start + _BATCH] for start in range(0, len(items), _BATCH)]
    shares = all_gather_object(list(_measured(share_of(batches), num_workers)))
    measured = [shares[n % world_size()][n // world_size()] for n in range(len(batches))]
    rows, pictures = zip(*measured, strict=True)
    return pd.DataFrame(chain.from_iterable(rows)), torch.cat(pictures).numpy()


@torch.inference_mode()
def _measured(
    batches: Sequence[Sequence[Mapping[str, Any]]], num_workers: int
) -> Iterator[tuple[list[dict[str, Any]], torch.Tensor]]:
    """Rows and small pictures of batches, one of which is in memory at a time."""
    networks = PoseClassifier.released(), LungFinder.released(), ViewClassifier.released()
    data = Dataset([item for batch in batches for item in batch], measure_radiograph)
    loader = DataLoader(data, batch_size=_BATCH, num_workers=num_workers, collate_fn=list)
    for batch in tqdm(loader, "audit", unit="batch", dynamic_ncols=True, disable=global_rank() > 0):
        small = torch.stack([row.pop("small") for row in batch])
        found = _probabilities(small, *networks).to_dict("records")
        pictures = torch.nn.functional.avg_pool2d(small, 2)[:, 0].half()
        yield [{**row, **own} for row, own in zip(batch, found, strict=True)], pictures


def _probabilities(
    small: torch.Tensor, classifier: PoseClassifier, finder: LungFinder, views: ViewClassifier
) -> pd.DataFrame:
    """What the networks say of pictures ``(B, 1, 64, 64)``."""
    poses, qualities = classifier(small)
    poses = poses.softmax(1)
    columns = {
        "rotated": 1 - poses[:, 0] - poses[:, 4],
        "mirrored": poses[:, 4:].sum(1),
        "quarter_turns": poses.argmax(1) % 4,
        "ap": views(small)["ap"],
        **dict(zip(QUALITIES, qualities.sigmoid().T, strict=True)),
    }
    facts = {name: values.numpy() for name, values in columns.items()}
    return pd.DataFrame({**facts, **lung_facts(finder(small)[:, 0] > 0.5)})


def measure_radiograph(item: Mapping[Hashable, Any]) -> dict[str, Any]:
    """
    What the audit measures of the file under "image": plain numbers and texts, and a picture of 64 x 64.

    Of the header it returns nothing but the view, the scanner, the patient's presence and the names of fields.
    """
    path = item["image"]
    with warnings.catch_warnings():
        # blank, in color: the audit counts what matters
        warnings.simplefilter("ignore", RadiographWarning)
        loaded = LoadRadiographd("image", rejected_key="unreadable")({"image": path})
    image = np.asarray(loaded["image"][0], dtype=np.float32)
    unreadable = loaded["unreadable"].removeprefix(f"{path}: ")
    return {
        "unreadable": unreadable,
        "digest": "" if unreadable else sha256(Path(path).read_bytes()).hexdigest(),
        "height": image.shape[0],
        "width": image.shape[1],
        **header_facts(header_of(path, IDENTIFYING)),
        **exposure(image),
        "border": border_share(image),
        "letters": longest_text(image),
        "small": small_picture(image),
    }


def header_facts(header: Header) -> dict[str, str]:
    """Scanner, view, objection against it, and names of the identifying elements that are filled."""
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

    "spread" goes from the 1 % to the 99 % quantile, "contrast" between quartiles. "white" is the share of the pixels at
    the largest value, "black_inside" that at the smallest value in the middle, half as high and wide: dark air around
    the patient is not counted.
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
    """Share of the area outside of the box without uniform rows and columns at the edges."""
    kept = 1.0
    for axis in (0, 1):
        filled = np.flatnonzero(image.std(axis) > _UNIFORM)
        kept *= (filled[-1] - filled[0] + 1) / image.shape[1 - axis] if len(filled) else 1.0
    return float(1 - kept)


def lung_facts(lungs: torch.Tensor) -> dict[str, list[float]]:
    """
    What cut lungs look like, from masks of lungs ``(B, H, W)``.

    "lungs_at_edge" is how far they touch the upper or lower edge, as a fraction of the root of their area;
    "second_lung" the area of the second largest part as a fraction of the largest's, small where one is missing.
    """
    upper, lower = lungs[:, :_EDGE].any(1).sum(1), lungs[:, -_EDGE:].any(1).sum(1)
    touching = torch.maximum(upper, lower)
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
    found = [(r.start, r.stop, c.start, c.stop) for r, c in ndimage.find_objects(parts)]
    boxes = np.array(found, dtype=float).reshape(-1, 4)
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
