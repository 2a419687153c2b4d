# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Decoder of the JPEG families that pydicom with Pillow lacks: GDCM, which comes with ITK."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import pydicom
from pydicom import uid
from pydicom.pixels import convert_color_space
from pydicom.pixels.utils import pixel_dtype

from monai_afire.transforms.radiograph_io.common import RadiographError, refuse
from monai_afire.transforms.radiograph_io.frame_headers import read_frame_header
from monai_afire.transforms.radiograph_io.planes import read_with_itk
from monai_afire.utils.text import first_line

GDCM_SYNTAXES = (
    uid.JPEGBaseline8Bit,
    uid.JPEGExtended12Bit,
    uid.JPEGLossless,
    uid.JPEGLosslessSV1,
    uid.JPEGLSLossless,
    uid.JPEGLSNearLossless,
    uid.JPEG2000Lossless,
    uid.JPEG2000,
)
# whose decoders leave the colors as they were stored
_KEEPS_COLORS = (
    uid.JPEGLossless,
    uid.JPEGLosslessSV1,
    uid.JPEGLSLossless,
    uid.JPEGLSNearLossless,
)
_END_OF_IMAGE = b"\xff\xd9"  # of the codecs of all of them


def decode_with_gdcm(path: str, dataset: pydicom.Dataset) -> np.ndarray:
    """
    Decode the one frame of a data set whose transfer syntax is one of ``GDCM_SYNTAXES``.

    Returns:
        Numbers ``(H, W)``, or red, green and blue ``(H, W, 3)``.

    Raises:
        RadiographError: When the frame is cut, cannot be decoded, or has colors that the decoder may change.
    """
    syntax = dataset.file_meta.TransferSyntaxUID
    samples = int(dataset.get("SamplesPerPixel") or 1)
    # ITK's Python package has no color pictures of 16 bits
    is_byte = int(dataset.BitsAllocated) == 8
    if samples != 1 and (syntax not in _KEEPS_COLORS or not is_byte):
        reason = f"is a color picture of {dataset.BitsAllocated} bits compressed as {syntax.name}, which is not decoded"
        raise refuse(path, reason, "store it in gray or uncompressed")
    try:
        frame = pydicom.encaps.get_frame(dataset.PixelData, 0, number_of_frames=1)
        header = read_frame_header(frame)
        if not frame.rstrip(b"\x00").endswith(_END_OF_IMAGE):
            # GDCM fills the rest of a cut picture without a word
            raise ValueError("the frame has no end")
        size = (header.rows, header.columns)
        values = decode_frame(frame, syntax, *size, header.precision, samples)
    except ValueError as error:
        raise damaged_pixels(path, error) from error
    if samples == 1:
        return _as_stored(values, dataset, header.precision)
    stored = values.astype(pixel_dtype(dataset).newbyteorder("="))
    photometric = str(dataset.PhotometricInterpretation)
    return stored if photometric == "RGB" else convert_color_space(stored, photometric, "RGB")


def damaged_pixels(path: str, error: Exception) -> RadiographError:
    """The error of pixels that a decoder has refused."""
    # pydicom says first that no decoder succeeded, and then why each of them did not
    details = first_line(ValueError(str(error).partition("plugins:")[2] or str(error)))
    reason = f"is cut or damaged: its pixel data cannot be decoded ({details})"
    return refuse(path, reason, "export it again")


def decode_frame(
    frame: bytes, syntax: str, rows: int, columns: int, precision: int, samples: int = 1
) -> np.ndarray:
    """Decode one compressed frame into unsigned numbers ``(rows, columns)``, or ``(rows, columns, samples)``."""
    import itk

    bare = pydicom.Dataset()
    bare.file_meta = pydicom.dataset.FileMetaDataset()
    bare.file_meta.TransferSyntaxUID = uid.UID(syntax)
    bare.SOPClassUID, bare.SOPInstanceUID = uid.SecondaryCaptureImageStorage, "1.2.3"
    bare.Rows, bare.Columns = rows, columns
    bare.BitsAllocated = 8 if precision <= 8 else 16
    bare.BitsStored, bare.HighBit = precision, precision - 1
    bare.SamplesPerPixel, bare.PixelRepresentation = samples, 0
    bare.PhotometricInterpretation = "MONOCHROME2"
    if samples != 1:
        bare.PhotometricInterpretation, bare.PlanarConfiguration = "RGB", 0
    bare.PixelData = pydicom.encaps.encapsulate([frame])
    bare["PixelData"].VR = "OB"
    with tempfile.TemporaryDirectory(prefix="monai_afire_") as folder:
        path = os.path.join(folder, "frame.dcm")
        bare.save_as(path, enforce_file_format=True)
        values = read_with_itk(path, itk.GDCMImageIO.New())
    return values.reshape((rows, columns) if samples == 1 else (rows, columns, samples))


def _as_stored(values: np.ndarray, dataset: pydicom.Dataset, precision: int) -> np.ndarray:
    """Give unsigned numbers the type of the file; the highest of the frame's bits is the sign, if it has signs."""
    dtype = pixel_dtype(dataset).newbyteorder("=")
    if dtype.kind == "u":
        return values.astype(dtype)
    unused = dtype.itemsize * 8 - precision
    return (values.astype(f"u{dtype.itemsize}") << unused).view(dtype) >> unused
