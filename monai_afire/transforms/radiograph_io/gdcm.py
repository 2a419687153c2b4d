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
from monai_afire.transforms.radiograph_io.planes import read_with_itk

GDCM_SYNTAXES = (
    uid.JPEGExtended12Bit,
    uid.JPEGLossless,
    uid.JPEGLosslessSV1,
    uid.JPEGLSLossless,
    uid.JPEGLSNearLossless,
)
# Markers of ISO/IEC 10918-1 and 14495-1: a frame header is SOF0 to SOF15, less DHT, JPG and DAC, or SOF55 of JPEG-LS.
_FRAME_HEADERS = {*range(0xC0, 0xD0), 0xF7} - {0xC4, 0xC8, 0xCC}
_FILL, _START_OF_SCAN, _END_OF_IMAGE = 0xFF, 0xDA, b"\xff\xd9"


def decode_with_gdcm(path: str, dataset: pydicom.Dataset) -> np.ndarray:
    """Decode the one gray frame of a data set whose transfer syntax is one of ``GDCM_SYNTAXES``."""
    name = dataset.file_meta.TransferSyntaxUID.name
    if int(dataset.get("SamplesPerPixel") or 1) != 1:
        reason = f"is a color picture compressed as {name}, of which only gray pictures are decoded"
        raise refuse(path, reason, "store it in gray or uncompressed")
    try:
        frame = pydicom.encaps.get_frame(dataset.PixelData, 0, number_of_frames=1)
        precision = _check_frame(frame, dataset)
        values = decode_frame(frame, dataset.file_meta.TransferSyntaxUID, dataset.Rows, dataset.Columns, precision)
    except ValueError as error:
        reason = f"is cut or damaged: its pixel data cannot be decoded ({first_line(error)})"
        raise refuse(path, reason, "export it again") from error
    return _as_stored(values, dataset)


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
    bare.SamplesPerPixel, bare.PixelRepresentation, bare.PhotometricInterpretation = 1, 0, "MONOCHROME2"
    bare.PixelData = pydicom.encaps.encapsulate([frame])
    bare["PixelData"].VR = "OB"
    with tempfile.TemporaryDirectory(prefix="monai_afire_") as folder:
        path = os.path.join(folder, "frame.dcm")
        bare.save_as(path, enforce_file_format=True)
        return read_with_itk(path, itk.GDCMImageIO.New()).reshape(rows, columns)


def _check_frame(frame: bytes, dataset: pydicom.Dataset) -> int:
    """Compare a frame with the header of its file before memory is allocated for it; the decoder itself trusts both."""
    precision, rows, columns, samples = _frame_header(frame)
    if (rows, columns, samples) != (int(dataset.Rows), int(dataset.Columns), 1):
        found = f"the frame has {rows} rows, {columns} columns and {samples} samples"
        raise ValueError(f"{found}, the header {dataset.Rows}, {dataset.Columns} and 1")
    if not 2 <= precision <= min(16, int(dataset.BitsAllocated)):
        raise ValueError(f"the frame has {precision} bits, the header {dataset.BitsAllocated}")
    if not frame.rstrip(b"\x00").endswith(_END_OF_IMAGE):
        raise ValueError("the frame has no end")
    return precision


def _frame_header(frame: bytes) -> tuple[int, int, int, int]:
    """Bits, rows, columns and samples that the frame header of a JPEG or JPEG-LS stream states."""
    position = 2  # after the start of image
    while position + 10 <= len(frame) and frame[position] == _FILL and frame[position + 1] != _START_OF_SCAN:
        marker, start = frame[position + 1], position + 4
        if marker in _FRAME_HEADERS:
            rows, columns = (int.from_bytes(frame[at : at + 2], "big") for at in (start + 1, start + 3))
            return frame[start], rows, columns, frame[start + 5]
        position += 1 if marker == _FILL else 2 + int.from_bytes(frame[position + 2 : start], "big")
    raise ValueError("the frame has no header")


def _as_stored(values: np.ndarray, dataset: pydicom.Dataset) -> np.ndarray:
    """Give unsigned numbers the type of the file; the highest of its stored bits is the sign, if it has signs."""
    dtype = pixel_dtype(dataset).newbyteorder("=")
    if dtype.kind == "u":
        return values.astype(dtype)
    unused = dtype.itemsize * 8 - int(dataset.get("BitsStored") or dataset.BitsAllocated)
    return (values.astype(f"u{dtype.itemsize}") << unused).view(dtype) >> unused
