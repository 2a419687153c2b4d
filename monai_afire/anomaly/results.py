# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Files of a detector's results for one image: overlay, Secondary Capture, anomaly map, embedding."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional as F

from monai_afire.anomaly.secondary_capture import NoStudyError, read_source, secondary_capture
from monai_afire.utils.file_geometry import FileGeometry
from monai_afire.utils.files import atomic_path, output_path
from monai_afire.visualize.heat_panels import heat_panels
from monai_afire.visualize.volume_planes import hottest_planes

__all__ = ["HEAT_UNIT", "AnomalyResult", "save_embedding", "save_map", "save_overlay", "save_secondary_capture"]

HEAT_UNIT = "standard deviations of normal images"
_JPEG_QUALITY = 90  # a third of a PNG's size


@dataclass
class AnomalyResult:
    """
    Result of a detector for one image: scores, maps and embedding as arrays in memory, nothing on a device.

    Attributes:
        source: its file.
        root: folder that its place in the output folder is relative to.
        heat: ``(h, w)`` fused heat at the resolution of the network's input, of a volume ``(x, y, z)``.
        tokens: ``(L, D)``.
        picture: ``(h, w)`` or ``(x, y, z)`` uint8 to draw the overlay on.
        spatial_shape: (rows, columns) of the file, or the sides of the volume.
        affine: ``(4, 4)`` of the file, of a volume after its axes were turned.
        heat_range: heat at which the overlay's colour begins and ends.
        score: fused score.
        threshold: of the fused score, NaN for none.
        geometry: of a volume, for its map.
    """

    source: str
    root: str
    heat: np.ndarray
    tokens: np.ndarray
    picture: np.ndarray
    spatial_shape: tuple[int, ...]
    affine: np.ndarray
    heat_range: tuple[float, float]
    score: float
    threshold: float
    geometry: FileGeometry | None = None

    @property
    def is_volume(self) -> bool:
        """Whether the image has three axes."""
        return len(self.spatial_shape) == 3

    @property
    def title(self) -> str:
        """Score, threshold and decision; no name, so that pictures can be shown to others."""
        if not np.isfinite(self.threshold):
            return f"score {self.score:.2f}, no threshold"
        decision = "above" if self.score >= self.threshold else "below"
        return f"score {self.score:.2f}, {decision} the threshold of {self.threshold:.2f}"

    def picture_with_heat(self) -> NDArray[np.uint8]:
        """
        Radiograph and heat map side by side, in the proportions of the file, the longer side as the picture's.

        Of a volume the three planes through the hottest place.
        """
        if self.is_volume:
            voxel_size = np.linalg.norm(self.affine[:3, :3], axis=0)
            # the input may be a part of the volume
            heat = self.heat if self.geometry is None else self.geometry.on_picture(self.heat, self.picture.shape)
            planes, heat = hottest_planes(self.picture, heat, voxel_size, self.spatial_shape)
            return heat_panels(planes, heat, *self.heat_range, self.title, HEAT_UNIT)
        rows, columns = self.spatial_shape
        scale = max(self.picture.shape) / max(rows, columns)
        size = (max(1, round(rows * scale)), max(1, round(columns * scale)))
        picture = np.asarray(Image.fromarray(self.picture).resize(size[::-1], Image.Resampling.BILINEAR))
        heat = _resized(self.heat, size)
        return heat_panels(picture.astype(np.float32) / 255, heat, *self.heat_range, self.title, HEAT_UNIT)


def save_overlay(result: AnomalyResult, folder: str | os.PathLike) -> Path:
    """
    Write radiograph and heat map side by side as JPEG, see :meth:`AnomalyResult.picture_with_heat`.

    Args:
        result: of one image.
        folder: where to, see :func:`monai_afire.utils.output_path`.

    Returns:
        The file.
    """
    path = output_path(folder, result.source, result.root, ".jpg")
    with atomic_path(path) as temporary:
        Image.fromarray(result.picture_with_heat()).save(temporary, format="JPEG", quality=_JPEG_QUALITY)
    return path


def save_secondary_capture(result: AnomalyResult, folder: str | os.PathLike) -> Path:
    """
    Write the same picture as DICOM Secondary Capture in the study of its source.

    Args:
        result: of one image.
        folder: where to, see :func:`monai_afire.utils.output_path`.

    Returns:
        The file.

    Raises:
        NoStudyError: when the source is no DICOM file, or does not say which study it belongs to.
    """
    try:
        capture = secondary_capture(result.picture_with_heat(), read_source(result.source), result.title)
    except NoStudyError:
        raise
    except (ValueError, TypeError, NotImplementedError) as error:  # of pydicom: the pixels could be read all the same
        raise NoStudyError(f"{result.source} has a header that cannot be copied: {error}") from error
    path = output_path(folder, result.source, result.root, ".dcm")
    with atomic_path(path) as temporary:
        capture.save_as(temporary, enforce_file_format=True)
    return path


def save_map(result: AnomalyResult, folder: str | os.PathLike) -> Path:
    """
    Write the heat map as NIfTI in the geometry of the original, to be laid over it in any viewer.

    Args:
        result: of one image.
        folder: where to, see :func:`monai_afire.utils.output_path`.

    Returns:
        The file.
    """
    path = output_path(folder, result.source, result.root, ".nii.gz")
    if result.geometry is not None:
        result.geometry.save(result.geometry.to_file(result.heat), path)
        return path
    volume = nibabel.Nifti1Image(_resized(result.heat, result.spatial_shape), result.affine)
    with atomic_path(path) as temporary:
        temporary.write_bytes(gzip.compress(volume.to_bytes(), compresslevel=1, mtime=0))
    return path


def save_embedding(result: AnomalyResult, folder: str | os.PathLike) -> Path:
    """
    Write the tokens as ``.npz`` with "tokens" ``(L, D)`` and their mean "embedding" ``(D,)``.

    Args:
        result: of one image.
        folder: where to, see :func:`monai_afire.utils.output_path`.

    Returns:
        The file.
    """
    path = output_path(folder, result.source, result.root, ".npz")
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, tokens=result.tokens, embedding=result.tokens.mean(0))
    return path


def _resized(heat: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    plane = torch.from_numpy(np.ascontiguousarray(heat, dtype=np.float32))[None, None]
    return F.interpolate(plane, size=size, mode="bilinear")[0, 0].numpy()
