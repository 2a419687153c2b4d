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

from monai_afire.transforms.radiograph_io.common import RadiographPixels, SizeLimits, refuse
from monai_afire.transforms.radiograph_io.planes import picture_axes, plane_pixels
from monai_afire.transforms.radiograph_io.shards import open_file

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
    with open_file(path) as stream:
        compressed = stream.read(2) == _GZIP_MAGIC
        stream.seek(0)
        image = _read_image(path, gzip.GzipFile(fileobj=stream) if compressed else stream, limits)
    bits = int(image.header["bitpix"])
    return plane_pixels(path, np.asanyarray(image.dataobj), image.affine, limits, file_format="NIfTI", bits=bits)


def _read_image(path: str, stream: IO[bytes] | gzip.GzipFile, limits: SizeLimits) -> nib.Nifti1Image:
    """Take as many bytes as an acceptable header announces, however many a compressed file inflates to."""
    start = stream.read(nib.Nifti2Header.template_dtype.itemsize)
    second = 540 in (int.from_bytes(start[:4], "little"), int.from_bytes(start[:4], "big"))
    kind = nib.Nifti2Image if second else nib.Nifti1Image
    header = kind.header_class(start[: kind.header_class.template_dtype.itemsize], check=False)
    picture_axes(path, header.get_data_shape(), header.get_best_affine(), limits)
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
