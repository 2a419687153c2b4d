# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a detector has found in one image, and the files that can be made of it: pictures, DICOM, map, embedding."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path

import nibabel
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from pydicom.dataset import Dataset

from monai_afire.apps.results.output_paths import output_path
from monai_afire.apps.results.pictures.draw import NOT_CLINICAL
from monai_afire.apps.results.result_pictures import in_proportion, resized_maps
from monai_afire.apps.worklist.dicom_results import (
    NoStudyError,
    read_source,
    secondary_capture,
    structured_report,
)
from monai_afire.apps.worklist.heat_panels import emphasized_heat_map, gray_picture, heat_panels
from monai_afire.apps.worklist.normal_images import Judgment
from monai_afire.networks.weights.description import Description
from monai_afire.transforms.radiograph_files import WRITER
from monai_afire.utils.files import atomic_path

UNDESCRIBED = Description("anomaly detector")
_JPEG_QUALITY = 90  # a third of a PNG's size
_THUMBNAIL_SIDE, _THUMBNAIL_QUALITY = 192, 80
_UNCOPYABLE = (ValueError, TypeError, LookupError, NotImplementedError)


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
        heat_range: heat at which the overlay's color begins and ends.
        score: fused score.
        judgment: what the normal images say about it.
        lung_zone: of :func:`monai_afire.apps.worklist.lung_zone`.
        model: what the detector's file says about it, for reports.
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
    judgment: Judgment
    lung_zone: str = ""
    model: Description = UNDESCRIBED

    @property
    def title(self) -> str:
        """Score, threshold and decision; no name, so that pictures can be shown to others."""
        if self.judgment.not_judged:
            return f"score {self.score:.3f}, not judged: {self.judgment.not_judged}"
        threshold = self.judgment.threshold
        if not np.isfinite(threshold):
            return f"score {self.score:.3f}, no threshold"
        decision = "above" if self.score >= threshold else "below"
        return f"score {self.score:.3f}, {decision} the threshold of {threshold:.3f}"

    @cached_property
    def planes(self) -> tuple[NDArray, NDArray]:
        """Picture in [0, 1] and heat of its shape, in the proportions of the file."""
        picture = in_proportion(self.picture, self.spatial_shape)
        return picture, resized_maps(self.heat[None], picture.shape)[0]

    def picture_with_heat(self) -> NDArray[np.uint8]:
        """Radiograph and heat map side by side under the title, which says that it is not for clinical use."""
        picture, heat = self.planes
        return heat_panels(picture, heat, *self.heat_range, f"{self.title}; {NOT_CLINICAL}")


def overlay_jpeg(result: AnomalyResult) -> bytes:
    """Radiograph and heat map side by side."""
    return _jpeg(Image.fromarray(result.picture_with_heat()), _JPEG_QUALITY)


def thumbnail_jpeg(result: AnomalyResult) -> bytes:
    """The same, small, in two squares, for the page of the work-list."""
    side = _THUMBNAIL_SIDE
    picture, heat = result.planes
    small = ImageOps.contain(gray_picture(picture), (side, side), Image.Resampling.BILINEAR)
    hot = resized_maps(heat[None], small.size[::-1])[0]
    colored = emphasized_heat_map(np.asarray(small) / 255, hot, *result.heat_range)
    sheet = Image.new("RGB", (2 * side, side))
    row, column = (side - small.height) // 2, (side - small.width) // 2
    sheet.paste(small, (column, row))
    sheet.paste(Image.fromarray(colored), (side + column, row))
    return _jpeg(sheet, _THUMBNAIL_QUALITY)


def _jpeg(picture: Image.Image, quality: int) -> bytes:
    content = BytesIO()
    picture.save(content, format="JPEG", quality=quality, comment=WRITER)
    return content.getvalue()


def capture_dicom(result: AnomalyResult) -> bytes:
    """The overlay as DICOM Secondary Capture in the study of its source, or ``NoStudyError``."""
    picture = result.picture_with_heat()
    return _dicom(result, lambda source: secondary_capture(picture, source, result.title))


def report_dicom(result: AnomalyResult) -> bytes:
    """Score, p-value and place as DICOM Structured Report in the study of its source, or ``NoStudyError``."""
    facts = (result.score, result.judgment, result.lung_zone, result.model)
    return _dicom(result, lambda source: structured_report(source, *facts))


def _dicom(result: AnomalyResult, make: Callable[[Dataset], Dataset]) -> bytes:
    try:
        made = make(read_source(result.source))
    except NoStudyError:
        raise
    except _UNCOPYABLE as error:  # the pixels could be read all the same
        reason = f"{result.source} has a header that cannot be copied: {error}"
        raise NoStudyError(reason) from error
    content = BytesIO()
    made.save_as(content, enforce_file_format=True)
    return content.getvalue()


def map_nifti(result: AnomalyResult) -> bytes:
    """The heat map in the geometry of the file, for an overlay in any viewer."""
    heat = resized_maps(result.heat[None], result.spatial_shape)[0]
    volume = nibabel.Nifti1Image(heat, result.affine)
    return gzip.compress(volume.to_bytes(), compresslevel=1, mtime=0)


def embedding_npz(result: AnomalyResult) -> bytes:
    """The tokens ``(L, D)`` and their mean ``(D,)``, by the names "tokens" and "embedding"."""
    content = BytesIO()
    np.savez(content, tokens=result.tokens, embedding=result.tokens.mean(0))
    return content.getvalue()


KINDS: dict[str, tuple[str, Callable[[AnomalyResult], bytes]]] = {
    "overlays": (".jpg", overlay_jpeg),
    "thumbnails": (".jpg", thumbnail_jpeg),
    "dicom": (".dcm", capture_dicom),
    "sr": (".dcm", report_dicom),
    "maps": (".nii.gz", map_nifti),
    "embeddings": (".npz", embedding_npz),
}
"""Kinds of ``saved``: the ending of their files, and what makes their content."""


def save_result(result: AnomalyResult, kind: str, folder: str | os.PathLike) -> Path:
    """Write a file of one of ``KINDS`` below a folder, complete or not at all."""
    suffix, content_of = KINDS[kind]
    content = content_of(result)
    path = output_path(folder, result.source, result.root, suffix)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    return path
