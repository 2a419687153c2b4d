# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Reader of NIfTI files that hold one two-dimensional picture."""

from __future__ import annotations

import gzip
import io
import logging
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import nibabel as nib
import numpy as np

from monai_afire.transforms.radiograph_io.common import (
    RadiographPixels,
    SizeLimits,
    planar_affine,
    refuse,
    require_real,
    rgb_to_gray,
)

__all__ = ["read_nifti"]

_MAX_OFFSET = 2**24  # bytes of header and extensions before the first pixel
_GZIP_MAGIC = b"\x1f\x8b"


def read_nifti(path: str, limits: SizeLimits) -> RadiographPixels:
    """Read a NIfTI-1 or NIfTI-2 file, compressed or not, whose axes have length 1 except two.

    The affine tells which axis runs along the rows. A coronal or sagittal plane is shown with the head up and the
    patient's right, or front, on the left. In the x-y plane, which writers of flat pictures use as a stand-in, the x
    axis runs from left to right and the y axis from top to bottom, whatever the signs.

    Args:
        path: the file.
        limits: sizes that are accepted, checked on the header.

    Raises:
        RadiographError: When the file is cut, damaged, of the wrong size, or a volume.
    """
    with open(path, "rb") as stream:
        compressed = stream.read(2) == _GZIP_MAGIC
    with gzip.open(path, "rb") if compressed else open(path, "rb") as stream:
        image = _read_image(path, stream, limits)
    row, column = _picture_axes(path, image.header, limits)
    return _to_pixels(path, image, np.asanyarray(image.dataobj), row, column)


def _read_image(path: str, stream: IO[bytes] | gzip.GzipFile, limits: SizeLimits) -> nib.Nifti1Image:
    """Take as many bytes as an acceptable header announces, however many a compressed file inflates to."""
    start = stream.read(nib.Nifti2Header.template_dtype.itemsize)
    second = 540 in (int.from_bytes(start[:4], "little"), int.from_bytes(start[:4], "big"))
    kind = nib.Nifti2Image if second else nib.Nifti1Image
    header = kind.header_class(start[: kind.header_class.template_dtype.itemsize], check=False)
    _picture_axes(path, header, limits)
    offset = int(header["vox_offset"])
    if not 0 <= offset <= _MAX_OFFSET:
        raise refuse(path, f"has its first pixel at byte {offset}, where no file has it", "export it again")
    needed = max(offset, len(start)) + math.prod(header.get_data_shape()) * header.get_data_dtype().itemsize
    content = io.BytesIO(start + stream.read(needed - len(start)))
    with _named_in_log(path):
        return kind.from_stream(content)


@contextmanager
def _named_in_log(path: str) -> Iterator[None]:
    """Put the file's name in front of what nibabel logs of its header, in this thread."""
    thread = threading.get_ident()

    def add_name(record: logging.LogRecord) -> bool:
        if record.thread == thread:
            record.msg, record.args = f"{path}: {record.getMessage()}", ()
        return True

    logger = nib.imageglobals.logger
    logger.addFilter(add_name)
    try:
        yield
    finally:
        logger.removeFilter(add_name)


def _picture_axes(path: str, header: nib.Nifti1Header, limits: SizeLimits) -> tuple[int, int]:
    """Axes of the array that become the rows and the columns."""
    shape = tuple(int(n) for n in header.get_data_shape())
    text = " x ".join(map(str, shape))
    axes = [axis for axis, length in enumerate(shape) if length != 1]
    if len(axes) > 2 or any(axis > 2 for axis in axes) or math.prod(shape) == 0:
        reason = f"has the shape {text}, where one 2-D picture is expected (two axes longer than 1)"
        raise refuse(path, reason, "save the wanted slice as a file of its own")
    first, second = (axes + [axis for axis in range(3) if axis not in axes])[:2]
    limits.check(path, *((*shape, 1, 1, 1)[axis] for axis in (second, first)))
    world = _world_axes(header.get_best_affine())
    # Rows follow the vertical direction of the body, or y in the stand-in plane: the higher of the two world axes.
    return (first, second) if world[first] > world[second] else (second, first)


def _world_axes(affine: np.ndarray) -> list[int]:
    """World axis (0 = x, 1 = y, 2 = z) of each axis of the array; its own number where the affine is degenerate."""
    orientation = nib.io_orientation(affine)[:, 0]
    return [int(world) if np.isfinite(world) else axis for axis, world in enumerate(orientation)]


def _to_pixels(path: str, image: nib.Nifti1Image, values: np.ndarray, row: int, column: int) -> RadiographPixels:
    affine = np.asarray(image.affine, dtype=np.float64)
    shape = (*image.shape, 1, 1, 1)[:3]
    values = values.reshape(shape)
    values = np.moveaxis(values, (row, column), (0, 1))[:, :, 0]
    photometric = "MONOCHROME2"
    if values.dtype.fields:
        values, photometric = rgb_to_gray(np.stack([values[name] for name in ("R", "G", "B")], axis=-1)), "RGB"
    require_real(path, values.dtype)
    lengths = np.linalg.norm(affine[:3, :3], axis=0)
    spacing = (float(lengths[row]), float(lengths[column]))
    normal = 3 - row - column
    plane = affine[:, [row, column, normal, 3]]
    if 2 in (world := _world_axes(affine))[row : row + 1] + world[column : column + 1]:
        values = values[:: -1 if affine[world[row], row] > 0 else 1, :: -1 if affine[world[column], column] > 0 else 1]
        plane = planar_affine(spacing)
    return RadiographPixels(
        values=np.ascontiguousarray(values),
        file_format="NIfTI",
        photometric=photometric,
        bits=int(image.header["bitpix"]),
        affine=plane,
        spacing=spacing,
    )
