# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Reading the items of a datalist into the images of a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.utils import convert_to_tensor, ensure_tuple_rep
from tqdm.auto import tqdm

from monai_afire.apps.studies.images.affine import WINDOW
from monai_afire.apps.studies.images.study_images import StudyImages
from monai_afire.data.datalist.labels import class_names
from monai_afire.data.datalist.loading import DrawnSet
from monai_afire.transforms.landmark_heatmap import landmark_array, pixels_of_file
from monai_afire.utils.text import image_name


def read_study_images(
    items: Sequence[Mapping[str, Any]],
    transform: Callable[[dict[str, Any]], Mapping[str, Any]],
    dataset_dir: str | None = None,
    datalist: str | None = None,
    max_images: int | None = None,
    progress: bool = True,
    phantom: DrawnSet | None = None,
    native: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
) -> StudyImages:
    """
    Load images with all that a datalist knows of them.

    "organs" (mask files), "landmarks" (row, column), "boxes" (x, y, width, height) with their "box_findings", and
    "group" or "label" are used where an item has them. Positions are those of the picture in the file and are moved as
    the image was. Masks count only if all images have them; an image without landmarks has NaN. Landmarks of pairs of
    images ("landmarks_2") are left to :class:`monai_afire.apps.studies.PairStudy`.

    Args:
        items: of a datalist, see :func:`monai_afire.data.bundle_items`.
        transform: loads and resizes "image" and, if they are there, "organs"; metadata must be kept.
        dataset_dir: folder that the items are of.
        datalist: list that the items are of, whose header may name findings, organs and landmarks, see
            :func:`monai_afire.data.class_names`.
        max_images: of more items, so many are taken, evenly spaced; None for all.
        progress: whether to show a progress bar.
        phantom: that the items are of, without dataset_dir and datalist.
        native: loads "image" again and resizes it to more pixels, see :func:`native_size`; None for no such images.

    Returns:
        The images.

    Raises:
        ValueError: for fewer than two items, or images of different sizes.

    Example:
        >>> from monai.transforms import Compose
        >>> items = [{"image": torch.rand(1, 8, 8), "landmarks": [[1.0, 2.0]]}, {"image": torch.rand(1, 8, 8)}]
        >>> images = read_study_images(items, Compose([]), dataset_dir="radiographs", progress=False)
        >>> tuple(images.image.shape), images.landmarks[:, 0].tolist(), images.masks
        ((2, 1, 8, 8), [[1.0, 2.0], [nan, nan]], None)
    """
    if len(items) < 2:
        raise ValueError(f"a study compares images, so it needs at least two, got {len(items)}")
    number = len(items) if max_images is None else min(max_images, len(items))
    taken = [
        items[index] for index in np.linspace(0, len(items), number, endpoint=False).astype(int)
    ]
    loaded = [
        transform(dict(item))
        for item in tqdm(taken, desc="loading", unit="image", disable=not progress)
    ]
    pictures = [item["image"] for item in loaded]
    landmarks, boxes = _landmarks(taken, pictures), _boxes(taken, pictures)
    masks = (
        _stack([item["organs"] for item in loaded], "organs") > 0
        if all(i.get("organs") for i in taken)
        else None
    )

    def names(key: str, number: int) -> list[str]:
        return class_names(datalist, dataset_dir, number, key, phantom=phantom)

    return StudyImages(
        image=_stack(pictures, "image"),
        group=_groups(taken, names),
        landmarks=landmarks,
        landmark_names=None if landmarks is None else names("landmarks", landmarks.shape[1]),
        masks=masks,
        mask_names=None if masks is None else names("organs", masks.shape[1]),
        boxes=boxes,
        box_kinds=_box_kinds(taken, boxes),
        native=None
        if native is None
        else _stack([native(dict(item))["image"] for item in taken], "image"),
    )


def native_size(size: int | Sequence[int]) -> list[int]:
    """
    Sides of the images of which a window of ACE's share (448 of 1,024 pixels) has an encoder's size.

    Args:
        size: of the encoder's input in pixels, one number for both axes or one for each.

    Returns:
        Pixels per axis.

    Example:
        >>> native_size(448)
        [1024, 1024]
    """
    sides = ensure_tuple_rep(size, 2) if isinstance(size, int) else size
    return [round(side / WINDOW) for side in sides]


def disease_set(item: Mapping[str, Any], finding_names: Sequence[str] = ()) -> str | None:
    """
    The group that an image belongs to: the findings in it.

    Args:
        item: of a datalist. "group" is taken as it is, else the entries of "label" that are 1, else "abnormal".
        finding_names: of the entries of "label".

    Returns:
        "normal", the one finding, "several findings", "uncertain" (none is present, but not all are known to be
        absent), "abnormal", or None if nothing is known.

    Example:
        >>> disease_set({"label": [0, 1]}, ["mass", "effusion"]), disease_set({"abnormal": 0}), disease_set({})
        ('effusion', 'normal', None)
    """
    if item.get("group") is not None:
        return str(item["group"])
    label = item.get("label")
    if isinstance(label, (list, tuple)) and len(label) == len(finding_names):
        present = [name for name, value in zip(finding_names, label, strict=True) if value == 1]
        if not present:
            return "normal" if all(value == 0 for value in label) else "uncertain"
        return present[0] if len(present) == 1 else "several findings"
    if isinstance(item.get("abnormal"), (int, float)):
        return "abnormal" if item["abnormal"] else "normal"
    return str(label) if isinstance(label, (int, str)) else None


def _groups(
    items: Sequence[Mapping[str, Any]], names: Callable[[str, int], list[str]]
) -> list[str] | None:
    lengths = {len(item["label"]) for item in items if isinstance(item.get("label"), list)}
    findings = names("label", lengths.pop()) if len(lengths) == 1 else []
    groups = [disease_set(item, findings) for item in items]
    return None if None in groups else [str(group) for group in groups]


def _stack(arrays: Sequence[torch.Tensor], what: str) -> torch.Tensor:
    first = arrays[0].shape
    for array in arrays:
        if array.shape != first:
            shapes = f"{tuple(array.shape)}, not {tuple(first)} as the first"
            name = image_name({"image": array})
            raise ValueError(f"{name}: its {what} has the shape {shapes}: resize all to one size")
    return torch.stack([convert_to_tensor(array, track_meta=False) for array in arrays])


def _landmarks(
    items: Sequence[Mapping[str, Any]], pictures: Sequence[torch.Tensor]
) -> torch.Tensor | None:
    # those of a pair of images are any places, as many as were found, and not the same ones in other pairs
    own = [None if item.get("landmarks_2") else item.get("landmarks") for item in items]
    known = [landmark_array(points) if points else None for points in own]
    shapes = {points.shape for points in known if points is not None}
    if not shapes:
        return None
    if len(shapes) > 1:
        raise ValueError(
            f"images have {sorted(shape[0] for shape in shapes)} landmarks: list all, None for unknown"
        )
    unknown = np.full(shapes.pop(), np.nan)
    pairs = zip(known, pictures, strict=True)
    moved = [
        unknown if points is None else pixels_of_file(points, picture) for points, picture in pairs
    ]
    return torch.as_tensor(np.stack(moved)).float()


def _boxes(
    items: Sequence[Mapping[str, Any]], pictures: Sequence[torch.Tensor]
) -> list[torch.Tensor] | None:
    """Boxes (row, column, height, width) on the images; None if no item says whether it has some."""
    if not any("boxes" in item for item in items):
        return None
    moved = []
    for item, picture in zip(items, pictures, strict=True):
        x, y, width, height = (
            np.asarray(item.get("boxes") or np.zeros((0, 4)), dtype=np.float64).reshape(-1, 4).T
        )
        # the edges of pixels, half a pixel beside their centers
        start = pixels_of_file(np.stack([y, x], 1) - 0.5, picture)
        end = pixels_of_file(np.stack([y + height, x + width], 1) - 0.5, picture)
        moved.append(torch.as_tensor(np.concatenate([start + 0.5, end - start], 1)).float())
    return moved


def _box_kinds(
    items: Sequence[Mapping[str, Any]], boxes: list[torch.Tensor] | None
) -> list[list[str]] | None:
    """The finding of each box; None unless all boxes have one."""
    if boxes is None or not any("box_findings" in item for item in items):
        return None
    kinds = [[str(finding) for finding in item.get("box_findings") or []] for item in items]
    complete = all(
        len(own) == len(item.get("boxes") or []) for own, item in zip(kinds, items, strict=True)
    )
    return kinds if complete else None
