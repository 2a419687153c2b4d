# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Files of a detector's results for one image: overlay, anomaly map, embedding."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from monai_afire.utils.files import atomic_path, output_path
from monai_afire.visualize.heat_map import overlay_heat_map

__all__ = ["AnomalyResult", "save_embedding", "save_map", "save_overlay"]


@dataclass
class AnomalyResult:
    """
    Result of a detector for one image: scores, maps and embedding as arrays in memory, nothing on a device.

    Attributes:
        source: its file.
        root: folder that its place in the output folder is relative to.
        heat: ``(h, w)`` fused heat at the resolution of the network's input.
        tokens: ``(L, D)``.
        picture: ``(h, w)`` uint8 to draw the overlay on.
        spatial_shape: (rows, columns) of the file.
        affine: ``(4, 4)`` of the file.
        heat_range: heat at which the overlay's colour begins and ends.
    """

    source: str
    root: str
    heat: np.ndarray
    tokens: np.ndarray
    picture: np.ndarray
    spatial_shape: tuple[int, int]
    affine: np.ndarray
    heat_range: tuple[float, float]


def save_overlay(result: AnomalyResult, folder: str | os.PathLike) -> Path:
    """
    Write the heat map over the picture as PNG, in the proportions of the original, its longer side as the picture's.

    Args:
        result: of one image.
        folder: where to, see :func:`monai_afire.utils.output_path`.

    Returns:
        The file.
    """
    rows, columns = result.spatial_shape
    scale = max(result.picture.shape) / max(rows, columns)
    size = (max(1, round(rows * scale)), max(1, round(columns * scale)))
    picture = np.asarray(Image.fromarray(result.picture).resize(size[::-1], Image.Resampling.BILINEAR))
    heat = _resized(result.heat, size)
    overlay = overlay_heat_map(picture.astype(np.float32) / 255, heat, *result.heat_range)
    path = output_path(folder, result.source, result.root, ".png")
    with atomic_path(path) as temporary:
        # the weakest compression: the file is a fifth larger, writing it takes a third of the time
        Image.fromarray(overlay).save(temporary, format="PNG", compress_level=1)
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


def _resized(heat: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    plane = torch.from_numpy(np.ascontiguousarray(heat, dtype=np.float32))[None, None]
    return F.interpolate(plane, size=size, mode="bilinear")[0, 0].numpy()
