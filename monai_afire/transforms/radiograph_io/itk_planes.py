# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Reader of MetaImage and NRRD files that hold one two-dimensional picture, and what else is read through ITK.

ITK is imported where it is needed only: the first picture read through it costs seconds.
"""

from __future__ import annotations

import math
import os
import re
from typing import Any

import numpy as np

from monai_afire.transforms.radiograph_io.common import RadiographPixels, SizeLimits, first_line, refuse
from monai_afire.transforms.radiograph_io.planes import picture_axes, plane_pixels

__all__ = ["read_itk_plane", "read_with_itk"]

_MAX_HEADER_BYTES = 2**16
_FIELD = re.compile(r"^([\w ]+?) *[:=]+ *(.*?)\s*$", re.MULTILINE)
_HEADER_END = {
    "MetaImage": re.compile(rb"^ElementDataFile *=.*\n?", re.MULTILINE),
    "NRRD": re.compile(rb"\r?\n\r?\n"),
}


def read_itk_plane(path: str, file_format: str, limits: SizeLimits) -> RadiographPixels:
    """Read a MetaImage or NRRD file whose axes have length 1 except two; the picture is turned as one of NIfTI is.

    Args:
        path: the file.
        file_format: "MetaImage" or "NRRD", as found from the content.
        limits: sizes that are accepted, checked on the header.

    Raises:
        RadiographError: When the file is cut, damaged, of the wrong size, a volume, or not of one number per pixel;
            when its pixels are in another file that does not lie beside it.
    """
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
    if file_format == "MetaImage" and fields.get("BinaryData", "True").lower() == "true" and available < needed:
        reason = f"is cut or damaged: {source} has {available} bytes of pixels of {needed}"
        raise refuse(path, reason, "copy or export it again")
    try:
        values = read_with_itk(path, header)
    except TypeError as error:
        raise refuse(path, str(error), "save it as 16-bit integers") from error
    except ValueError as error:
        reason = f"is cut or damaged: its {file_format} data cannot be read ({error})"
        raise refuse(path, reason, "copy or export it again") from error
    bits = 8 * pixel_bytes
    return plane_pixels(path, values.T, affine, limits, file_format=file_format, bits=bits)


def read_with_itk(path: str, imageio: Any) -> np.ndarray:
    """Read a file by one of ITK's ``ImageIO`` classes; the axes are in the order of NumPy, ``(..., z, y, x)``.

    Raises:
        TypeError: When ITK is not built for this type of numbers.
        ValueError: When ITK cannot read the file. Either message is one line.
    """
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
    """File of the pixels, how many bytes of it can be pixels, and the fields of the header.

    A header may send its reader to any file of the machine; followed is none but the one beside it.
    """
    with open(path, "rb") as stream:
        start = stream.read(_MAX_HEADER_BYTES)
    end = _HEADER_END[file_format].search(start)
    if not end:
        raise refuse(path, f"is cut or damaged: its {file_format} header has no end", "copy or export it again")
    fields = dict(_FIELD.findall(os.fsdecode(start[: end.end()])))
    if file_format == "NRRD":
        names = {re.sub(r"\W", "", name).lower() for name in fields}
        if elsewhere := names & {"datafile", "byteskip", "lineskip"}:
            reason = f"has its pixels elsewhere than behind its header ({', '.join(sorted(elsewhere))})"
            raise refuse(path, reason, "save header and pixels as one .nrrd file")
        return path, os.path.getsize(path) - end.end(), fields
    name = fields["ElementDataFile"]
    if name.upper() == "LOCAL":
        return path, os.path.getsize(path) - end.end(), fields
    beside = os.path.join(os.path.dirname(path), name)
    if os.path.basename(name) != name or not os.path.isfile(beside):
        raise refuse(
            path, f"has its pixels in {name!r}, which is no file beside it", "copy both, or save one .mha file"
        )
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
    lines = [line for line in str(error).splitlines() if line.strip() and ".cxx:" not in line] or ["unknown"]
    line = lines[-1] if lines[-1].startswith("[nrrd]") else lines[0]
    return first_line(ValueError(re.sub(r"ITK ERROR: |\w+\(0x[0-9a-f]+\): |\[nrrd\] ", "", line)))
