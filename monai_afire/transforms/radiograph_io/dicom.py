# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Reader of DICOM files that hold one radiograph."""

from __future__ import annotations

import zlib
from io import BytesIO

import numpy as np
import pydicom
from PIL import Image
from pydicom.encaps import generate_frames
from pydicom.pixels import apply_color_lut, apply_modality_lut

from monai_afire.transforms.radiograph_io.common import (
    WRITER,
    RadiographError,
    RadiographPixels,
    SizeLimits,
    first_line,
    planar_affine,
    refuse,
    refuse_own_result,
    rgb_to_gray,
    warn_about,
)
from monai_afire.transforms.radiograph_io.gdcm import GDCM_SYNTAXES, decode_with_gdcm
from monai_afire.transforms.radiograph_io.intensity import window_to_unit

PALETTE = "PALETTE COLOR"
_GRAY = ("MONOCHROME1", "MONOCHROME2", PALETTE)
_YBR = ("YBR_FULL", "YBR_FULL_422")  # which pydicom turns into RGB
_OF_JPEG_2000 = ("YBR_ICT", "YBR_RCT")  # which the decoder of JPEG 2000 turns into RGB
_COLORS = ("RGB", *_YBR, *_OF_JPEG_2000)
_REMEDY = "export it as RGB or in gray"
_BYTE = 8
_OVERLAY_GROUPS, _BIT_POSITION = range(0x6000, 0x6020, 2), 0x0102  # of overlays within the pixels, retired


def check_colors(path: str, dataset: pydicom.Dataset) -> None:
    """Refuse colors that nothing here turns into red, green and blue, before any pixel is decoded."""
    photometric, samples = str(dataset.PhotometricInterpretation), int(dataset.get("SamplesPerPixel") or 1)
    expected = 1 if photometric in _GRAY else 3
    syntax = dataset.file_meta.get("TransferSyntaxUID") if "file_meta" in vars(dataset) else None
    is_jpeg_2000 = syntax is not None and "JPEG 2000" in pydicom.uid.UID(syntax).name
    reason = ""
    if photometric not in (*_GRAY, *_COLORS):
        reason = f"states its colors as {photometric}, which is none of {', '.join((*_GRAY, *_COLORS))}"
    elif samples != expected:
        reason = f"has {samples} samples per pixel where its photometric interpretation {photometric} needs {expected}"
    elif expected == 3 and dataset.get("PixelRepresentation") == 1:
        reason = f"is a color picture ({photometric}) of signed numbers, where black is not known"
    elif photometric in _OF_JPEG_2000 and not is_jpeg_2000:
        reason = f"states its colors as {photometric}, which JPEG 2000 alone has, and is not compressed so"
    elif photometric in _YBR and int(dataset.BitsAllocated) != _BYTE:
        reason = f"is a color picture ({photometric}) of {dataset.BitsAllocated} bits, not of 8"
    if reason:
        raise refuse(path, reason, _REMEDY)


def look_up_palette(path: str, dataset: pydicom.Dataset, stored: np.ndarray) -> np.ndarray:
    """Colors ``(H, W, 3)`` of indices ``(H, W)`` into the palette of a file."""
    try:
        count, first, bits = (int(number) for number in dataset.RedPaletteColorLookupTableDescriptor)
        count = count or 2**16
        # pydicom counts entries in the type of the colors: an index beyond 255 would wrap to 0
        if bits == _BYTE and count > 2**_BYTE:
            raise ValueError(f"{count} entries of 8 bits, more than 256")
        return apply_color_lut(np.clip(stored.astype(np.int64), first, first + count - 1), dataset)[..., :3]
    except Exception as error:  # a damaged table can raise anything
        raise refuse(path, f"has no usable palette ({first_line(error)})", _REMEDY) from error


def color_fractions(dataset: pydicom.Dataset, colors: np.ndarray) -> np.ndarray:
    """Colors unchanged if they have 8 bits, else as fractions of the largest number of the file's type, float32."""
    bits = int(dataset.get("BitsStored") or dataset.BitsAllocated)
    if dataset.PhotometricInterpretation == PALETTE:
        bits = int(dataset.RedPaletteColorLookupTableDescriptor[2])
        if colors.max() >= 2**_BYTE:  # 8 bits in the upper half of 16, as older palettes have them
            bits = 16
    if bits <= _BYTE:
        return colors.astype(np.uint8)
    return (colors / (2.0**bits - 1.0)).clip(0.0, 1.0).astype(np.float32)


_PIXEL_KEYWORDS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
_DEFER_BYTES = 2**26  # larger elements stay on disk until the header has been checked
_MAX_HEADER_BYTES = 2**24  # of a deflated data set, besides its pixels
# What pydicom says when a decoder is missing, or cannot do what the file needs.
_LACKS_DECODER = ("missing dependencies", "does not support", "not supported")


def read_dicom(path: str, limits: SizeLimits, use_window: bool = True, color: bool = False) -> RadiographPixels:
    """Read a DICOM file as one picture, a gray one with its modality transformation and, if asked, its window."""
    _check_inflated_size(path, limits)
    dataset = pydicom.dcmread(path, force=True, defer_size=_DEFER_BYTES)
    _check_header(path, dataset, limits)
    stored = _decode(path, dataset)
    if stored.ndim == 3:
        if color:
            return _pixels(dataset, color_fractions(dataset, stored))
        text = f"is a color picture ({dataset.PhotometricInterpretation}), reduced to gray"
        warn_about(path, f"{text} (channels 3 keeps the colors)")
        stored = rgb_to_gray(stored)
    padding = _padding(dataset, stored)
    pixels = _modality(dataset, stored)
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
            total += len(inflater.decompress(pending, 2**20))
            pending = inflater.unconsumed_tail or stream.read(2**16)
            if total > maximum:
                reason = f"inflates to more than {maximum} bytes, more than max_pixels={limits.max_pixels} can take"
                raise refuse(path, reason, "store it uncompressed")


def _check_header(path: str, dataset: pydicom.Dataset, limits: SizeLimits) -> None:
    """Refuse what is not one radiograph before any pixel is decoded."""
    if not len(dataset):
        raise refuse(path, "is cut or damaged: its DICOM data cannot be read to the end", "export it again")
    if not any(keyword in dataset for keyword in _PIXEL_KEYWORDS):
        kind = dataset.get("Modality") or "unknown"
        raise refuse(path, f"is a DICOM file without pixel data (modality {kind})", "leave it out, or export it again")
    missing = [
        k for k in ("Rows", "Columns", "BitsAllocated", "PhotometricInterpretation") if dataset.get(k) in (None, "")
    ]
    if missing:
        reason = f"is a DICOM file without {', '.join(missing)}, so its pixels cannot be interpreted"
        raise refuse(path, reason, "add the element, or export it again")
    frames = int(dataset.get("NumberOfFrames") or 1)
    if frames != 1:
        reason = f"holds {frames} frames of {dataset.Columns} x {dataset.Rows} pixels where one picture is expected"
        raise refuse(path, reason, "save the wanted frame as a file of its own")
    refuse_own_result(path, dataset.get("SecondaryCaptureDeviceManufacturer") == WRITER)
    check_colors(path, dataset)
    limits.check(path, int(dataset.Rows), int(dataset.Columns))
    orientation = [str(direction)[:1] for direction in dataset.get("PatientOrientation") or ()]
    if len(orientation) == 2 and (orientation[0] in ("H", "F") or orientation[1] == "H"):
        warn_about(path, f"is not upright by its Patient Orientation {'/'.join(orientation)}; read as stored")


def _decode(path: str, dataset: pydicom.Dataset) -> np.ndarray:
    """Stored numbers ``(H, W)``, or red, green and blue ``(H, W, 3)``."""
    file_meta = getattr(dataset, "file_meta", None)
    if file_meta is None or "TransferSyntaxUID" not in file_meta:
        dataset.ensure_file_meta()
        implicit, little = dataset.original_encoding
        name = "ImplicitVRLittleEndian" if implicit else "ExplicitVRLittleEndian" if little else "ExplicitVRBigEndian"
        dataset.file_meta.TransferSyntaxUID = getattr(pydicom.uid, name)
    _check_compressed_size(path, dataset)
    try:
        stored = _uncompressed(path, dataset) if _is_plain_gray(dataset) else dataset.pixel_array
    except Exception as error:
        if not any(phrase in str(error) for phrase in _LACKS_DECODER):
            raise _damaged(path, error) from error
        if dataset.file_meta.TransferSyntaxUID not in GDCM_SYNTAXES:
            raise _undecodable(path, dataset.file_meta.TransferSyntaxUID) from error
        stored = decode_with_gdcm(path, dataset)
    if stored.shape[:2] != (int(dataset.Rows), int(dataset.Columns)):
        stated = f"{dataset.Rows} rows and {dataset.Columns} columns"
        raise refuse(path, f"decodes to the shape {stored.shape}, not to its {stated}")
    return look_up_palette(path, dataset, stored) if dataset.PhotometricInterpretation == PALETTE else stored


def _check_compressed_size(path: str, dataset: pydicom.Dataset) -> None:
    """Refuse a compressed picture of another size than the header's, before memory is allocated for it."""
    if not dataset.file_meta.TransferSyntaxUID.is_encapsulated:
        return
    try:
        frame = next(generate_frames(dataset.PixelData, number_of_frames=1))
        with Image.open(BytesIO(frame)) as picture:
            columns, rows = picture.size
    except Image.DecompressionBombError as error:
        raise refuse(path, f"has a compressed picture that is too large ({first_line(error)})") from error
    except Exception:  # not for Pillow, or damaged: the decoder says what is wrong
        return
    if (rows, columns) != (int(dataset.Rows), int(dataset.Columns)):
        reason = f"holds {rows} x {columns} pixels, not its {dataset.Rows} rows and {dataset.Columns} columns"
        raise refuse(path, reason, "export it again")


def _is_plain_gray(dataset: pydicom.Dataset) -> bool:
    """Whether pixels are unsigned gray numbers, stored as in memory."""
    unsigned_gray = dataset.get("PixelRepresentation") != 1 and str(dataset.PhotometricInterpretation) in _GRAY
    return unsigned_gray and not dataset.file_meta.TransferSyntaxUID.is_encapsulated and "PixelData" in dataset


def _uncompressed(path: str, dataset: pydicom.Dataset) -> np.ndarray:
    """
    The numbers in the lowest bits, as many as the file states.

    Old files keep them in the upper bits, or an overlay above them. Where numbers need more bits than are stated, the
    statement is wrong, not the picture.
    """
    bits = int(dataset.get("BitsStored") or dataset.BitsAllocated)
    unused = int(dataset.get("HighBit") or bits - 1) - (bits - 1)
    dataset.BitsStored, dataset.HighBit = dataset.BitsAllocated, dataset.BitsAllocated - 1  # or pydicom cuts them
    stored, dataset.BitsStored = dataset.pixel_array, bits
    if unused > 0 and stored.any() and not (stored & (2**unused - 1)).any():
        return stored >> unused
    if any((group, _BIT_POSITION) in dataset and dataset[group, _BIT_POSITION].value for group in _OVERLAY_GROUPS):
        return stored & (2**bits - 1)
    if (needed := int(stored.max()).bit_length()) > bits:
        warn_about(path, f"states {bits} bits and has numbers of {needed}, which are read")
        dataset.BitsStored = needed
    return stored


def _damaged(path: str, error: Exception) -> RadiographError:
    # pydicom says first that no decoder succeeded, and then why each of them did not.
    details = first_line(ValueError(str(error).partition("plugins:")[2] or str(error)))
    reason = f"is cut or damaged: its pixel data cannot be decoded ({details})"
    return refuse(path, reason, "export it again")


def _undecodable(path: str, syntax: pydicom.uid.UID) -> RadiographError:
    reason = f"is compressed as {syntax.name}, which neither pydicom nor ITK decodes"
    remedy = "export it uncompressed (Explicit VR Little Endian)"
    if "JPEG 2000" in syntax.name:  # with high throughput, or with a Pillow built without JPEG 2000
        remedy = f"pip install pylibjpeg pylibjpeg-openjpeg, or {remedy}"
    return refuse(path, reason, remedy)


def _padding(dataset: pydicom.Dataset, stored: np.ndarray) -> np.ndarray | None:
    """Pixels that the file marks as lying outside the picture."""
    value = dataset.get("PixelPaddingValue")
    if not isinstance(value, int):
        return None
    limit = dataset.get("PixelPaddingRangeLimit", value)
    low, high = sorted((value, limit if isinstance(limit, int) else value))
    mask = (stored >= low) & (stored <= high)
    return mask if bool(mask.any()) and not bool(mask.all()) else None


def _modality(dataset: pydicom.Dataset, stored: np.ndarray) -> RadiographPixels:
    """Apply the modality transformation, up to a factor that :func:`scale_to_unit` does not see."""
    pixels = _pixels(dataset, stored)
    bits, signed = pixels.bits, dataset.get("PixelRepresentation") == 1 and stored.dtype.kind == "i"
    if dataset.get("ModalityLUTSequence"):
        pixels.values, bits, _ = _looked_up(dataset, dataset.ModalityLUTSequence[0], stored)
        signed = False
    else:
        slope, intercept = float(dataset.get("RescaleSlope") or 1.0), float(dataset.get("RescaleIntercept") or 0.0)
        pixels.inverted ^= slope < 0
        pixels.slope = slope, intercept
    if signed:  # only the intercept shows which negative number means "no signal"
        shift = intercept / slope
        pixels.values = stored.astype(np.int32) + int(shift) if shift.is_integer() else stored + shift
        pixels.declared_range = shift - 2.0 ** (bits - 1), shift + 2.0 ** (bits - 1) - 1
        pixels.slope = slope, 0.0
    elif pixels.values.dtype.kind != "f":
        pixels.declared_range, pixels.floor = (0.0, 2.0**bits - 1), 0.0
    return pixels


def _pixels(dataset: pydicom.Dataset, values: np.ndarray) -> RadiographPixels:
    """What the header says of numbers that are not transformed."""
    photometric, spacing = str(dataset.PhotometricInterpretation), _spacing(dataset)
    return RadiographPixels(
        values=values,
        file_format="DICOM",
        photometric=photometric,
        bits=int(dataset.get("BitsStored") or dataset.BitsAllocated),
        affine=planar_affine(spacing),
        spacing=spacing,
        inverted=_shows_low_bright(dataset),
    )


def _shows_low_bright(dataset: pydicom.Dataset) -> bool:
    """Whether low numbers are shown bright: by the photometric interpretation, or by a lookup table's shape."""
    inverse = dataset.get("PresentationLUTShape") == "INVERSE" and dataset.PhotometricInterpretation == "MONOCHROME2"
    return inverse or dataset.PhotometricInterpretation == "MONOCHROME1"


def _spacing(dataset: pydicom.Dataset) -> tuple[float, float] | None:
    """Distance of rows and columns in mm, in the patient if calibrated, else at the detector."""
    for keyword in ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing"):
        value = dataset.get(keyword)
        if value is not None and len(value) == 2 and min(map(float, value)) > 0:
            return float(value[0]), float(value[1])
    return None


def _apply_window(path: str, dataset: pydicom.Dataset, stored: np.ndarray, pixels: RadiographPixels) -> None:
    """Replace the numbers by the displayed ones in [0, 1] when the file says how to display them."""
    if not pixels.photometric.startswith("MONOCHROME"):
        return
    try:
        displayed = _displayed(dataset, stored, pixels)
    except Exception as error:  # a damaged table can raise anything
        warn_about(path, f"has an unusable window ({first_line(error)}); scaled by its own range")
        return
    if displayed is None:
        return
    shown, (low, high), name = displayed
    inside = shown if pixels.padding is None else shown[~pixels.padding]
    if inside.min() == inside.max() and stored.min() != stored.max():
        warn_about(path, f"has a window ({low:g} to {high:g}) that shows a blank picture; scaled by its own range")
        return
    if _shows_low_bright(dataset):
        shown, low, high = 1.0 - shown, high, low
    pixels.values, pixels.scaled_by, pixels.intensity_range = shown.astype(np.float32), name, (low, high)


def _displayed(
    dataset: pydicom.Dataset, stored: np.ndarray, pixels: RadiographPixels
) -> tuple[np.ndarray, tuple[float, float], str] | None:
    """The picture in [0, 1] by the first window or the first VOI LUT, its range, and which of them it was."""
    has_table = bool(dataset.get("ModalityLUTSequence"))
    modality = pixels.values if has_table else np.asarray(apply_modality_lut(stored, dataset))
    if dataset.get("WindowCenter") not in (None, "") and dataset.get("WindowWidth") not in (None, ""):
        center, width = (float(np.ravel(dataset[keyword].value)[0]) for keyword in ("WindowCenter", "WindowWidth"))
        function = str(dataset.get("VOILUTFunction") or "LINEAR")
        shown = window_to_unit(modality.astype(np.float64), center, width, function)
        return shown, (center - width / 2, center + width / 2), "window"
    if dataset.get("VOILUTSequence"):
        found, bits, inputs = _looked_up(dataset, dataset.VOILUTSequence[0], modality)
        return np.clip(found / (2.0**bits - 1.0), 0.0, 1.0), inputs, "voi_lut"
    return None


def _looked_up(
    dataset: pydicom.Dataset, item: pydicom.Dataset, numbers: np.ndarray
) -> tuple[np.ndarray, int, tuple[float, float]]:
    """
    Entries of a lookup table, their bits, and the first and last number that it is for.

    pydicom's own functions know entries of 8 and 16 bits alone, and wrap above 255.
    """
    count, first, bits = (int(number) for number in item.LUTDescriptor)
    count, table = count or 2**16, item.LUTData
    if isinstance(table, bytes):
        little = dataset.file_meta.TransferSyntaxUID.is_little_endian
        table = np.frombuffer(table, dtype="<u2" if little else ">u2")
    table = np.asarray(table)[:count]
    places = np.clip(np.rint(numbers).astype(np.int64) - first, 0, len(table) - 1)
    return table[places], bits, (float(first), float(first + count - 1))
