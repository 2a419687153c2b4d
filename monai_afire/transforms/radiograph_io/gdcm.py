# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Decoder of the JPEG families that pydicom with Pillow lacks: GDCM, which comes with ITK."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import pydicom
from pydicom import uid
from pydicom.pixels.utils import pixel_dtype

from monai_afire.transforms.radiograph_io.common import first_line, refuse
from monai_afire.transforms.radiograph_io.frame_headers import read_frame_header
from monai_afire.transforms.radiograph_io.planes import read_with_itk

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
_END_OF_IMAGE = b"\xff\xd9"  # of the codecs of all of them


def decode_with_gdcm(path: str, dataset: pydicom.Dataset) -> np.ndarray:
    """
    Decode the one gray frame of a data set whose transfer syntax is one of ``GDCM_SYNTAXES``.

    Raises:
        RadiographError: When the frame is in color, is cut or cannot be decoded.
    """
    syntax = dataset.file_meta.TransferSyntaxUID
    if int(dataset.get("SamplesPerPixel") or 1) != 1:
        reason = f"is a color picture compressed as {syntax.name}, of which only gray pictures are decoded"
        raise refuse(path, reason, "store it in gray or uncompressed")
    try:
        frame = pydicom.encaps.get_frame(dataset.PixelData, 0, number_of_frames=1)
        header = read_frame_header(frame)
        if not frame.rstrip(b"\x00").endswith(
            _END_OF_IMAGE
        ):  # GDCM fills the rest of a cut picture without a word
            raise ValueError("the frame has no end")
        values = decode_frame(frame, syntax, header.rows, header.columns, header.precision)
    except ValueError as error:
        reason = f"is cut or damaged: its pixel data cannot be decoded ({first_line(error)})"
        raise refuse(path, reason, "export it again") from error
    return _as_stored(values, dataset, header.precision)


def decode_frame(frame: bytes, syntax: str, rows: int, columns: int, precision: int) -> np.ndarray:
    """Decode one compressed gray frame into unsigned numbers ``(rows, columns)``."""
    import itk

    bare = pydicom.Dataset()
    bare.file_meta = pydicom.dataset.FileMetaDataset()
    bare.file_meta.TransferSyntaxUID = uid.UID(syntax)
    bare.SOPClassUID, bare.SOPInstanceUID = uid.SecondaryCaptureImageStorage, "1.2.3"
    bare.Rows, bare.Columns = rows, columns
    bare.BitsAllocated = 8 if precision <= 8 else 16
    bare.BitsStored, bare.HighBit = precision, precision - 1
    bare.SamplesPerPixel, bare.PixelRepresentation, bare.PhotometricInterpretation = (
        1,
        0,
        "MONOCHROME2",
    )
    bare.PixelData = pydicom.encaps.encapsulate([frame])
    bare["PixelData"].VR = "OB"
    with tempfile.TemporaryDirectory(prefix="monai_afire_") as folder:
        path = os.path.join(folder, "frame.dcm")
        bare.save_as(path, enforce_file_format=True)
        return read_with_itk(path, itk.GDCMImageIO.New()).reshape(rows, columns)


def _as_stored(values: np.ndarray, dataset: pydicom.Dataset, precision: int) -> np.ndarray:
    """Give unsigned numbers the type of the file; the highest of the frame's bits is the sign, if it has signs."""
    dtype = pixel_dtype(dataset).newbyteorder("=")
    if dtype.kind == "u":
        return values.astype(dtype)
    unused = dtype.itemsize * 8 - precision
    return (values.astype(f"u{dtype.itemsize}") << unused).view(dtype) >> unused
