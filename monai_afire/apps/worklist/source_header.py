# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The header of a result's source as a valid result can copy it: characters, numbers and time zone."""

from __future__ import annotations

import re
import warnings

from pydicom.charset import convert_encodings, decode_bytes, python_encoding
from pydicom.datadict import dictionary_VR
from pydicom.dataelem import DataElement, RawDataElement
from pydicom.dataset import Dataset

_TEXTS = (
    "LO",
    "LT",
    "PN",
    "SH",
    "ST",
    "UC",
    "UT",
)  # VRs that Specific Character Set is for (PS3.5, 6.1.2.3)
_DELIMITERS = {ord("^"), ord("="), ord("\\")}
_UNICODE = "ISO_IR 192"
_DEFAULT = "iso8859"  # what pydicom takes the default repertoire for, which is ASCII
_LARGEST = 2**31 - 1  # of an Integer String
_OFFSET = re.compile(r"[+-]\d{4}")


def make_copyable(header: Dataset) -> None:
    """
    Change a header that was just read so that what is copied from it is valid.

    Texts that are not in the character set that the header states, as many writers leave them, become Unicode: what is
    UTF-8 is taken as such, else as Latin-1. A time zone that is none is left out.
    """
    texts = _raw_texts(header)
    encodings = _encodings(header)
    decoded = {tag: _decoded(raw, encodings) for tag, (_, raw) in texts.items()}
    if None in decoded.values() or not _are_defined(header):
        for tag, (vr, raw) in texts.items():
            text = decoded[tag]
            header[tag] = DataElement(tag, vr, _guessed(raw) if text is None else text)
        header.SpecificCharacterSet = _UNICODE
    offset = header.get("TimezoneOffsetFromUTC")
    if offset and not _OFFSET.fullmatch(str(offset)):
        del header.TimezoneOffsetFromUTC


def whole_number(header: Dataset, keyword: str, default: int, offset: int = 0) -> int:
    """A number of the header and an offset, which alone stays where there is no number, or one out of range."""
    try:
        number = int(header.get(keyword))
    except (TypeError, ValueError):
        number = default
    return number + offset if 0 <= number <= _LARGEST - offset else default + offset


def _raw_texts(header: Dataset) -> dict[int, tuple[str, bytes]]:
    """VR and bytes of the texts of a header."""
    found: dict[int, tuple[str, bytes]] = {}
    for tag in list(header.keys()):
        element = header.get_item(tag)
        if not isinstance(element, RawDataElement) or not element.value:
            continue
        vr = element.VR or dictionary_VR(tag)
        if vr in _TEXTS:
            found[tag] = (vr, bytes(element.value).rstrip(b" \0"))
    return found


def _encodings(header: Dataset) -> list[str]:
    """Python's names of the stated character sets, also where they are misspelled, such as ISO-IR 100."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            names = convert_encodings(header.get("SpecificCharacterSet") or "")
        except LookupError:
            names = [_DEFAULT]
    return ["ascii" if name == _DEFAULT else name for name in names]


def _are_defined(header: Dataset) -> bool:
    """Whether the stated character sets are those of the standard."""
    stated = header.get("SpecificCharacterSet") or ""
    return all(
        name in python_encoding for name in ([stated] if isinstance(stated, str) else stated)
    )


def _decoded(raw: bytes, encodings: list[str]) -> str | None:
    """A text in the stated character sets, None where it is in another one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return decode_bytes(raw, encodings, _DELIMITERS)
        except (UserWarning, UnicodeError, LookupError):
            return None


def _guessed(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeError:
        return raw.decode("latin-1")
