# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writers of masks and landmarks, in the pixels of the files, while a network runs over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import torch
from monai.transforms.utils import get_largest_connected_component_mask
from numpy.typing import NDArray

from monai_afire.apps.evaluation.landmark_metrics import rescaled_positions
from monai_afire.apps.results.output_paths import output_path
from monai_afire.apps.results.pictures.draw import (
    captioned,
    class_color,
    landmark_picture,
    outline_picture,
    with_legend,
)
from monai_afire.apps.results.result_pictures import batch_picture, in_proportion, resized_maps
from monai_afire.apps.results.result_tables import ResultTables
from monai_afire.metrics.landmark_errors import landmark_positions
from monai_afire.metrics.multilabel import check_class_names
from monai_afire.utils.files import path_from, save_png
from monai_afire.utils.text import counted

_THORAX = ("heart", "left lung", "right lung")
_RATIO = "cardiothoracic_ratio"


@dataclass(eq=False, repr=False)
class SegmentationWriter(ResultTables):
    """
    Write the masks of each image in the size of its file, and a picture with their outlines.

    * ``masks/<class>/<image>.png``: 255 inside, 0 outside, with the rows and columns of the file as
      :class:`monai_afire.transforms.LoadRadiograph` reads it (upright). Probabilities are interpolated linearly to that
      size before the threshold is applied, so that outlines have no steps;
    * ``overlays/<image>.png``: the outlines over the picture, each class in its color, in the proportions of the
      file, with a legend and the words that it is not for clinical use;
    * ``segmentation.csv``: for each image and class the fraction of the image inside the mask, "area_fraction_<class>",
      and of "heart", "left lung" and "right lung" (or "lung_left", "lung_right") the "cardiothoracic_ratio", both at
      the resolution of the network. Spaces in the names of classes become underscores there;
    * ``segmentation.html``: the overlays with these numbers, for a browser.

    The evaluator's output has the logits ``(B, C, rows, columns)`` as "pred", of images that were resized to the
    network's input without cropping or padding; the batches need "index", "spatial_shape" and "picture" (else "image"
    ``(B, 1, rows, columns)`` is drawn on), see :class:`monai_afire.transforms.DescribeRadiographd`.

    Args:
        items: the data set's items, for the names of the files.
        class_names: C names, in the order of the network's outputs.
        output_dir: where to write; a folder with the results of another run is refused.
        threshold: smallest probability inside a mask, in (0, 1).
        overlays: whether to write the pictures.
        resume: continue a stopped run, see :class:`ResultTables`.

    Raises:
        ValueError: for class names that repeat, cannot name a folder or are not C, and a threshold out of range.
    """

    table_name = "segmentation.csv"
    derived = ("masks", "overlays", "segmentation.html")
    folders = ("masks", "overlays")

    items: Sequence[Mapping[str, Any]]
    class_names: Sequence[str]
    output_dir: str
    threshold: float = 0.5
    overlays: bool = True
    resume: bool = False

    def __post_init__(self) -> None:
        check_class_names(self.class_names)
        if unfit := [name for name in self.class_names if not _is_folder_name(name)]:
            rule = "no slashes, no dots or spaces at the ends"
            raise ValueError(f"class names {unfit} cannot name folders: {rule}")
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold must be in (0, 1), got {self.threshold}")

    def header(self) -> Sequence[str]:
        """File, areas and, of heart and lungs, their ratio."""
        areas = [f"area_fraction_{name.replace(' ', '_')}" for name in self.class_names]
        return ["image", *areas, *([_RATIO] if self._has_ratio() else [])]

    def _has_ratio(self) -> bool:
        return set(_THORAX) <= {_organ(name) for name in self.class_names}

    def settings(self) -> Mapping[str, Any]:
        """The threshold."""
        return {"threshold": self.threshold}

    def add(self, source: str, output: torch.Tensor, batch: Mapping[str, Any], row: int) -> None:
        """Write masks on the pixels of the file, a picture, and the areas."""
        check_class_names(self.class_names, len(output))
        probabilities = output.sigmoid()
        masks = probabilities >= self.threshold
        measured = masks.float().flatten(1).mean(1).tolist()
        if self._has_ratio():
            organs = map(_organ, self.class_names)
            measured.append(cardiothoracic_ratio(dict(zip(organs, masks, strict=True))))
        self.add_row([source, *("" if np.isnan(value) else f"{value:.6g}" for value in measured)])
        shape = tuple(batch["spatial_shape"][row].tolist())
        for name, probability in zip(self.class_names, probabilities.numpy(), strict=True):
            path = output_path(self.folder / "masks" / name, source, self.root, ".png")
            self.submit(source, self._save_mask, probability, shape, path)
        if self.overlays:
            path = output_path(self.folder / "overlays", source, self.root, ".png")
            picture = batch_picture(batch, row)
            self.submit(source, self._save_overlay, probabilities.numpy(), shape, picture, path)

    def complete(self, described: Mapping[str, Any]) -> None:
        """Show the overlays with their numbers."""
        if not self.overlays:
            return
        table = pd.read_csv(self.folder / self.table_name, dtype={"image": str})
        cards, sources = [], self.sources
        for image, numbers in table.set_index("image").iterrows():
            source = sources.get(image, image)
            overlay = output_path(self.folder / "overlays", source, self.root, ".png")
            lines = [(_in_words(name, value), False) for name, value in numbers.dropna().items()]
            picture = quote(path_from(overlay, self.folder))
            cards.append({"name": path_from(image, self.root), "picture": picture, "lines": lines})
        images, units = counted(len(table), "image"), "areas are in % of the image"
        sentence = f"{images}; {units}; all numbers are in {self.table_name}."
        self.write_page("segmentation.html", "Segmentation", sentence, cards)

    def _save_mask(self, probability: NDArray, shape: tuple[int, int], path: Path) -> Path:
        inside = resized_maps(probability[None], shape)[0] >= self.threshold
        save_png(inside.astype(np.uint8) * 255, path)
        return path

    def _save_overlay(
        self, probabilities: NDArray, shape: tuple[int, int], picture: NDArray, path: Path
    ) -> Path:
        image = in_proportion(picture, shape)
        masks = resized_maps(probabilities, image.shape) >= self.threshold
        outlined = outline_picture(image, masks, side=max(image.shape))
        legend = {name: class_color(number) for number, name in enumerate(self.class_names)}
        save_png(captioned(with_legend(outlined, legend)), path)
        return path


def _in_words(column: str, value: float) -> str:
    """A number of the table for the page."""
    name = column.removeprefix("area_fraction_").replace("_", " ")
    return f"{name} {value:.2f}" if column == _RATIO else f"{name} {100 * value:.1f} %"


def _organ(class_name: str) -> str:
    """The name of a class with its side first: "left lung" for "lung_left"."""
    words = class_name.replace("_", " ").split()
    return " ".join(sorted(words, key=lambda word: word not in ("left", "right")))


def cardiothoracic_ratio(masks: Mapping[str, torch.Tensor]) -> float:
    """
    Largest width of the heart over the width from one lung's outer edge to the other's.

    Args:
        masks: "heart", "left lung" and "right lung", each ``(rows, columns)`` bool; of each its largest region counts.

    Returns:
        The ratio; NaN where one of them is empty.
    """
    columns = {}
    for name in _THORAX:
        region = get_largest_connected_component_mask(masks[name])
        columns[name] = torch.as_tensor(region).any(0).nonzero().flatten()
    if not all(len(found) for found in columns.values()):
        return float("nan")
    heart, lungs = columns["heart"], torch.cat([columns["left lung"], columns["right lung"]])
    return (int(heart.max() - heart.min()) + 1) / (int(lungs.max() - lungs.min()) + 1)


def _is_folder_name(name: str) -> bool:
    return bool(name) and Path(name).name == name and "\\" not in name and name.strip(". ") == name


@dataclass(eq=False, repr=False)
class LandmarkWriter(ResultTables):
    """
    Write the landmarks of each image in the pixels of its file, and a picture of them.

    * ``landmarks.csv``: for each image and landmark "row" and "column" in pixels of the file as
      :class:`monai_afire.transforms.LoadRadiograph` reads it (upright), 0 at the center of the first pixel, empty where
      the heat map is flat; and "peak", the largest value of the heat map, near 1 where the network is sure;
    * ``overlays/<image>.png``: the landmarks over the picture, as :class:`SegmentationWriter` draws outlines.

    The evaluator's output has the heat maps ``(B, P, rows, columns)`` as "pred"; the batches need the same as for
    :class:`SegmentationWriter`.

    Args:
        items: the data set's items, for the names of the files.
        landmark_names: P names, in the order of the network's outputs.
        output_dir: where to write; a folder with the results of another run is refused.
        window: see ``landmark_positions``.
        overlays: whether to write the pictures.
        resume: continue a stopped run, see :class:`ResultTables`.

    Raises:
        ValueError: for landmark names that repeat or are not P.
    """

    table_name = "landmarks.csv"
    derived = folders = ("overlays",)

    items: Sequence[Mapping[str, Any]]
    landmark_names: Sequence[str]
    output_dir: str
    window: int = 5
    overlays: bool = True
    resume: bool = False

    def __post_init__(self) -> None:
        check_class_names(self.landmark_names)

    def header(self) -> Sequence[str]:
        """File, landmark and position."""
        return ["image", "landmark", "row", "column", "peak"]

    def settings(self) -> Mapping[str, Any]:
        """Names, which are no columns, and window."""
        return {"landmark_names": list(self.landmark_names), "window": self.window}

    def add(self, source: str, output: torch.Tensor, batch: Mapping[str, Any], row: int) -> None:
        """Write positions and a picture."""
        check_class_names(self.landmark_names, len(output))
        shape = tuple(batch["spatial_shape"][row].tolist())
        on_map = landmark_positions(output[None], self.window)[0]
        positions = rescaled_positions(on_map, output.shape[1:], shape)
        peaks = output.flatten(1).amax(1).tolist()
        found = zip(self.landmark_names, positions.tolist(), peaks, strict=True)
        for name, position, peak in found:
            cells = ["" if np.isnan(value) else f"{value:.2f}" for value in position]
            self.add_row([source, name, *cells, f"{peak:.4g}"])
        if self.overlays:
            path = output_path(self.folder / "overlays", source, self.root, ".png")
            self.submit(source, _save_landmarks, positions, shape, batch_picture(batch, row), path)


def _save_landmarks(
    positions: torch.Tensor, shape: tuple[int, int], picture: NDArray, path: Path
) -> Path:
    image = in_proportion(picture, shape)
    rescaled = rescaled_positions(positions, shape, image.shape)
    save_png(captioned(landmark_picture(image, rescaled.numpy(), side=max(image.shape))), path)
    return path
