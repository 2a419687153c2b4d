# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""DICOM files of one radiograph: header, decoding, stored bits, modality transformation, window and lookup tables."""

from __future__ import annotations

import math
import os
import struct
import tempfile
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pydicom
from pydicom import uid
from pydicom.pixels import apply_color_lut, convert_color_space
from pydicom.pixels.utils import get_expected_length, pixel_dtype

from monai_afire.transforms.radiograph_files import (
    REDUCED,
    WRITER,
    Picture,
    SizeLimits,
    planar_affine,
    read_with_itk,
    refuse,
    refuse_own_result,
    rgb_to_gray,
    warn_about,
)
from monai_afire.utils.text import first_line

_PIXELS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
_GRAY = ("MONOCHROME1", "MONOCHROME2", "PALETTE COLOR")
_SPACINGS = ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing")
_DEFER_BYTES = 2**26  # larger elements stay on disk until the header has been checked
_WINDOW = ("WindowCenter", "WindowWidth", "VOILUTFunction", "VOILUTSequence")
# macro of the functional groups (PS3.3 C.7.6.16) -> elements that other objects have on top
_MACROS = {
    "PixelValueTransformationSequence": ("RescaleSlope", "RescaleIntercept"),
    "FrameVOILUTSequence": _WINDOW,
    "PixelMeasuresSequence": ("PixelSpacing",),
    "FramePixelDataPropertiesSequence": ("ImagerPixelSpacing",),
}


def read_dicom(
    path: str, limits: SizeLimits, apply_voi_lut: bool = True, color: bool = False
) -> Picture:
    """
    Read a DICOM file of one picture: gray after its modality transformation, and, if ``apply_voi_lut``, as shown by its
    first window, or by its VOI lookup table if it has no window; or, if ``color``, the colors that it has.
    """
    dataset = pydicom.dcmread(path, force=True, defer_size=_DEFER_BYTES)
    _lift_functional_groups(dataset)
    _check_header(dataset, limits)
    stored, padding = _stored_numbers(dataset)
    photometric, spacing = str(dataset.PhotometricInterpretation), _spacing(dataset)
    is_inverse = photometric == "MONOCHROME2" and dataset.get("PresentationLUTShape") == "INVERSE"
    picture = Picture(
        values=stored,
        file_format="DICOM",
        photometric=photometric,
        bits=dataset.BitsStored,
        spacing=spacing,
        affine=planar_affine(spacing),
        inverted=is_inverse or photometric == "MONOCHROME1",
        padding=padding,
    )
    if stored.ndim == 3 and color:
        picture.values = _color_fractions(dataset, stored)
        return picture
    if stored.ndim == 3:
        warn_about(path, f"is a color picture ({photometric}), {REDUCED}")
        picture.values = rgb_to_gray(stored)
    _apply_modality(dataset, picture)
    if apply_voi_lut and photometric.startswith("MONOCHROME"):
        _apply_window(dataset, picture)
    return picture


# ---- header


def _lift_functional_groups(dataset: pydicom.Dataset) -> None:
    """Copy what the groups of an enhanced object say to where others say it, the frame's own over shared ones."""
    for name in ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"):
        group = (dataset.get(name) or [pydicom.Dataset()])[0]
        for macro, keywords in _MACROS.items():
            item = (group.get(macro) or [None])[0]
            for tag in map(pydicom.tag.Tag, keywords if item is not None else ()):
                if tag in item:
                    dataset[tag] = item.get_item(tag)  # unparsed: what is not needed may be invalid
                elif keywords is _WINDOW:
                    dataset.pop(tag, None)  # no part of another window


def _check_header(dataset: pydicom.Dataset, limits: SizeLimits) -> None:
    """Refuse what is not one radiograph before any pixel is decoded; set what may be left out."""
    path = dataset.filename
    if not any(keyword in dataset for keyword in _PIXELS):
        found = f"is a DICOM file without pixel data (modality {dataset.get('Modality')})"
        remedy = "leave it out (monai-afire audit makes a list without such files)"
        raise refuse(path, found, remedy)
    if int(dataset.get("NumberOfFrames") or 1) != 1:
        found = f"holds {dataset.NumberOfFrames} frames where one is expected"
        raise refuse(path, found, "save the wanted one as a file of its own")
    refuse_own_result(path, dataset.get("SecondaryCaptureDeviceManufacturer") == WRITER)
    dataset.SamplesPerPixel = int(dataset.get("SamplesPerPixel") or 1)
    dataset.BitsStored = int(dataset.get("BitsStored") or dataset.BitsAllocated)
    photometric = str(dataset.PhotometricInterpretation)
    if not _is_known_color(dataset, photometric):
        found = f"has {dataset.SamplesPerPixel} samples of {dataset.BitsAllocated} bits"
        raise refuse(path, f"{found} as {photometric}, which is not read", "export it in gray")
    limits.check(path, int(dataset.Rows), int(dataset.Columns))
    rows, columns = (*(dataset.get("PatientOrientation") or ()), "", "")[:2]
    if str(rows)[:1] in ("H", "F") or str(columns)[:1] == "H":
        warn_about(path, f"is not upright by its Patient Orientation {rows}/{columns}")


def _is_known_color(dataset: pydicom.Dataset, photometric: str) -> bool:
    """Whether the samples are gray, or something here turns them into red, green and blue."""
    if photometric in _GRAY:
        return dataset.SamplesPerPixel == 1
    if dataset.SamplesPerPixel != 3 or dataset.get("PixelRepresentation") == 1:
        return False  # of signed colors, black is not known
    if photometric in ("YBR_FULL", "YBR_FULL_422"):
        return dataset.BitsAllocated == 8  # by pydicom
    if photometric in ("YBR_ICT", "YBR_RCT"):
        return "JPEG 2000" in _transfer_syntax(dataset).name  # by its decoders
    return photometric == "RGB"


def _spacing(dataset: pydicom.Dataset) -> tuple[float, float] | None:
    """Distance of rows and columns in mm, in the patient if calibrated, else at the detector."""
    for keyword in _SPACINGS:
        with suppress(TypeError, ValueError):  # a decimal comma, or one number
            row, column = (float(distance) for distance in dataset.get(keyword) or ())
            if min(row, column) > 0 and math.isfinite(row + column):
                return row, column
    return None


# ---- decoding

_ITEM = b"\xfe\xff\x00\xe0"  # begins each fragment of compressed pixels
_JPEG_START, _JPEG_END = b"\xff\xd8\xff", b"\xff\xd9"
_JPEG_2000_START = b"\xff\x4f\xff\x51"  # SOC and SIZ of ISO/IEC 15444-1
# SOF0 to SOF15 of ISO/IEC 10918-1, less DHT, JPG and DAC, and SOF55 of JPEG-LS
_JPEG_FRAMES = {*range(0xC0, 0xD0), 0xF7} - {0xC4, 0xC8, 0xCC}
_JPEG_SCAN, _JPEG_FILL = 0xDA, 0xFF
# decoders that leave colors as they were stored
_KEEP_COLORS = (uid.JPEGLossless, uid.JPEGLosslessSV1, *uid.JPEGLSTransferSyntaxes)


class _Frame(NamedTuple):
    """A compressed frame, and what it says of itself."""

    content: bytes
    rows: int
    columns: int
    samples: int
    precision: int


def _decoded(dataset: pydicom.Dataset) -> np.ndarray:
    """The pixels, or an error that names the transfer syntax."""
    syntax = _transfer_syntax(dataset)
    try:
        if "PixelData" in dataset and syntax.is_encapsulated != _is_encapsulated(dataset):
            raise ValueError("they are compressed, or not, in spite of it")
        return _decoded_frame(dataset, syntax)
    except Exception as error:  # a damaged file can raise anything
        found = f"has pixels of the transfer syntax {syntax.name} ({syntax})"
        found = f"{found} that cannot be decoded ({first_line(error)})"
        raise refuse(dataset.filename, found, "export it uncompressed") from error


def _transfer_syntax(dataset: pydicom.Dataset) -> uid.UID:
    """The transfer syntax that a file states; where it states none, the one that it could be parsed by."""
    dataset.ensure_file_meta()
    if not dataset.file_meta.get("TransferSyntaxUID"):
        implicit, little = dataset.original_encoding
        explicit = uid.ExplicitVRLittleEndian if little else uid.ExplicitVRBigEndian
        dataset.file_meta.TransferSyntaxUID = uid.ImplicitVRLittleEndian if implicit else explicit
    return dataset.file_meta.TransferSyntaxUID


def _is_encapsulated(dataset: pydicom.Dataset) -> bool:
    """Whether the pixels are fragments, as compressed ones are, and no numbers that begin alike."""
    content, has_length = dataset.PixelData or b"", not dataset["PixelData"].is_undefined_length
    is_plain = has_length and len(content) == get_expected_length(dataset)
    return content.startswith(_ITEM) and not is_plain


def _decoded_frame(dataset: pydicom.Dataset, syntax: uid.UID) -> np.ndarray:
    """The pixels by pydicom, or by GDCM, which comes with ITK, where pydicom or its packages cannot."""
    frame = _frame(dataset) if "JPEG" in syntax.name else None
    stated = (int(dataset.Rows), int(dataset.Columns), dataset.SamplesPerPixel)
    bits = int(dataset.BitsAllocated)
    # before memory is allocated: some decoders trust the frame, some the header
    if frame and (frame[1:4] != stated or not 2 <= frame.precision <= bits):
        found = f"rows, columns, samples and bits of the frame are {frame[1:]}"
        raise ValueError(f"{found}, of the header {(*stated, bits)}")
    try:
        return dataset.pixel_array
    except Exception:  # a decoder is missing, or stricter than GDCM
        if frame is None:
            raise
    return _decoded_by_gdcm(dataset, frame, syntax)


def _frame(dataset: pydicom.Dataset) -> _Frame | None:
    """The frame of JPEG, JPEG-LS or JPEG 2000; None where it has no header."""
    try:
        content = pydicom.encaps.get_frame(dataset.PixelData, 0, number_of_frames=1)
        if content.startswith(_JPEG_START):
            return _jpeg_frame(content)
        start = content.index(_JPEG_2000_START)  # perhaps in a file around the code stream
        right, bottom, left, top = struct.unpack_from(">4I", content, start + 8)
        samples, precision = struct.unpack_from(">HB", content, start + 40)
        return _Frame(content, bottom - top, right - left, samples, (precision & 0x7F) + 1)
    except (ValueError, EOFError, struct.error):
        return None


def _jpeg_frame(content: bytes) -> _Frame:
    """Find the frame header among the marker segments of JPEG or JPEG-LS."""
    position, marker = 2, 0  # after the start of image
    while marker != _JPEG_SCAN:
        marker, length = struct.unpack_from(">xBH", content, position)
        if marker in _JPEG_FRAMES:
            precision, rows, columns, samples = struct.unpack_from(">BHHB", content, position + 4)
            return _Frame(content, rows, columns, samples, precision)
        position += 1 if marker == _JPEG_FILL else 2 + length
    raise ValueError("the frame has no header")


def _decoded_by_gdcm(dataset: pydicom.Dataset, frame: _Frame, syntax: uid.UID) -> np.ndarray:
    """
    Decode a frame by ITK's GDCM.

    From the file itself ITK would apply the slope, invert MONOCHROME1, look up palettes and cut overlay bits. So a
    bare file of the frame is decoded, as numbers without signs.
    """
    import itk

    is_gray = frame.samples == 1
    # ITK's Python package has no color pictures of 16 bits
    if not is_gray and (syntax not in _KEEP_COLORS or frame.precision != 8):
        raise ValueError("no decoder for these colors is installed")
    # GDCM silently fills the rest of a cut picture
    if not frame.content.rstrip(b"\x00").endswith(_JPEG_END):
        raise ValueError("the frame has no end")
    bare = pydicom.Dataset()
    bare.file_meta = pydicom.dataset.FileMetaDataset()
    bare.file_meta.TransferSyntaxUID = syntax
    bare.SOPClassUID, bare.SOPInstanceUID = uid.SecondaryCaptureImageStorage, "1.2.3"
    bare.Rows, bare.Columns, bare.SamplesPerPixel = frame[1:4]
    bare.BitsAllocated = 8 if frame.precision <= 8 else 16
    bare.BitsStored, bare.HighBit = frame.precision, frame.precision - 1
    bare.PixelRepresentation, bare.PlanarConfiguration = 0, 0
    bare.PhotometricInterpretation = "MONOCHROME2" if is_gray else "RGB"
    bare.PixelData = pydicom.encaps.encapsulate([frame.content])
    bare["PixelData"].VR = "OB"
    with tempfile.TemporaryDirectory(prefix="monai_afire_") as folder:
        path = os.path.join(folder, "frame.dcm")
        bare.save_as(path, enforce_file_format=True)
        values = read_with_itk(path, itk.GDCMImageIO.New())
    if is_gray:
        values = values.reshape(frame.rows, frame.columns)
        return _with_sign(values, pixel_dtype(dataset), frame.precision)
    colors, photometric = values.reshape(frame[1:4]), str(dataset.PhotometricInterpretation)
    return colors if photometric == "RGB" else convert_color_space(colors, photometric, "RGB")


def _with_sign(values: np.ndarray, dtype: np.dtype, precision: int) -> np.ndarray:
    """Unsigned numbers as those of a type; the highest of their bits is the sign, if it has one."""
    unused = 8 * dtype.itemsize - precision if dtype.kind == "i" else 0
    cells = values.astype(f"u{dtype.itemsize}") << unused
    return cells.view(f"{dtype.kind}{dtype.itemsize}") >> unused


# ---- numbers within the decoded cells

_OVERLAY_GROUPS = range(0x6000, 0x6100, 2)
_OVERLAY_BITS, _OVERLAY_POSITION, _OVERLAY_DATA = 0x0100, 0x0102, 0x3000


def _stored_numbers(dataset: pydicom.Dataset) -> tuple[np.ndarray, np.ndarray | None]:
    """Numbers ``(H, W)``, or red, green and blue ``(H, W, 3)``; and where they are padding, None without."""
    bits = dataset.BitsStored
    high_bit = int(dataset.get("HighBit") or bits - 1)
    if dataset.SamplesPerPixel == 1 and "PixelData" in dataset:
        # or pydicom cuts the numbers, and what lies beside them with them
        dataset.BitsStored, dataset.HighBit = dataset.BitsAllocated, dataset.BitsAllocated - 1
    numbers = _decoded(dataset)
    dataset.BitsStored = bits
    if numbers.shape[:2] != (int(dataset.Rows), int(dataset.Columns)):
        raise ValueError(f"the pixels have the shape {numbers.shape}")
    if numbers.ndim == 3:
        return numbers, None
    if numbers.dtype.kind == "f":
        padding = _in_padding(dataset, numbers, bits)
    else:
        numbers, padding = _separated(dataset, numbers, bits, high_bit)
    if dataset.PhotometricInterpretation == "PALETTE COLOR":
        numbers = _palette_colors(dataset, numbers)
    return numbers, padding if padding.any() and not padding.all() else None


def _separated(
    dataset: pydicom.Dataset, cells: np.ndarray, bits: int, high_bit: int
) -> tuple[np.ndarray, np.ndarray]:
    """
    The numbers in cells of all allocated bits, and where they are padding.

    Old files keep numbers in the upper bits, or an overlay above or below them. Where numbers need more bits than are
    stated, the statement is wrong, not the picture: Bits Stored becomes what they need.
    """
    size, is_signed = cells.dtype.itemsize, cells.dtype.kind == "i"
    unused, above = high_bit + 1 - bits, 8 * size - bits
    places = _overlay_places(dataset, set(range(8 * size)) - set(range(unused, high_bit + 1)))
    overlays = np.array(sum(1 << place for place in places), f"u{size}")
    cells = cells & ~overlays.view(cells.dtype)
    padding = _in_padding(dataset, cells, bits)
    inside = cells[~padding]
    if unused > 0 and inside.any() and not (inside & (2**unused - 1)).any():
        cells = (cells.view(f"u{size}") >> unused).view(cells.dtype)
        padding, inside = np.zeros(cells.shape, bool), cells.ravel()
    lacks_signs = is_signed and inside.size and inside.min() >= 0 and inside.max() < 2**bits
    if above > 0 and (places or lacks_signs):
        cells = (cells << above) >> above  # the bits above repeat the sign, or are zero
    inside = cells[~padding]
    if inside.size:
        largest = max(int(inside.max()), ~int(inside.min()))
        needed = largest.bit_length() + is_signed
        if needed > bits:
            found = f"states {bits} bits and has numbers of {needed}, which are read"
            warn_about(dataset.filename, found)
            dataset.BitsStored = needed
    return cells, padding | _in_padding(dataset, cells, bits)


def _overlay_places(dataset: pydicom.Dataset, possible: set[int]) -> set[int]:
    """Positions of the bits that are overlays (retired since 2004), of those that are possible."""
    found = set()
    for group in _OVERLAY_GROUPS:
        place = dataset.get((group, _OVERLAY_POSITION))
        bits = dataset.get((group, _OVERLAY_BITS))
        # an overlay of its own element has Overlay Data, and states the position 0 and one bit allocated, too
        is_within = place is not None and (group, _OVERLAY_DATA) not in dataset
        if is_within and (place.value != 0 or bits is None or bits.value != 1):
            found.add(place.value)
    return found & possible


def _in_padding(dataset: pydicom.Dataset, numbers: np.ndarray, bits: int) -> np.ndarray:
    """Where numbers are those that the file states for padding; the VR of those may have had the other sign."""
    kind, size = numbers.dtype.kind, numbers.dtype.itemsize
    prefix = "" if kind != "f" else "Float" if size == 4 else "DoubleFloat"
    value = dataset.get(f"{prefix}PixelPaddingValue")
    limit = dataset.get(f"{prefix}PixelPaddingRangeLimit")
    if not isinstance(value, (int, float)):
        return np.zeros(numbers.shape, bool)
    low, high = sorted((value, limit if isinstance(limit, (int, float)) else value))
    if kind == "f":
        return (numbers >= low) & (numbers <= high)
    whole = 2 ** (8 * size)
    if low < -whole // 2 or high >= whole:
        return np.zeros(numbers.shape, bool)
    unsigned = np.dtype(f"u{size}").type
    mask = numbers.view(unsigned) - unsigned(low % whole) <= unsigned(high - low)
    # all bits, or the highest bit alone, may be said of the cells where the numbers have fewer
    end, said = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if kind == "i" else (2**bits - 1, whole - 1)
    if low == high and low % whole == said:
        mask |= numbers == end
    return mask


# ---- colors


def _palette_colors(dataset: pydicom.Dataset, indices: np.ndarray) -> np.ndarray:
    """Colors ``(H, W, 3)`` of indices ``(H, W)`` into the palette of a file."""
    count, first, bits = map(int, dataset.RedPaletteColorLookupTableDescriptor)
    count = count or 2**16
    # pydicom counts entries in the type of the colors: an index beyond 255 would wrap to 0
    if bits == 8 and count > 2**8:
        raise ValueError(f"a palette of {count} entries of 8 bits")
    places = np.clip(indices.astype(np.int64), first, first + count - 1)
    return apply_color_lut(places, dataset)[..., :3]


def _color_fractions(dataset: pydicom.Dataset, colors: np.ndarray) -> np.ndarray:
    """Colors unchanged if they have 8 bits, else as fractions of the largest number of the file's type, float32."""
    bits = dataset.BitsStored
    if dataset.PhotometricInterpretation == "PALETTE COLOR":
        bits = int(dataset.RedPaletteColorLookupTableDescriptor[2])
        if colors.max() >= 2**8:  # 8 bits in the upper half of 16, as older palettes have them
            bits = 16
    if bits <= 8:
        return colors.astype(np.uint8)
    return (colors / (2.0**bits - 1.0)).clip(0.0, 1.0).astype(np.float32)


# ---- modality transformation, window, lookup tables


def _apply_modality(dataset: pydicom.Dataset, picture: Picture) -> None:
    """Apply the modality transformation, up to a factor that scaling to [0, 1] does not see."""
    bits, is_signed = picture.bits, picture.values.dtype.kind == "i"
    slope, intercept = 1.0, 0.0
    if dataset.get("ModalityLUTSequence"):
        picture.values, bits, _ = _looked_up(dataset, "ModalityLUTSequence", picture.values)
        is_signed = False
    else:
        slope = float(dataset.get("RescaleSlope") or 1.0)
        intercept = float(dataset.get("RescaleIntercept") or 0.0)
        if not math.isfinite(slope) or not math.isfinite(intercept):
            # the sign of the slope decides what is dark: nothing to be guessed
            raise ValueError("a Rescale Slope or Rescale Intercept that is no number")
    picture.slope = slope, intercept
    if picture.values.dtype.kind == "f":
        return
    if not is_signed:
        picture.declared_range, picture.floor = (0.0, 2.0**bits - 1), 0.0
        return
    shift = intercept / slope  # it alone shows which negative number means "no signal"
    numbers = picture.values
    whole = shift.is_integer()
    picture.values = numbers.astype(np.int32) + int(shift) if whole else numbers + shift
    picture.declared_range = shift - 2.0 ** (bits - 1), shift + 2.0 ** (bits - 1) - 1
    picture.slope = slope, 0.0


def _apply_window(dataset: pydicom.Dataset, picture: Picture) -> None:
    """Replace the numbers by the displayed ones in [0, 1] when the file says how to display them."""
    path, numbers = dataset.filename, picture.numbers.astype(np.float64)
    try:
        shown, (low, high), name = _displayed(dataset, numbers, picture.padding)
    except Exception as error:  # a damaged table can raise anything
        warn_about(path, f"has an unusable window ({first_line(error)}); scaled by its own range")
        return
    inside = shown if picture.padding is None else shown[~picture.padding]
    if name and inside.min() == inside.max() and numbers.min() != numbers.max():
        found = f"has a window ({low:g} to {high:g}) that shows a blank picture"
        warn_about(path, f"{found}; scaled by its own range")
    elif name:
        if picture.inverted:
            shown, low, high = 1.0 - shown, high, low
        picture.values, picture.scaled_by = shown.astype(np.float32), name
        picture.intensity_range = low, high


def _displayed(
    dataset: pydicom.Dataset, numbers: np.ndarray, padding: np.ndarray | None
) -> tuple[np.ndarray, tuple[float, float], str]:
    """The picture in [0, 1] by the first window or VOI LUT, its range, and which of them it was, "" for none."""
    window = dataset.get("WindowCenter"), dataset.get("WindowWidth")
    if not any(value in (None, "") for value in window):
        center, width = (float(np.ravel(value)[0]) for value in window)
        shown = _window_to_unit(numbers, center, width, dataset.get("VOILUTFunction") or "LINEAR")
        return shown, (center - width / 2, center + width / 2), "window"
    if dataset.get("VOILUTSequence"):
        entries, bits, inputs = _looked_up(dataset, "VOILUTSequence", numbers, padding)
        return np.clip(entries / (2.0**bits - 1.0), 0.0, 1.0), inputs, "voi_lut"
    return numbers, (0.0, 1.0), ""


def _window_to_unit(values: np.ndarray, center: float, width: float, function: str) -> np.ndarray:
    """Apply a DICOM window (PS3.3 C.11.2.1.2) with output range [0, 1]."""
    if function not in ("LINEAR", "LINEAR_EXACT", "SIGMOID"):
        raise ValueError(f"unknown VOI LUT function {function!r}")
    is_wide = width >= 1 if function == "LINEAR" else width > 0
    if not (math.isfinite(center) and math.isfinite(width) and is_wide):
        raise ValueError(f"center {center:g} and width {width:g} are no window")
    if function == "SIGMOID":
        return 1.0 / (1.0 + np.exp(np.clip(-4.0 * (values - center) / width, -700.0, 700.0)))
    if function == "LINEAR":
        center, width = center - 0.5, width - 1.0
        if width == 0:
            return (values > center).astype(np.float64)
    unit = values - center
    unit /= width  # in place: a new picture for each step takes longer than the step
    unit += 0.5
    return np.clip(unit, 0.0, 1.0, out=unit)


def _looked_up(
    dataset: pydicom.Dataset, keyword: str, numbers: np.ndarray, padding: np.ndarray | None = None
) -> tuple[np.ndarray, int, tuple[float, float]]:
    """
    Entries for numbers by the first lookup table of a sequence (PS3.3 C.11.1.1.1, C.11.2.1.1).

    pydicom's own functions know entries of 8 and 16 bits alone, and wrap above 255.

    Returns:
        The entries, their bits, and the first and last number that the table is for.
    """
    item, order = dataset[keyword].value[0], "<" if dataset.original_encoding[1] else ">"
    descriptor = item.LUTDescriptor
    if isinstance(descriptor, bytes):  # where the file does not show whether they have a sign
        descriptor = np.frombuffer(descriptor, f"{order}u2").tolist()
    count, first, stated = map(int, descriptor)
    count = count % 2**16 or 2**16
    table = _entries(item.LUTData, count, order)
    first = _signed_first(first, count, numbers if padding is None else numbers[~padding])
    # Agfa states 16 bits for entries of 12, as dicom-rs #825 shows: such a picture would be nearly black
    bits = min(stated, max(8, int(table.max()).bit_length()))
    if bits < stated:
        found = f"states {stated} bits for the entries of its {keyword}, which have {bits}"
        warn_about(dataset.filename, f"{found}; shown with {bits}")
    places = np.clip(np.rint(numbers).astype(np.int64) - first, 0, len(table) - 1)
    return table[places], bits, (float(first), float(first + len(table) - 1))


def _entries(data: bytes | int | list[int], count: int, order: str) -> np.ndarray:
    """Entries of 16 bits, or of 8 bits where the data have one byte for each, and one more if that makes them even."""
    if isinstance(data, bytes):
        words = np.frombuffer(data[: len(data) // 2 * 2], f"{order}u2")
    else:
        words = np.atleast_1d(np.asarray(data, dtype=np.int64))
    if 2 * len(words) in (count, count + 1) and len(words) < count:
        words = words.astype("<u2").view(np.uint8)
    return words[:count]


def _signed_first(first: int, count: int, numbers: np.ndarray) -> int:
    """
    The first number, with the sign that makes the table one for these numbers.

    Its VR follows from the sign of the stored numbers, though it is one of the transformed numbers, which a negative
    intercept makes negative. So -1024 may be written as 64512, or 40000 as -25536.
    """
    other = first - 2**16 if first >= 0 else first + 2**16
    for candidate in (first, other):
        if candidate <= numbers.max() and candidate + count - 1 >= numbers.min():
            return candidate
    return first
