# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Decoding of a DICOM file's one frame, by every decoder that is there, once its header and its file's agree."""

from __future__ import annotations

import numpy as np
import pydicom
from pydicom.encaps import get_frame
from pydicom.uid import (
    UID,
    AllTransferSyntaxes,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
)

from monai_afire.transforms.radiograph_io.common import RadiographError, refuse
from monai_afire.transforms.radiograph_io.frame_headers import codec_of, read_frame_header
from monai_afire.transforms.radiograph_io.gdcm import (
    GDCM_SYNTAXES,
    damaged_pixels,
    decode_with_gdcm,
)
from monai_afire.transforms.radiograph_io.stored_bits import float_padding, separate_numbers

_ITEM = b"\xfe\xff\x00\xe0"  # begins each fragment of compressed pixels
_UNCOMPRESSED = "export it uncompressed (Explicit VR Little Endian, 1.2.840.10008.1.2.1)"
_OTHER_SYNTAX = "state the Transfer Syntax UID of that compression, or export it again"
# What pydicom says when a decoder is missing, or cannot do what the file needs.
_LACKS_DECODER = ("missing dependencies", "does not support", "not supported")
_FAMILIES = ("JPEG 2000", "JPEG-LS", "JPEG")  # as names of transfer syntaxes and of codecs begin


def decode(path: str, dataset: pydicom.Dataset) -> tuple[np.ndarray, np.ndarray | None]:
    """
    Decode the pixels of a file.

    Args:
        path: for messages.
        dataset: its header and pixels. Bits Stored becomes what the numbers need.

    Returns:
        Numbers ``(H, W)``, or red, green and blue ``(H, W, 3)``; and where they are padding, None without.

    Raises:
        RadiographError: When no decoder reads them, or they are not what the header says.
    """
    syntax = _transfer_syntax(path, dataset)
    if "PixelData" in dataset:
        _check_encapsulation(path, dataset, syntax)
    if syntax.is_encapsulated:
        _check_frame(path, dataset, syntax)
    bits = int(dataset.get("BitsStored") or dataset.BitsAllocated)
    high_bit = int(dataset.get("HighBit") or bits - 1)
    is_gray = int(dataset.get("SamplesPerPixel") or 1) == 1
    if is_gray and "PixelData" in dataset:
        # or pydicom cuts the numbers, and what lies beside them with them
        dataset.BitsStored, dataset.HighBit = dataset.BitsAllocated, dataset.BitsAllocated - 1
    cells = _decoded(path, dataset, syntax)
    dataset.BitsStored, dataset.HighBit = bits, high_bit
    if cells.shape[:2] != (int(dataset.Rows), int(dataset.Columns)):
        stated = f"{dataset.Rows} rows and {dataset.Columns} columns"
        raise refuse(path, f"decodes to the shape {cells.shape}, not to its {stated}")
    if cells.ndim == 3:
        return cells, None
    if cells.dtype.kind == "f":
        return cells, float_padding(dataset, cells)
    return separate_numbers(path, dataset, cells, bits, high_bit)


def _transfer_syntax(path: str, dataset: pydicom.Dataset) -> UID:
    """The transfer syntax that a file states; where it states none, the one that it could be parsed by."""
    dataset.ensure_file_meta()
    stated = str(dataset.file_meta.get("TransferSyntaxUID") or "")
    if not stated:
        implicit, little = dataset.original_encoding
        explicit = ExplicitVRLittleEndian if little else ExplicitVRBigEndian
        dataset.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian if implicit else explicit
    elif stated not in AllTransferSyntaxes and UID(stated).type != "Transfer Syntax":
        kind = "a private one" if UID(stated).is_private else "not one of the DICOM standard"
        reason = f"states the transfer syntax {stated}, which is {kind}, so its pixels cannot be interpreted"
        raise refuse(path, reason, f"{_UNCOMPRESSED} by a program of its maker")
    return dataset.file_meta.TransferSyntaxUID


def _check_encapsulation(path: str, dataset: pydicom.Dataset, syntax: UID) -> None:
    """Refuse compressed pixels that the file says are not, and the reverse: they would be read as noise."""
    element = dataset["PixelData"]
    content = element.value or b""
    plain_bytes = _plain_bytes(dataset)
    fragments = content.startswith(_ITEM)
    is_compressed = fragments and (element.is_undefined_length or len(content) != plain_bytes)
    bare = codec_of(content[: 2**16]) if len(content) < plain_bytes else ""
    if syntax.is_encapsulated and not is_compressed and not bare:
        states = f"states that it is compressed as {syntax.name} ({syntax}), but its pixels are not"
        remedy = f"state {ExplicitVRLittleEndian} as its Transfer Syntax UID if they are plain numbers, or export it"
        raise refuse(path, f"{states} encapsulated as compressed ones are", f"{remedy} again")
    if not syntax.is_encapsulated and (is_compressed or bare):
        codec = codec_of(_first_frame(dataset)) if fragments else bare
        states = f"states the transfer syntax {syntax.name} ({syntax}), which is uncompressed, but its pixels are"
        reason = f"{states} compressed" + (f" ({codec} by their first bytes)" if codec else "")
        raise refuse(path, reason, _OTHER_SYNTAX)


def _plain_bytes(dataset: pydicom.Dataset) -> int:
    """Length of the pixels if they are uncompressed."""
    samples = int(dataset.get("SamplesPerPixel") or 1)
    if dataset.PhotometricInterpretation == "YBR_FULL_422":
        samples = 2
    bits = int(dataset.Rows) * int(dataset.Columns) * samples * int(dataset.BitsAllocated)
    return (bits + 7) // 8


def _first_frame(dataset: pydicom.Dataset) -> bytes:
    """The compressed frame, b"" where its fragments cannot be told."""
    try:
        return get_frame(dataset.PixelData, 0, number_of_frames=1)
    except (ValueError, EOFError):
        return b""


def _check_frame(path: str, dataset: pydicom.Dataset, syntax: UID) -> None:
    """Compare a frame's header with the file's before memory is allocated for it; some decoders trust either."""
    if not any(family in syntax.name for family in _FAMILIES):
        return
    try:
        header = read_frame_header(_first_frame(dataset))
    except ValueError:  # the decoders say what is wrong
        return
    stated = (int(dataset.Rows), int(dataset.Columns), int(dataset.get("SamplesPerPixel") or 1))
    if (header.rows, header.columns, header.samples) != stated:
        found = f"the frame has {header.rows} rows, {header.columns} columns and {header.samples} samples"
        given = f"the header {stated[0]}, {stated[1]} and {stated[2]}"
        raise damaged_pixels(path, ValueError(f"{found}, {given}"))
    if not 2 <= header.precision <= int(dataset.BitsAllocated):
        bits = f"the frame has {header.precision} bits, the header {dataset.BitsAllocated}"
        raise damaged_pixels(path, ValueError(bits))


def _decoded(path: str, dataset: pydicom.Dataset, syntax: UID) -> np.ndarray:
    """The numbers by pydicom's decoders, then by GDCM, whatever stopped those."""
    try:
        return dataset.pixel_array
    except Exception as error:
        failure = error
    try:
        if syntax not in GDCM_SYNTAXES:
            raise _undecoded(path, syntax, failure) from failure
        return decode_with_gdcm(path, dataset)
    except RadiographError as error:
        codec = codec_of(_first_frame(dataset)) if syntax.is_encapsulated else ""
        if codec and _family(codec) != _family(syntax.name):
            reason = f"states that it is compressed as {syntax.name} ({syntax}), but its frame is one of {codec}"
            raise refuse(path, reason, _OTHER_SYNTAX) from error
        if _is_missing(failure):  # no decoder of pydicom's has seen the frame
            raise
        raise damaged_pixels(path, failure) from error


def _is_missing(failure: Exception) -> bool:
    """Whether pydicom had no decoder to try."""
    return any(phrase in str(failure) for phrase in _LACKS_DECODER)


def _undecoded(path: str, syntax: UID, failure: Exception) -> RadiographError:
    """The error of a file that only pydicom's decoders are for."""
    if not _is_missing(failure):
        return damaged_pixels(path, failure)
    reason = f"is compressed as {syntax.name}, which neither pydicom nor ITK decodes (transfer syntax {syntax})"
    remedy = _UNCOMPRESSED
    if "JPEG 2000" in syntax.name:  # with high throughput
        remedy = f"pip install pylibjpeg pylibjpeg-openjpeg, or {remedy}"
    return refuse(path, reason, remedy)


def _family(name: str) -> str:
    return next((family for family in _FAMILIES if family in name), "")
