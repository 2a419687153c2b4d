# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writers of masks and landmarks, in the pixels of the files, while a network runs over them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine
from monai.utils import CommonKeys
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional as F

from monai_afire.handlers.reports.landmark_report import axis_names
from monai_afire.handlers.writers.result_tables import OUTPUT_IS_NAN, ResultFiles
from monai_afire.metrics.classification import check_class_names
from monai_afire.metrics.landmarks import landmark_positions, rescaled_positions
from monai_afire.utils.file_geometry import FileGeometry
from monai_afire.utils.files import output_path, save_png
from monai_afire.utils.precision import at_least_float32
from monai_afire.visualize.outlines import landmark_picture, outline_picture
from monai_afire.visualize.volume_planes import axial_plane, frontal_positions, frontal_projection, fullest_plane

_File = tuple[int, int] | FileGeometry  # rows and columns of a picture, or where the voxels of a volume lie


class _PictureWriter(ResultFiles):
    """Base of the writers of masks and of landmarks, each with a picture to draw them on."""

    derived = folders = ("masks", "overlays")
    overlays: bool

    def collect(self, engine: Engine) -> None:
        """Add the rows of a batch and hand the rest to the threads."""
        batch: Any = engine.state.batch
        outputs = at_least_float32(engine.state.output[CommonKeys.PRED].as_subclass(torch.Tensor))  # type: ignore[index]
        outputs = outputs.detach().cpu()
        for row, source in self.accepted(batch):
            if outputs[row].isnan().any():
                self.reject(source, OUTPUT_IS_NAN)
            else:
                picture = _picture(batch, row)
                shape = tuple(batch["spatial_shape"][row].tolist())
                self.add(source, outputs[row], FileGeometry.of(batch, row) if picture.ndim == 3 else shape, picture)

    @abstractmethod
    def add(self, source: str, output: torch.Tensor, file: _File, picture: NDArray) -> None:
        """Write the result of one image, or of one volume."""

    def path_of(self, kind: str, source: str, extension: str = ".png") -> Path:
        """File of an image in a folder of the output."""
        return output_path(self.output_dir / kind, source, self.root, extension)


class SegmentationWriter(_PictureWriter):
    """
    Write the masks of each image in the size of its file, and a picture with their outlines.

    * ``masks/<class>/<image>.png``: 255 inside, 0 outside, with the rows and columns of the file as
      :class:`monai_afire.transforms.LoadRadiograph` reads it (upright). Probabilities are interpolated linearly to that
      size before the threshold is applied, so that outlines have no steps;
    * ``overlays/<image>.png``: the outlines over the picture, each class in its colour
      (:func:`monai_afire.visualize.class_color`), in the proportions of the file;
    * ``segmentation.csv``: for each image and class the share of the image inside the mask, "area_<class>", at the
      resolution of the network;
    * ``rejected.csv``: files that could not be read, or for which the network's output is NaN, with the reason.

    Masks of volumes are ``.nii.gz`` of 0 and 1 on the voxels of the file, and the picture is of one axial plane, the
    one that holds most. Their batches need "picture", "affine", "original_affine" and "input_affine", too, and the
    input may be a part of the volume, or resampled.

    The evaluator's output has the logits ``(B, C, rows, columns)`` as "pred", of images that were resized to the
    network's input without cropping or padding; the batches need "index", "spatial_shape" and "picture" (else "image"
    ``(B, 1, rows, columns)`` is drawn on) and may have "rejected", see
    :class:`monai_afire.transforms.LoadRadiographd` and :class:`monai_afire.transforms.DescribeRadiographd`.

    Args:
        items: the data set's items, for the names of the files.
        class_names: C names, in the order of the network's outputs.
        output_dir: where to write; earlier runs' tables are kept as ``*_previous.csv``, ``*_previous_2.csv``, ....
        threshold: smallest probability inside a mask, in (0, 1).
        overlays: whether to write the pictures.
        num_threads: threads that write masks and pictures.
        resume: go on where a run was stopped, see :class:`ResultTables`.

    Raises:
        ValueError: for class names that repeat, cannot name a folder or are not C, and a threshold out of range.
        OSError: when the run starts and ``output_dir`` cannot be written to.
    """

    def __init__(
        self,
        items: Sequence[Mapping[str, Any]],
        class_names: Sequence[str],
        output_dir: str,
        threshold: float = 0.5,
        overlays: bool = True,
        num_threads: int = 2,
        resume: bool = False,
    ) -> None:
        super().__init__(items, output_dir, "segmentation.csv", num_threads, resume)
        self.overlays = overlays
        check_class_names(class_names)
        unfit = [
            name
            for name in class_names
            if not name or Path(name).name != name or "\\" in name or name.strip(". ") != name
        ]
        if unfit:
            raise ValueError(
                f"class names {unfit} cannot name folders: leave out slashes and dots or spaces at the ends"
            )
        if not 0 < threshold < 1:
            raise ValueError(f"threshold must be in (0, 1), got {threshold}")
        self.class_names = tuple(class_names)
        self.threshold = threshold

    def header(self) -> Sequence[str]:
        """File and areas."""
        return ["image", *(f"area_{name}" for name in self.class_names)]

    def add(self, source: str, output: torch.Tensor, file: _File, picture: NDArray) -> None:
        """Write masks, a picture and the areas: of a volume NIfTI on the voxels of the file, and one axial plane."""
        check_class_names(self.class_names, len(output))
        probabilities = output.sigmoid()
        areas = (probabilities >= self.threshold).float().flatten(1).mean(1).tolist()
        self.add_row([source, *(f"{area:.6g}" for area in areas)])
        is_volume = isinstance(file, FileGeometry)
        save_mask, save_overlay = (
            (self._save_volume, self._save_plane) if is_volume else (self._save_mask, self._save_overlay)
        )
        for name, probability in zip(self.class_names, probabilities, strict=True):
            path = self.path_of(f"masks/{name}", source, ".nii.gz" if is_volume else ".png")
            self.hand_over(save_mask, probability, file, path)
        if self.overlays:
            self.hand_over(save_overlay, probabilities, file, picture, self.path_of("overlays", source))

    def _save_volume(self, probability: torch.Tensor, geometry: FileGeometry, path: Path) -> None:
        inside = geometry.to_file(probability.numpy(), outside="zeros") >= self.threshold
        geometry.save(inside.astype(np.uint8), path)

    def _save_plane(self, probabilities: torch.Tensor, geometry: FileGeometry, picture: NDArray, path: Path) -> None:
        masks = np.stack([geometry.on_picture(each, picture.shape) >= self.threshold for each in probabilities.numpy()])
        place = (0, 0, fullest_plane(masks))
        plane = axial_plane(picture, place).astype(np.float32) / 255
        shown = np.stack([axial_plane(mask, place) for mask in masks])
        save_png(outline_picture(plane, shown, side=max(plane.shape)), path)

    def _save_mask(self, probability: torch.Tensor, shape: tuple[int, int], path: Path) -> None:
        inside = self._masks(probability[None], shape)[0]
        save_png(inside.astype(np.uint8) * 255, path)

    def _save_overlay(self, probabilities: torch.Tensor, shape: tuple[int, int], picture: NDArray, path: Path) -> None:
        image = _in_proportion(picture, shape)
        save_png(outline_picture(image, self._masks(probabilities, image.shape), side=max(image.shape)), path)

    def _masks(self, probabilities: torch.Tensor, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        resized = F.interpolate(probabilities[None], size=shape, mode="bilinear", align_corners=False)
        return (resized[0] >= self.threshold).numpy()


class LandmarkWriter(_PictureWriter):
    """
    Write the landmarks of each image in the pixels of its file, and a picture of them.

    * ``landmarks.csv``: for each image and landmark "row" and "column" in pixels of the file as
      :class:`monai_afire.transforms.LoadRadiograph` reads it (upright), 0 at the centre of the first pixel, empty where
      the heat map is flat; and "peak", the largest value of the heat map, near 1 where the network is sure;
    * ``overlays/<image>.png``: the landmarks over the picture, in the proportions of the file;
    * ``rejected.csv``: files that could not be read, or for which the network's output is NaN, with the reason.

    The evaluator's output has the heat maps ``(B, P, rows, columns)`` as "pred"; the batches need the same as for
    :class:`SegmentationWriter`.

    Args:
        items: the data set's items, for the names of the files.
        landmark_names: P names, in the order of the network's outputs.
        output_dir: where to write; earlier runs' tables are kept as ``*_previous.csv``, ``*_previous_2.csv``, ....
        window: see :func:`monai_afire.metrics.landmark_positions`.
        overlays: whether to write the pictures.
        num_threads: threads that write pictures.
        resume: go on where a run was stopped, see :class:`ResultTables`.
        spatial_dims: 3 for volumes, of which the table has "x", "y" and "z" in voxels of the file along its own axes,
            and the picture is the projection to the front.

    Raises:
        ValueError: for landmark names that repeat or are not P.
        OSError: when the run starts and ``output_dir`` cannot be written to.
    """

    def __init__(
        self,
        items: Sequence[Mapping[str, Any]],
        landmark_names: Sequence[str],
        output_dir: str,
        window: int = 5,
        overlays: bool = True,
        num_threads: int = 2,
        resume: bool = False,
        spatial_dims: int = 2,
    ) -> None:
        super().__init__(items, output_dir, "landmarks.csv", num_threads, resume)
        self.overlays = overlays
        check_class_names(landmark_names)
        self.spatial_dims = spatial_dims
        self.landmark_names = tuple(landmark_names)
        self.window = window

    def header(self) -> Sequence[str]:
        """File, landmark and position."""
        return ["image", "landmark", *axis_names(self.spatial_dims), "peak"]

    def add(self, source: str, output: torch.Tensor, file: _File, picture: NDArray) -> None:
        """Write positions and a picture, of a volume that of its projection."""
        check_class_names(self.landmark_names, len(output))
        found = landmark_positions(output[None], self.window)[0]
        if isinstance(file, FileGeometry):
            voxels = found.double().numpy()
            positions = file.positions_in_file(voxels).tolist()
            draw = partial(_save_projection, file.positions_on_picture(voxels, picture.shape), picture)
        else:
            rescaled = rescaled_positions(found, output.shape[1:], file)
            positions = rescaled.tolist()
            draw = partial(_save_landmarks, rescaled, file, picture)
        self._add_positions(source, output, positions)
        if self.overlays:
            self.hand_over(draw, self.path_of("overlays", source))

    def _add_positions(self, source: str, output: torch.Tensor, positions: list[list[float]]) -> None:
        peaks = output.flatten(1).amax(1).tolist()
        for name, position, peak in zip(self.landmark_names, positions, peaks, strict=True):
            cells = ["" if np.isnan(value) else f"{value:.2f}" for value in position]
            self.add_row([source, name, *cells, f"{peak:.4g}"])


def _save_landmarks(positions: torch.Tensor, shape: tuple[int, int], picture: NDArray, path: Path) -> None:
    image = _in_proportion(picture, shape)
    rescaled = rescaled_positions(positions, shape, image.shape)
    save_png(landmark_picture(image, rescaled.numpy(), side=max(image.shape)), path)


def _save_projection(positions: NDArray, picture: NDArray, path: Path) -> None:
    image = frontal_projection(picture.astype(np.float32) / 255)
    save_png(landmark_picture(image, frontal_positions(positions, picture.shape), side=max(image.shape)), path)


def _picture(batch: Mapping[str, Any], row: int) -> NDArray[np.uint8]:
    """What to draw on, ``(rows, columns)`` or a volume, in proportions of its own; of colours their mean."""
    if "picture" in batch:
        return torch.as_tensor(batch["picture"][row]).float().mean(0).to(torch.uint8).cpu().numpy()
    image = batch[CommonKeys.IMAGE][row].float().mean(0).cpu()
    low, high = image.aminmax()
    if low < 0 or high > 1:
        image = (image - low) / (high - low)
    return (image * 255).round().to(torch.uint8).numpy()


def _in_proportion(picture: NDArray[np.uint8], shape: tuple[int, int]) -> NDArray[np.float32]:
    """The picture in the proportions of the file, its longer side as before, in [0, 1]."""
    scale = max(picture.shape) / max(shape)
    rows, columns = (max(1, round(length * scale)) for length in shape)
    resized = Image.fromarray(picture).resize((columns, rows), Image.Resampling.BILINEAR)
    return np.asarray(resized, dtype=np.float32) / np.float32(255)
