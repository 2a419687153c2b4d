# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Reader of DICOM files that hold one radiograph."""

from __future__ import annotations

import math
import zlib

import numpy as np
import pydicom

from monai_afire.transforms.radiograph_io.common import (
    WRITER,
    RadiographPixels,
    SizeLimits,
    planar_affine,
    refuse,
    refuse_own_result,
    rgb_to_gray,
    warn_about,
)
from monai_afire.transforms.radiograph_io.dicom_colors import (
    PALETTE,
    check_colors,
    color_fractions,
    look_up_palette,
)
from monai_afire.transforms.radiograph_io.dicom_decoding import decode
from monai_afire.transforms.radiograph_io.functional_groups import lift_functional_groups
from monai_afire.transforms.radiograph_io.intensity import window_to_unit
from monai_afire.transforms.radiograph_io.lookup_tables import LookupTable, read_table
from monai_afire.utils.text import first_line

_PIXEL_KEYWORDS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
_REQUIRED = ("Rows", "Columns", "BitsAllocated", "PhotometricInterpretation")
_DEFER_BYTES = 2**26  # larger elements stay on disk until the header has been checked
_MAX_HEADER_BYTES = 2**24  # of a deflated data set, besides its pixels


def read_dicom(
    path: str, limits: SizeLimits, use_window: bool = True, color: bool = False
) -> RadiographPixels:
    """Read a DICOM file as one picture, a gray one with its modality transformation and, if asked, its window."""
    _check_inflated_size(path, limits)
    dataset = pydicom.dcmread(path, force=True, defer_size=_DEFER_BYTES)
    lift_functional_groups(dataset)
    _check_header(path, dataset, limits)
    stored, padding = decode(path, dataset)
    if dataset.PhotometricInterpretation == PALETTE:
        stored = look_up_palette(path, dataset, stored)
    spacing = _spacing(path, dataset)
    if stored.ndim == 3:
        if color:
            return _pixels(dataset, color_fractions(dataset, stored), spacing)
        text = f"is a color picture ({dataset.PhotometricInterpretation}), reduced to gray"
        warn_about(path, f"{text} (channels 3 keeps the colors)")
        stored = rgb_to_gray(stored)
    pixels = _modality(path, dataset, _pixels(dataset, stored, spacing))
    pixels.padding = padding
    if use_window:
        _apply_window(path, dataset, stored, pixels)
    return pixels


def _check_inflated_size(path: str, limits: SizeLimits) -> None:
    """Refuse a deflated data set that would inflate to more than the largest accepted picture needs."""
    maximum = 4 * limits.max_pixels + _MAX_HEADER_BYTES
    with open(path, "rb") as stream:  # read as pydicom does, up to where the deflated part begins
        pydicom.filereader.read_preamble(stream, force=True)
        file_meta = pydicom.filereader._read_file_meta_info(stream)
        if file_meta.get("TransferSyntaxUID") != pydicom.uid.DeflatedExplicitVRLittleEndian:
            return
        pydicom.filereader._read_command_set_elements(stream)
        inflater, total = zlib.decompressobj(wbits=-zlib.MAX_WBITS), 0
        pending = stream.read(2**16)
        while pending and not inflater.eof:
            total += _inflated(path, inflater, pending)
            pending = inflater.unconsumed_tail or stream.read(2**16)
            if total > maximum:
                reason = f"inflates to more than {maximum} bytes, more than max_pixels={limits.max_pixels} can take"
                raise refuse(path, reason, "store it uncompressed")


def _inflated(path: str, inflater: zlib._Decompress, pending: bytes) -> int:
    """Bytes that a part of a deflated data set gives."""
    try:
        return len(inflater.decompress(pending, 2**20))
    except zlib.error as error:
        syntax = pydicom.uid.DeflatedExplicitVRLittleEndian
        reason = f"states the transfer syntax {syntax.name} ({syntax}), but its data set cannot be inflated ({error})"
        remedy = "state the Transfer Syntax UID that it has, or copy or export it again"
        raise refuse(path, reason, remedy) from error


def _check_header(path: str, dataset: pydicom.Dataset, limits: SizeLimits) -> None:
    """Refuse what is not one radiograph before any pixel is decoded."""
    _check_elements(path, dataset)
    frames = int(dataset.get("NumberOfFrames") or 1)
    if frames != 1:
        reason = f"holds {frames} frames of {dataset.Columns} x {dataset.Rows} pixels where one picture is expected"
        raise refuse(path, reason, "save the wanted frame as a file of its own")
    refuse_own_result(path, dataset.get("SecondaryCaptureDeviceManufacturer") == WRITER)
    check_colors(path, dataset)
    limits.check(path, int(dataset.Rows), int(dataset.Columns))
    orientation = [str(direction)[:1] for direction in dataset.get("PatientOrientation") or ()]
    if len(orientation) == 2 and (orientation[0] in ("H", "F") or orientation[1] == "H"):
        found = f"is not upright by its Patient Orientation {'/'.join(orientation)}"
        warn_about(path, f"{found}; read as stored")


def _check_elements(path: str, dataset: pydicom.Dataset) -> None:
    """Refuse a header without pixels, or without what their interpretation takes."""
    if not len(dataset):
        reason = "is cut or damaged: its DICOM data cannot be read to the end"
        raise refuse(path, reason, "export it again")
    if not any(keyword in dataset for keyword in _PIXEL_KEYWORDS):
        kind = dataset.get("Modality") or "unknown"
        reason = f"is a DICOM file without pixel data (modality {kind})"
        raise refuse(path, reason, "leave it out, or export it again")
    missing = [keyword for keyword in _REQUIRED if not _has_value(dataset, keyword)]
    if missing:
        found = f"is a DICOM file without {', '.join(missing)}"
        remedy = "add the element, or export it again"
        raise refuse(path, f"{found}, so its pixels cannot be interpreted", remedy)


def _has_value(dataset: pydicom.Dataset, keyword: str) -> bool:
    return dataset.get(keyword) not in (None, "")


def _modality(path: str, dataset: pydicom.Dataset, pixels: RadiographPixels) -> RadiographPixels:
    """Apply the modality transformation, up to a factor that :func:`scale_to_unit` does not see."""
    stored, bits = pixels.values, pixels.bits
    signed = dataset.get("PixelRepresentation") == 1 and stored.dtype.kind == "i"
    if dataset.get("ModalityLUTSequence"):
        table = _table(path, dataset, "ModalityLUTSequence", stored)
        pixels.values, bits = table.apply(stored), table.bits
        signed = False
    else:
        slope, intercept = _rescale(path, dataset)
        pixels.inverted ^= slope < 0
        pixels.slope = slope, intercept
    if signed:  # only the intercept shows which negative number means "no signal"
        shift = intercept / slope
        pixels.values = (
            stored.astype(np.int32) + int(shift) if shift.is_integer() else stored + shift
        )
        pixels.declared_range = shift - 2.0 ** (bits - 1), shift + 2.0 ** (bits - 1) - 1
        pixels.slope = slope, 0.0
    elif pixels.values.dtype.kind != "f":
        pixels.declared_range, pixels.floor = (0.0, 2.0**bits - 1), 0.0
    return pixels


def _rescale(path: str, dataset: pydicom.Dataset) -> tuple[float, float]:
    """Slope and intercept; without them 1 and 0."""
    try:
        slope = float(dataset.get("RescaleSlope") or 1.0)
        intercept = float(dataset.get("RescaleIntercept") or 0.0)
        if not (math.isfinite(slope) and math.isfinite(intercept)):
            raise ValueError(f"{slope:g} and {intercept:g}")
    except (TypeError, ValueError) as error:
        # the sign of the slope decides what is dark: nothing to be guessed
        reason = f"has a Rescale Slope or Rescale Intercept that is no number ({first_line(error)})"
        raise refuse(path, reason, "correct the element, or export it again") from error
    return slope, intercept


def _table(path: str, dataset: pydicom.Dataset, keyword: str, numbers: np.ndarray) -> LookupTable:
    """The first lookup table of a sequence."""
    table = read_table(
        dataset[keyword].value[0], numbers, dataset.file_meta.TransferSyntaxUID.is_little_endian
    )
    if table.bits < table.stated_bits:
        text = f"states {table.stated_bits} bits for the entries of its {keyword}, which use {table.bits}"
        warn_about(path, f"{text}; shown with {table.bits}")
    return table


def _pixels(
    dataset: pydicom.Dataset, values: np.ndarray, spacing: tuple[float, float] | None
) -> RadiographPixels:
    """What the header says of numbers that are not transformed."""
    return RadiographPixels(
        values=values,
        file_format="DICOM",
        photometric=str(dataset.PhotometricInterpretation),
        bits=int(dataset.get("BitsStored") or dataset.BitsAllocated),
        affine=planar_affine(spacing),
        spacing=spacing,
        inverted=_shows_low_bright(dataset),
    )


def _shows_low_bright(dataset: pydicom.Dataset) -> bool:
    """Whether low numbers are shown bright: by the photometric interpretation, or by a lookup table's shape."""
    inverse = (
        dataset.get("PresentationLUTShape") == "INVERSE"
        and dataset.PhotometricInterpretation == "MONOCHROME2"
    )
    return inverse or dataset.PhotometricInterpretation == "MONOCHROME1"


def _spacing(path: str, dataset: pydicom.Dataset) -> tuple[float, float] | None:
    """Distance of rows and columns in mm, in the patient if calibrated, else at the detector."""
    for keyword in ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing"):
        if keyword not in dataset:
            continue
        try:
            row, column = (float(distance) for distance in dataset.get(keyword) or ())
        except (TypeError, ValueError):
            # other than two numbers, which costs the distances, not the picture
            row = column = math.nan
        if min(row, column) > 0 and math.isfinite(row + column):
            return row, column
        warn_about(path, f"has a {keyword} that is not two positive numbers, so it is left out")
    return None


def _apply_window(
    path: str, dataset: pydicom.Dataset, stored: np.ndarray, pixels: RadiographPixels
) -> None:
    """Replace the numbers by the displayed ones in [0, 1] when the file says how to display them."""
    if not pixels.photometric.startswith("MONOCHROME"):
        return
    try:
        displayed = _displayed(path, dataset, stored, pixels)
    except Exception as error:  # a damaged table can raise anything
        warn_about(path, f"has an unusable window ({first_line(error)}); scaled by its own range")
        return
    if displayed is None:
        return
    shown, (low, high), name = displayed
    inside = shown if pixels.padding is None else shown[~pixels.padding]
    if inside.min() == inside.max() and stored.min() != stored.max():
        found = f"has a window ({low:g} to {high:g}) that shows a blank picture"
        warn_about(path, f"{found}; scaled by its own range")
        return
    if _shows_low_bright(dataset):
        shown, low, high = 1.0 - shown, high, low
    pixels.values = shown.astype(np.float32)
    pixels.scaled_by = name
    pixels.intensity_range = low, high


def _displayed(
    path: str, dataset: pydicom.Dataset, stored: np.ndarray, pixels: RadiographPixels
) -> tuple[np.ndarray, tuple[float, float], str] | None:
    """The picture in [0, 1] by the first window or the first VOI LUT, its range, and which of them it was."""
    numbers = pixels.values
    if not dataset.get("ModalityLUTSequence"):
        slope, intercept = _rescale(path, dataset)
        numbers = stored.astype(np.float64) * slope + intercept
    if _has_value(dataset, "WindowCenter") and _has_value(dataset, "WindowWidth"):
        center = float(np.ravel(dataset.WindowCenter)[0])
        width = float(np.ravel(dataset.WindowWidth)[0])
        function = str(dataset.get("VOILUTFunction") or "LINEAR")
        shown = window_to_unit(numbers.astype(np.float64), center, width, function)
        return shown, (center - width / 2, center + width / 2), "window"
    if dataset.get("VOILUTSequence"):
        inside = numbers if pixels.padding is None else numbers[~pixels.padding]
        table = _table(path, dataset, "VOILUTSequence", inside)
        shown = np.clip(table.apply(numbers) / (2.0**table.bits - 1.0), 0.0, 1.0)
        return shown, table.inputs, "voi_lut"
    return None
