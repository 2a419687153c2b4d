# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The images of a study with what a datalist knows of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from monai.utils import convert_to_tensor, ensure_tuple_rep
from tqdm.auto import tqdm

from monai_afire.apps.studies.regions import WINDOW
from monai_afire.apps.studies.study import NothingToCompareError
from monai_afire.data.datalist.class_names import class_names
from monai_afire.data.phantom import PhantomSet
from monai_afire.transforms.landmark_heatmap import landmark_array, pixels_of_file
from monai_afire.utils.text import image_name

Item = Mapping[str, Any]


@dataclass(frozen=True)
class StudyImages:
    """
    Images, and what is known about them; what is not known is None, and a report leaves out the studies that need it.

    Args:
        image: ``(M, C, H, W)`` in [0, 1], of the encoders' size.
        group: the disease set (or any other group) of each image, M names.
        landmarks: ``(M, P, 2)`` in pixels, rows before columns; NaN where a landmark is not known.
        landmark_names: P names.
        masks: ``(M, O, H, W)`` bool, one channel per organ.
        mask_names: O names.
        boxes: for each image ``(number, 4)`` boxes of lesions: row, column, height, width in pixels.
        box_kinds: for each image the kind of lesion of each of its boxes.
        native: ``(M, C, *T)``, the same images in more pixels, of which patches and windows are cut; None cuts them out
            of ``image``.

    Raises:
        ValueError: when something is not given for all M images.

    Example:
        >>> images = StudyImages(torch.rand(2, 1, 8, 8), group=["normal", "nodule"])
        >>> images.known("group")
        ['normal', 'nodule']
    """

    image: torch.Tensor
    group: Sequence[str] | None = None
    landmarks: torch.Tensor | None = None
    landmark_names: Sequence[str] | None = None
    masks: torch.Tensor | None = None
    mask_names: Sequence[str] | None = None
    boxes: Sequence[torch.Tensor] | None = None
    box_kinds: Sequence[Sequence[str]] | None = None
    native: torch.Tensor | None = None

    def __post_init__(self) -> None:
        number = len(self.image)
        for name in (item.name for item in fields(self)):
            value = getattr(self, name)
            of_channels = name in ("landmark_names", "mask_names")
            if not (value is None or of_channels or len(value) == number):
                raise ValueError(f"{len(value)} {name} for {number} images: give one for each")

    def known(self, name: str) -> Any:
        """A field that a study cannot do without."""
        value = getattr(self, name)
        if value is None:
            raise NothingToCompareError(f"the images have no {name}")
        return value

    @property
    def detailed(self) -> torch.Tensor:
        """The images in as many pixels as there are."""
        return self.image if self.native is None else self.native

    def detailed_landmarks(self) -> torch.Tensor:
        """The landmarks ``(M, P, 2)`` in pixels of :attr:`detailed`."""
        sizes = zip(self.detailed.shape[2:], self.image.shape[2:], strict=True)
        scale = torch.tensor([new / old for new, old in sizes])
        return (self.known("landmarks") + 0.5) * scale - 0.5  # a pixel's edge is half a pixel away


def read_study_images(
    items: Sequence[Item],
    transform: Callable[[dict[str, Any]], Item],
    dataset_dir: str | None = None,
    datalist: str | None = None,
    max_images: int | None = None,
    phantom: PhantomSet | None = None,
    native: Callable[[dict[str, Any]], Item] | None = None,
) -> StudyImages:
    """
    Load images with all that a datalist knows of them.

    "organs" (mask files), "landmarks" (row, column), "boxes" (x, y, width, height) with their "box_findings", and
    "group" or "label" are used where an item has them. Positions are those of the picture in the file and are moved as
    the image was. Masks count only if all images have them. Landmarks of pairs of images ("landmarks_2") are left to
    :func:`monai_afire.apps.studies.pair_study`.

    Args:
        items: of a datalist, see :func:`monai_afire.data.bundle_items`.
        transform: loads and resizes "image" and, if they are there, "organs"; metadata must be kept.
        dataset_dir: folder that the items are of.
        datalist: list that the items are of, whose header may name findings, organs and landmarks, see
            :func:`monai_afire.data.class_names`.
        max_images: of more items, so many are taken, evenly spaced; None for all.
        phantom: that the items are of, without dataset_dir and datalist.
        native: loads "image" again and resizes it to more pixels, see :func:`native_size`; None for no such images.

    Raises:
        ValueError: for fewer than two items, or images of different sizes.

    Example:
        >>> from monai.transforms import Compose
        >>> items = [{"image": torch.rand(1, 8, 8), "landmarks": [[1.0, 2.0]]}, {"image": torch.rand(1, 8, 8)}]
        >>> images = read_study_images(items, Compose([]), dataset_dir="radiographs")
        >>> tuple(images.image.shape), images.landmarks[:, 0].tolist(), images.masks
        ((2, 1, 8, 8), [[1.0, 2.0], [nan, nan]], None)
    """
    if len(items) < 2:
        raise ValueError(f"a study compares images, so it needs at least two, got {len(items)}")
    number = len(items) if max_images is None else max_images
    taken = [items[index] for index in evenly_spaced(number, len(items))]
    loaded = [transform(dict(item)) for item in tqdm(taken, desc="loading", unit="image")]
    pictures = [item["image"] for item in loaded]
    has_masks = all(item.get("organs") for item in taken)
    landmarks, boxes = _landmarks(taken, pictures), _boxes(taken, pictures)
    masks = _stack([item["organs"] for item in loaded], "organs") > 0 if has_masks else None

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
        native=_stack([native(dict(item))["image"] for item in taken], "image") if native else None,
    )


def native_size(size: int | Sequence[int]) -> list[int]:
    """
    Sides of the images of which a window of ACE's share (448 of 1,024 pixels) has an encoder's size.

    ``size`` is that of the encoder's input in pixels, one number for both axes or one for each.

    Example:
        >>> native_size(448)
        [1024, 1024]
    """
    sides = ensure_tuple_rep(size, 2) if isinstance(size, int) else size
    return [round(side / WINDOW) for side in sides]


def disease_set(item: Item, finding_names: Sequence[str] = ()) -> str | None:
    """
    The group that an image belongs to: "group" as it is, else the findings of "label" that are 1, else "abnormal".

    "normal", the one finding, "several findings", "uncertain" (none is present, but not all are known to be absent),
    "abnormal", or None if nothing is known.
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


def names_or_numbers(names: Sequence[str] | None, number: int) -> list[str]:
    """The names, or the numbers from 1 where there are none."""
    known = range(1, number + 1) if names is None else names
    return [str(name) for name in known]


def evenly_spaced(number: int, num_images: int) -> list[int]:
    """Indices of so many images, or of all where there are fewer."""
    return np.linspace(0, num_images, min(number, num_images), endpoint=False).astype(int).tolist()


def _stack(arrays: Sequence[torch.Tensor], what: str) -> torch.Tensor:
    """One tensor of all images or masks."""
    first = tuple(arrays[0].shape)
    for array in arrays:
        if array.shape != first:
            shapes = f"{tuple(array.shape)}, not {first} as the first"
            name = image_name({"image": array})
            raise ValueError(f"{name}: its {what} has the shape {shapes}: resize all to one size")
    return torch.stack([convert_to_tensor(array, track_meta=False) for array in arrays])


def _groups(items: Sequence[Item], names: Callable[[str, int], list[str]]) -> list[str] | None:
    """The group of each image; None unless all are known."""
    lengths = {len(item["label"]) for item in items if isinstance(item.get("label"), list)}
    findings = names("label", lengths.pop()) if len(lengths) == 1 else []
    groups = [disease_set(item, findings) for item in items]
    return None if None in groups else [str(group) for group in groups]


def _landmarks(items: Sequence[Item], pictures: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Landmarks (M, P, 2) on the images; None if no item has some."""
    # those of a pair of images are any places, as many as were found, and not the same ones in other pairs
    own = [None if item.get("landmarks_2") else item.get("landmarks") for item in items]
    known = [landmark_array(points) if points else None for points in own]
    shapes = {points.shape for points in known if points is not None}
    if not shapes:
        return None
    if len(shapes) > 1:
        numbers = sorted(shape[0] for shape in shapes)
        raise ValueError(f"images have {numbers} landmarks: list all, None for unknown")
    unknown = np.full(shapes.pop(), np.nan)
    moved = [
        unknown if points is None else pixels_of_file(points, picture)
        for points, picture in zip(known, pictures, strict=True)
    ]
    return torch.as_tensor(np.stack(moved)).float()


def _boxes(items: Sequence[Item], pictures: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    """Boxes (row, column, height, width) on the images; None if no item says whether it has some."""
    if not any("boxes" in item for item in items):
        return None
    moved = []
    for item, picture in zip(items, pictures, strict=True):
        listed = np.asarray(item.get("boxes") or np.zeros((0, 4)), dtype=np.float64)
        x, y, width, height = listed.reshape(-1, 4).T
        # the edges of pixels, half a pixel beside their centers
        start = pixels_of_file(np.stack([y, x], 1) - 0.5, picture)
        end = pixels_of_file(np.stack([y + height, x + width], 1) - 0.5, picture)
        moved.append(torch.as_tensor(np.concatenate([start + 0.5, end - start], 1)).float())
    return moved


def _box_kinds(
    items: Sequence[Item], boxes: Sequence[torch.Tensor] | None
) -> list[list[str]] | None:
    """The finding of each box; None unless all boxes have one."""
    if boxes is None or not any("box_findings" in item for item in items):
        return None
    kinds = [[str(finding) for finding in item.get("box_findings") or []] for item in items]
    complete = all(len(own) == len(of_image) for own, of_image in zip(kinds, boxes, strict=True))
    return kinds if complete else None
