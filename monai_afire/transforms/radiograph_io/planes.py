# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Readers of NIfTI, MetaImage and NRRD files that hold one picture, which is turned upright."""

from __future__ import annotations

import gzip
import io
import math
import os
import re
from collections.abc import Sequence
from typing import IO, Any

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
from monai_afire.utils.text import first_line

_MAX_OFFSET = 2**24  # bytes of header and extensions of NIfTI before the first pixel
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_HEADER_BYTES = 2**16  # of MetaImage and NRRD
_FIELD = re.compile(r"^([\w ]+?) *[:=]+ *(.*?)\s*$", re.MULTILINE)
_HEADER_END = {
    "MetaImage": re.compile(rb"^ElementDataFile *=.*\n?", re.MULTILINE),
    "NRRD": re.compile(rb"\r?\n\r?\n"),
}


def picture_axes(
    path: str, shape: Sequence[int], affine: np.ndarray, limits: SizeLimits
) -> tuple[int, int]:
    """Axes of an array that become the rows and the columns."""
    shape = tuple(int(n) for n in shape)
    text = " x ".join(map(str, shape))
    axes = [axis for axis, length in enumerate(shape) if length != 1]
    if len(axes) > 2 or any(axis > 2 for axis in axes) or math.prod(shape) == 0:
        reason = f"has the shape {text}, where one 2-D picture is expected (two axes longer than 1)"
        raise refuse(path, reason, "save the wanted slice as a file of its own")
    first, second = (axes + [axis for axis in range(3) if axis not in axes])[:2]
    limits.check(path, *((*shape, 1, 1, 1)[axis] for axis in (second, first)))
    world = _world_axes(affine)
    # Rows follow the vertical direction of the body, or y in the plane of x and y: the higher of the two world axes.
    return (first, second) if world[first] > world[second] else (second, first)


def plane_pixels(
    path: str,
    values: np.ndarray,
    affine: np.ndarray,
    limits: SizeLimits,
    file_format: str,
    bits: int,
) -> RadiographPixels:
    """Turn the one plane of an array upright, with its affine."""
    row, column = picture_axes(path, values.shape, affine, limits)
    affine = np.asarray(affine, dtype=np.float64)
    values = values.reshape((*values.shape, 1, 1, 1)[:3])
    values = np.moveaxis(values, (row, column), (0, 1))[:, :, 0]
    photometric = "MONOCHROME2"
    if values.dtype.fields:
        photometric = "RGB"
        values = rgb_to_gray(np.stack([values[name] for name in "RGB"], axis=-1))
    require_real(path, values.dtype)
    plane = _known_plane(affine[:, [row, column, 3 - row - column, 3]])
    # the identity is what a writer of NIfTI leaves who knows no geometry, and then has the rows from the top
    if file_format != "NIfTI" or 2 in (row, column) or not np.array_equal(affine, np.eye(4)):
        values, plane = _upright(values, plane)
    lengths = np.linalg.norm(plane[:3, :2], axis=0)
    spacing = (float(lengths[0]), float(lengths[1]))
    return RadiographPixels(
        values=np.ascontiguousarray(values),
        file_format=file_format,
        photometric=photometric,
        bits=bits,
        affine=plane,
        spacing=spacing,
    )


def _upright(values: np.ndarray, affine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """
    Mirror a picture ``(row, column)`` so that it lies as viewers show it, and its affine with it.

    Rows run to the feet, or to the back where the plane is that of x and y, as converters of DICOM give one to
    radiographs; columns run to the left of the patient, or to the back. All of these are negative directions (RAS+).
    """
    world = _world_axes(affine)
    affine = affine.copy()
    for axis in (0, 1):
        if affine[world[axis], axis] > 0:
            values = np.flip(values, axis)
            affine[:, 3] += affine[:, axis] * (values.shape[axis] - 1)
            affine[:, axis] *= -1
    return values, affine


def _known_plane(affine: np.ndarray) -> np.ndarray:
    """The affine of a picture's plane, whose third direction may be missing; one without position where more is."""
    normal = np.cross(affine[:3, 0], affine[:3, 1])
    if not np.isfinite(affine[:, [0, 1, 3]]).all() or not normal.any():
        return planar_affine()
    axes = affine[:3, :3]
    volume = np.linalg.det(axes) if np.isfinite(axes).all() else np.nan
    if volume == 0 or not np.isfinite(volume):
        affine = affine.copy()
        affine[:3, 2] = normal / np.linalg.norm(normal)
    return affine


def _world_axes(affine: np.ndarray) -> list[int]:
    """World axis (0 = x, 1 = y, 2 = z) of each axis of the array; its own number where the affine is degenerate."""
    if not np.isfinite(affine).all():
        return [0, 1, 2]
    orientation = nib.io_orientation(affine)[:, 0]
    return [int(world) if np.isfinite(world) else axis for axis, world in enumerate(orientation)]


def read_nifti(path: str, limits: SizeLimits) -> RadiographPixels:
    """Read a NIfTI-1 or NIfTI-2 file, compressed or not, whose axes have length 1 except two."""
    with open(path, "rb") as stream:
        compressed = stream.read(2) == _GZIP_MAGIC
        stream.seek(0)
        image = _read_image(path, gzip.GzipFile(fileobj=stream) if compressed else stream, limits)
    bits = int(image.header["bitpix"])
    return plane_pixels(
        path, np.asanyarray(image.dataobj), image.affine, limits, file_format="NIfTI", bits=bits
    )


def _read_image(
    path: str, stream: IO[bytes] | gzip.GzipFile, limits: SizeLimits
) -> nib.Nifti1Image:
    """Take as many bytes as an acceptable header announces, however many a compressed file inflates to."""
    start = stream.read(nib.Nifti2Header.template_dtype.itemsize)
    second = 540 in (int.from_bytes(start[:4], "little"), int.from_bytes(start[:4], "big"))
    kind = nib.Nifti2Image if second else nib.Nifti1Image
    header = kind.header_class(start[: kind.header_class.template_dtype.itemsize], check=False)
    picture_axes(path, header.get_data_shape(), header.get_best_affine(), limits)
    offset = int(header["vox_offset"])
    if not 0 <= offset <= _MAX_OFFSET:
        reason = f"has its first pixel at byte {offset}, where no file has it"
        raise refuse(path, reason, "export it again")
    pixel_bytes = math.prod(header.get_data_shape()) * header.get_data_dtype().itemsize
    needed = max(offset, len(start)) + pixel_bytes
    content = io.BytesIO(start + stream.read(needed - len(start)))
    return kind.from_stream(content)


def read_itk_plane(path: str, file_format: str, limits: SizeLimits) -> RadiographPixels:
    """Read a MetaImage or NRRD file whose axes have length 1 except two; the picture is turned as one of NIfTI is."""
    import itk

    source, available, fields = _find_data(path, file_format)
    header = itk.MetaImageIO.New() if file_format == "MetaImage" else itk.NrrdImageIO.New()
    header.SetFileName(path)
    try:
        header.ReadImageInformation()
        pixel_bytes = header.GetComponentSize()
    except RuntimeError as error:
        raise refuse(path, f"has a damaged header ({_reason(error)})", "export it again") from error
    shape = [header.GetDimensions(axis) for axis in range(header.GetNumberOfDimensions())]
    affine = _affine(header)
    picture_axes(path, shape, affine, limits)
    if header.GetNumberOfComponents() != 1:
        reason = f"holds {header.GetNumberOfComponents()} numbers per pixel, where one gray level is expected"
        raise refuse(path, reason, "save it in gray")
    needed = int(fields.get("CompressedDataSize") or math.prod(shape) * pixel_bytes)
    is_binary = fields.get("BinaryData", "True").lower() == "true"
    if file_format == "MetaImage" and is_binary and available < needed:
        reason = f"is cut or damaged: {source} has {available} bytes of pixels of {needed}"
        raise refuse(path, reason, "copy or export it again")
    try:
        values = read_with_itk(path, header)
    except TypeError as error:
        raise refuse(path, str(error), "save it as 16-bit integers") from error
    bits = 8 * pixel_bytes
    return plane_pixels(path, values.T, affine, limits, file_format=file_format, bits=bits)


def read_with_itk(path: str, imageio: Any) -> np.ndarray:
    """Read a file by one of ITK's ``ImageIO`` classes; the axes are in the order of NumPy, ``(..., z, y, x)``."""
    import itk
    from itk.support.extras import TemplateTypeError

    try:
        return itk.array_from_image(itk.imread(path, imageio=imageio))
    except TemplateTypeError as error:
        kind = imageio.GetComponentTypeAsString(imageio.GetComponentType()).replace("_", " ")
        text = f"holds {imageio.GetNumberOfDimensions()} axes of numbers of the type {kind}"
        raise TypeError(f"{text}, of which ITK's Python package has no pictures") from error
    except RuntimeError as error:
        raise ValueError(_reason(error)) from error


def _find_data(path: str, file_format: str) -> tuple[str, int, dict[str, str]]:
    """File of the pixels, how many bytes of it can be pixels, and the fields of the header."""
    with open(path, "rb") as stream:
        start = stream.read(_MAX_HEADER_BYTES)
    end = _HEADER_END[file_format].search(start)
    if not end:
        reason = f"is cut or damaged: its {file_format} header has no end"
        raise refuse(path, reason, "copy or export it again")
    fields = dict(_FIELD.findall(os.fsdecode(start[: end.end()])))
    if file_format == "NRRD":
        names = {re.sub(r"\W", "", name).lower() for name in fields}
        if elsewhere := names & {"datafile", "byteskip", "lineskip"}:
            found = ", ".join(sorted(elsewhere))
            reason = f"has its pixels elsewhere than behind its header ({found})"
            raise refuse(path, reason, "save header and pixels as one .nrrd file")
    name = fields.get("ElementDataFile", "LOCAL")  # NRRD has its pixels behind the header
    if name.upper() == "LOCAL":
        return path, os.path.getsize(path) - end.end(), fields
    beside = os.path.join(os.path.dirname(path), name)
    if os.path.basename(name) != name or not os.path.isfile(beside):
        reason = f"has its pixels in {name!r}, which is no file beside it"
        raise refuse(path, reason, "copy both, or save one .mha")
    return beside, os.path.getsize(beside), fields


def _affine(header: Any) -> np.ndarray:
    """RAS affine of a header, whose directions are those of ITK, LPS."""
    affine = np.eye(4)
    for axis in range(min(3, header.GetNumberOfDimensions())):
        direction = np.asarray(header.GetDirection(axis))[:3]
        affine[: len(direction), axis] = direction * header.GetSpacing(axis)
        affine[axis, 3] = header.GetOrigin(axis)
    affine[:2] *= -1
    return affine


def _reason(error: RuntimeError) -> str:
    """What ITK says, without its source file and the address of its object; of NRRD's stack of calls the innermost."""
    said = [line for line in str(error).splitlines() if line.strip() and ".cxx:" not in line]
    lines = said or ["unknown"]
    line = lines[-1] if lines[-1].startswith("[nrrd]") else lines[0]
    return first_line(ValueError(re.sub(r"ITK ERROR: |\w+\(0x[0-9a-f]+\): |\[nrrd\] ", "", line)))
